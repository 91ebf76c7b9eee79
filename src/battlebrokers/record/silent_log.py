"""Logs that keep nothing: what a run costs without recording. Used by the recorder when told to keep no events.

Tokens are still handed out and counted, because links need them; no row is ever filled.
"""

from __future__ import annotations

from typing import Any

from battlebrokers.record.delivery_log import DeliveryLog
from battlebrokers.record.publish_log import PublishLog

_PLANNED = 4
"""The place of the planned times among the arguments of `add_many`."""


class SilentPublishLog(PublishLog):
    """Hands out tokens and forgets."""

    def add(self, *_row: Any, **_more: Any) -> int:
        """Count one message."""
        self.next_token += 1
        return self.next_token - 1

    def add_alike(self, *_row: Any, **_more: Any) -> None:
        """Count one message."""
        self.next_token += 1

    def add_many(self, *row: Any, **_more: Any) -> int:
        """Count many messages."""
        count = len(row[_PLANNED])
        self.next_token += count
        return self.next_token - count

    def complete(self, *_told: Any, **_more: Any) -> None:
        """Nothing to complete."""

    def resent(self, *_told: Any, **_more: Any) -> None:
        """Nothing to count."""


class SilentDeliveryLog(DeliveryLog):
    """Forgets."""

    def add(self, *_row: Any, **_more: Any) -> None:
        """Forget one arrival."""

    def add_many(self, *_columns: Any, **_more: Any) -> None:
        """Forget many arrivals."""

    def add_rows(self, *_rows: Any, **_more: Any) -> None:
        """Forget many arrivals."""
