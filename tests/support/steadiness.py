"""Runs every test that failed beside others once more, each by itself, and lists those that then pass as unsteady.

`scripts/run-tests` calls it with the file that `pytest --record-failures` wrote; the exit status is that of the run.
More than `MAX_UNSTEADY` unsteady tests fail the run, and so does a failure that no repetition may excuse.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass
from pathlib import Path

MAX_UNSTEADY = 3
# More failures than this are a broken change, not unsteady tests: repeating them would only delay the answer.
MAX_REPEATED = 20
# Left-over processes are found when the session ends and charged to its last test, which would pass by itself.
NEVER_EXCUSED = ("processes left running by tests",)
SHOWN_LINES = 30


@dataclass(frozen=True)
class Failure:
    """One failed test of the first run, with what it printed."""

    node_id: str
    when: str
    text: str

    @property
    def is_excusable(self) -> bool:
        """Whether passing by itself would show that only its neighbours made it fail."""
        return self.when != "collect" and not any(reason in self.text for reason in NEVER_EXCUSED)


@dataclass(frozen=True)
class Outcome:
    """The failures of a run after each was repeated by itself."""

    broken: tuple[Failure, ...]
    unsteady: tuple[Failure, ...]

    @property
    def passed(self) -> bool:
        """Whether the run passes in spite of its unsteady tests."""
        return not self.broken and len(self.unsteady) <= MAX_UNSTEADY


def without_group(node_id: str) -> str:
    """Remove the xdist group from a test's id: pytest does not find a test by an id that ends with it."""
    before, bracket, after = node_id.rpartition("]")
    return before + bracket + after.partition("@")[0]


def append_failure(path: Path, failure: Failure) -> None:
    """Append a failure to the file as one line of JSON."""
    with path.open("a") as lines:
        lines.write(json.dumps(asdict(failure)) + "\n")


def read_failures(path: Path) -> list[Failure]:
    """Read the first failure of each test, in the order in which they failed."""
    first: dict[str, Failure] = {}
    for line in path.read_text().splitlines():
        failure = Failure(**json.loads(line))
        earlier = first.get(failure.node_id)
        if earlier is None or (earlier.is_excusable and not failure.is_excusable):
            first[failure.node_id] = failure
    return list(first.values())


def judge(failures: Iterable[Failure], passes_by_itself: Callable[[str], bool]) -> Outcome:
    """Repeat each excusable failure and sort all of them into broken and unsteady."""
    failures = list(failures)
    may_repeat = len(failures) <= MAX_REPEATED
    unsteady = tuple(
        failure for failure in failures if may_repeat and failure.is_excusable and passes_by_itself(failure.node_id)
    )
    return Outcome(broken=tuple(failure for failure in failures if failure not in unsteady), unsteady=unsteady)


def describe(outcome: Outcome) -> str:
    """List the unsteady tests with their first failure, then what decides the run."""
    lines: list[str] = []
    for failure in outcome.unsteady:
        lines += [f"unsteady: {failure.node_id} failed beside others and passes by itself; its first failure:"]
        lines += [f"    {line}" for line in failure.text.splitlines()[-SHOWN_LINES:]]
    lines += [f"broken: {failure.node_id}" for failure in outcome.broken]
    if outcome.broken:
        verdict = f"{len(outcome.broken)} tests fail"
    elif outcome.passed:
        verdict = f"every test passes, {len(outcome.unsteady)} of them unsteady (at most {MAX_UNSTEADY} are accepted)"
    else:
        verdict = f"{len(outcome.unsteady)} tests are unsteady; more than {MAX_UNSTEADY} fail the run"
    return "\n".join([*lines, verdict])


def _passes_by_itself(node_id: str) -> bool:
    sys.stdout.write(f"\nonce more, by itself: {node_id}\n")
    sys.stdout.flush()
    return subprocess.run([sys.executable, "-m", "pytest", "-q", node_id], check=False).returncode == 0


def main(path: str) -> int:
    """Repeat the failures recorded in the file and return the exit status of the whole run."""
    failures = read_failures(Path(path))
    outcome = judge(failures, _passes_by_itself)
    sys.stdout.write(f"\n{describe(outcome)}\n")
    return 0 if outcome.passed else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
