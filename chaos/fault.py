"""A fault, what must hold when it happens, and what was seen. Values only; used by all of chaos."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from chaos.place import Place

REFUSED = frozenset({2, 3, 4})
"""A mistake of the command line, a file that is wrong, or a machine that lacks something."""


@dataclass(frozen=True, slots=True)
class Must:
    """What must hold after a fault."""

    codes: frozenset[int]
    says: str = ""
    """A regular expression that must be found in what `bb` prints, in any case of letters."""
    states: frozenset[str] = frozenset()
    """What `bb list` may say of the run; empty: there need not be one."""
    evidence: bool = False
    """Whether recorded messages must be there and readable."""
    ends_within_s: float = 0.0
    """From the fault to the end of `bb`; 0: only the limit of the whole fault counts."""
    memory_mib: int = 700
    """The most any of our Python processes may use."""


@dataclass(frozen=True, slots=True)
class Seen:
    """What came of it."""

    code: int | None
    """None: it had to be killed at the limit."""
    said: str
    seconds: float
    after_fault_s: float
    peak_mib: int
    left: tuple[str, ...] = ()
    """Processes that were still there after the end."""
    files_left: tuple[str, ...] = ()
    """Temporary files that were still there."""
    runs: tuple[tuple[str, str], ...] = ()
    """State and damage of each run folder."""
    unreadable: tuple[str, ...] = ()
    """Recorded files that cannot be read."""
    recorded_rows: int = 0
    complaints: tuple[str, ...] = ()
    """What the fault itself found wrong."""


@dataclass(frozen=True, slots=True)
class Fault:
    """One of them: `apply` lets it happen in a place of its own and tells what was seen."""

    group: str
    name: str
    apply: Callable[[Place], Seen]
    must: Must
    short: bool = False
    """Whether the short version tries it."""
    within_s: float = 90.0
    needs: str = ""
    """A program without which it cannot be tried, or `root`."""

    @property
    def full_name(self) -> str:
        """Group and name."""
        return f"{self.group}/{self.name}"


@dataclass(frozen=True, slots=True)
class Result:
    """How a fault ended: held without complaints, lost with them, or not tried for a reason."""

    fault: str
    seconds: float
    code: int | None = None
    complaints: tuple[str, ...] = ()
    skipped: str = ""
    said: str = field(default="", compare=False)
    """The end of what `bb` printed, where something was lost."""

    @property
    def held(self) -> bool:
        """Whether everything that must hold did."""
        return not self.complaints and not self.skipped


def folder_of(name: str, under: Path) -> Path:
    """A folder for a fault, by its name."""
    return under / "".join(letter if letter.isalnum() or letter in "-._" else "-" for letter in name)
