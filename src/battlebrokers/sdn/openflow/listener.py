"""Whom a channel tells what came over it; the controller is one."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from battlebrokers.sdn.core.instructions import Match
from battlebrokers.sdn.openflow.introduction import Introduction

if TYPE_CHECKING:
    from battlebrokers.sdn.openflow.channel import Channel


class Listener(Protocol):
    """Told in the order things came."""

    def joined(self, channel: Channel, introduction: Introduction) -> None:
        """A switch introduced itself."""

    def left(self, channel: Channel) -> None:
        """A switch that had joined is gone."""

    def ports_changed(self, channel: Channel, up: frozenset[int]) -> None:
        """Ports came or went."""

    def packet_came(self, channel: Channel, in_port: int, frame: bytes) -> None:
        """A switch asks what to do with a frame."""

    def caught_up(self) -> None:
        """All that came together was told."""

    def rule_removed(self, channel: Channel, key: tuple[int, int, Match], packets: int) -> None:
        """A rule is gone; so many packets took it."""

    def order_refused(self, channel: Channel) -> None:
        """A switch does not know what it was told."""

    def hung_up(self, channel: Channel) -> None:
        """A connection ended, whether a switch had joined by it or not."""
