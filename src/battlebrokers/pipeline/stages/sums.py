"""Everything tasks add up about captures; sums of tasks are merged on the driver and written as small tables."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

import pyarrow as pa

from battlebrokers.pipeline.stages.examples import ExampleSum
from battlebrokers.pipeline.stages.kinds import KindSum
from battlebrokers.pipeline.stages.passages import PassageSum
from battlebrokers.pipeline.stages.responses import Answers
from battlebrokers.pipeline.stages.traffic import TrafficSum
from battlebrokers.tables import ENDINGS, EXAMPLES, KINDS, PASSAGES, RESPONSES, TRAFFIC, Table


@dataclass(frozen=True, slots=True)
class Sums:
    """What one task adds up."""

    traffic: TrafficSum = field(default_factory=TrafficSum)
    answers: Answers = field(default_factory=Answers)
    kinds: KindSum = field(default_factory=KindSum)
    passages: PassageSum = field(default_factory=PassageSum)
    examples: ExampleSum = field(default_factory=ExampleSum)

    def cut(self) -> None:
        """Before they travel: less of what is not needed."""
        self.answers.thin()
        self.kinds.cut()
        self.passages.thin()
        self.examples.thin()

    def merge(self, other: Sums) -> None:
        """Those of another task."""
        self.traffic.merge(other.traffic)
        self.answers.merge(other.answers)
        self.kinds.merge(other.kinds)
        self.passages.merge(other.passages)
        self.examples.merge(other.examples)

    def tables(self) -> Iterator[tuple[Table, pa.Table]]:
        """The rows of all tables they make."""
        yield TRAFFIC, self.traffic.table()
        yield RESPONSES, self.answers.table()
        yield KINDS, self.kinds.table()
        yield PASSAGES, self.passages.table()
        senders = self.passages.senders()
        yield EXAMPLES, self.examples.table(senders)
        yield ENDINGS, self.examples.endings(senders)
