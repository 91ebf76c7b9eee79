"""How much was fuzzed: every input is counted and timed, and one that fails says which it was."""

from __future__ import annotations

import json
import os
import resource
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

LONGEST_S = 10.0
"""CPU time of one input; ordinary ones take less than a millisecond."""


class Tally:
    """What was tried so far in one module of tests."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.inputs: Counter[str] = Counter()
        self._longest_s = 0.0
        self._begin_s = time.process_time()

    @contextmanager
    def input(self, kind: str, what: str, number: int) -> Iterator[None]:
        """One input; whatever goes wrong with it says which it was."""
        begin = time.process_time()
        try:
            yield
            took = time.process_time() - begin
            assert took < LONGEST_S, f"took {took:.1f} s of CPU time"
        except BaseException as error:
            error.add_note(f"{kind} {what}, round {number}")
            raise
        self._longest_s = max(self._longest_s, took)
        self.inputs[f"{kind} {what}"] += 1

    def record(self) -> None:
        """Write it all into the folder `FUZZ_RECORD` names, if it does."""
        folder = os.environ.get("FUZZ_RECORD")
        if not folder:
            return
        told = {
            "inputs": sum(self.inputs.values()),
            "of": dict(self.inputs),
            "cpu_seconds": round(time.process_time() - self._begin_s),
            "longest_ms": round(1000 * self._longest_s, 1),
            "peak_rss_bytes": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024,
        }
        Path(folder).mkdir(parents=True, exist_ok=True)
        (Path(folder) / f"{self.name}.json").write_text(json.dumps(told, indent=2) + "\n")
