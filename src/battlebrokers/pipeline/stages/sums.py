"""Everything tasks add up about captures; one last task merges their sums and writes them as small tables.

Sums are small whatever the captures' size, and so is what any number of them is merged to.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field

import pyarrow as pa

from battlebrokers.pipeline.stages.examples import ExampleSum
from battlebrokers.pipeline.stages.kinds import KindSum
from battlebrokers.pipeline.stages.passages import PassageSum
from battlebrokers.pipeline.stages.responses import Answers
from battlebrokers.pipeline.stages.service_peers import Used, service_peers
from battlebrokers.pipeline.stages.table_files import TableFile
from battlebrokers.pipeline.stages.traffic import TrafficSum
from battlebrokers.tables import ENDINGS, EXAMPLES, KINDS, PASSAGES, RESPONSES, SERVICE_PEERS, TRAFFIC, Table


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

    def tables(self, used: Used) -> Iterator[tuple[Table, pa.Table]]:
        """The rows of all tables they make; `used` is what services used, as far as it is known."""
        yield SERVICE_PEERS, service_peers(self.answers, self.traffic, used)
        yield TRAFFIC, self.traffic.table()
        yield RESPONSES, self.answers.table()
        yield KINDS, self.kinds.table()
        yield PASSAGES, self.passages.table()
        senders = self.passages.senders()
        yield EXAMPLES, self.examples.table(senders)
        yield ENDINGS, self.examples.endings(senders)


@dataclass(frozen=True, slots=True)
class SumStage:
    """The last task: merges the sums of all others one by one, so that nobody ever holds them all."""

    folders: Mapping[str, str]
    """Name of a table → where it lies."""
    used: Used = field(default_factory=dict)

    def __call__(self, moved: Iterable[tuple[int, Sums]]) -> Iterator[None]:
        """Merge and write."""
        whole = Sums()
        for _, one in moved:
            whole.merge(one)
        for table, rows in whole.tables(self.used):
            with TableFile(self.folders[table.name], table, 0) as file:
                for batch in rows.to_batches():
                    file.write(batch)
        yield from ()
