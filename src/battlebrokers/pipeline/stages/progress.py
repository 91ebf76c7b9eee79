"""How far the stages of a piece of work are, asked of Spark while it runs. Used where one call is one long job."""

from __future__ import annotations

import threading
from collections.abc import Callable
from types import TracebackType

from pyspark import SparkContext

_LOOK_S = 0.25


class StageProgress:
    """Tells finished tasks, out of those planned, from a thread of its own; a context around the work."""

    def __init__(self, spark: SparkContext, planned: int, tell: Callable[[int, int], None]) -> None:
        self._tracker = spark.statusTracker()
        self._planned = planned
        self._tell = tell
        self._finished: dict[int, int] = {}
        """Stage → tasks of it."""
        self._done = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="progress", daemon=True)

    def __enter__(self) -> StageProgress:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._done.set()
        self._thread.join()

    def _watch(self) -> None:
        told = -1
        while not self._done.wait(_LOOK_S):
            for stage in self._tracker.getActiveStageIds():
                info = self._tracker.getStageInfo(stage)
                if info is not None:
                    self._finished[stage] = max(self._finished.get(stage, 0), info.numCompletedTasks)
            finished = min(sum(self._finished.values()), self._planned)
            if finished != told:
                told = finished
                self._tell(finished, self._planned)
