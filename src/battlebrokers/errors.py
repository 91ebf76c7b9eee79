"""Every way BattleBrokers can fail, with the exit code a shell sees.

BattleError                  1  our bug, or a failure nobody foresaw
├── UsageError               2  the command line does not make sense
├── InputError               3  a file we were given is wrong
│   ├── QuantityError        3  …a duration, rate, size or count that cannot be read
│   ├── ScenarioError        3  …a scenario (all its mistakes at once)
│   └── RunFolderError       3  …a run folder that is missing, foreign or unreadable
│       └── InvalidManifestError 3  …whose manifest says what no run can have written
├── EnvironmentNotReady      4  this machine lacks something (Java, a broker, a right, disk space)
├── ContenderError           5  the broker did not start, died, or stopped answering
│   └── LinkError            5  one connection to it failed
├── PipelineError            1  the analysis failed
│   └── AnalysisStopped      4  …because its process was killed, or hangs
└── Interrupted            130  the user pressed Ctrl-C
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum

from battlebrokers.visible import visible


class ExitCode(IntEnum):
    """What `bb` tells the shell."""

    PASS = 0
    BUG = 1
    USAGE = 2
    INVALID_INPUT = 3
    ENVIRONMENT = 4
    BROKER_FAILED = 5
    VOID = 6
    EXPECTATION_FAILED = 10
    INTERRUPTED = 130


class BattleError(Exception):
    """Base of all our errors: a message that says what and where, a hint that says what to do."""

    exit_code: ExitCode = ExitCode.BUG

    def __init__(self, message: str, *, hint: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint


class UsageError(BattleError):
    """The command line does not make sense."""

    exit_code = ExitCode.USAGE


class InputError(BattleError):
    """A file we were given is wrong."""

    exit_code = ExitCode.INVALID_INPUT


class QuantityError(InputError, ValueError):
    """A duration, rate, size or count cannot be read; also a ValueError, so that models report it in place."""


@dataclass(frozen=True, slots=True)
class Mistake:
    """One thing wrong in an input file; `line` counts from 1, 0 means the whole file."""

    where: str
    line: int
    path: str
    message: str
    hint: str = ""

    def __str__(self) -> str:
        place = f"{self.where}:{self.line}" if self.line else self.where
        path = f" {self.path}:" if self.path else ""
        hint = f" ({self.hint})" if self.hint else ""
        return visible(f"{place}:{path} {self.message}{hint}")


class ScenarioError(InputError):
    """A scenario is wrong; carries every mistake found, not only the first."""

    def __init__(self, mistakes: list[Mistake]) -> None:
        noun = "mistake" if len(mistakes) == 1 else "mistakes"
        lines = "\n".join(f"  {mistake}" for mistake in mistakes)
        super().__init__(f"{len(mistakes)} {noun} in the scenario\n{lines}", hint="`bb schema` prints every valid key.")
        self.mistakes = mistakes


class RunFolderError(InputError):
    """A run folder is missing, foreign or unreadable."""


class InvalidManifestError(RunFolderError):
    """A manifest says what no run can have written."""


class EnvironmentNotReady(BattleError):  # noqa: N818 - reads as the sentence it is
    """This machine lacks something a run needs."""

    exit_code = ExitCode.ENVIRONMENT


class ContenderError(BattleError):
    """The broker under test did not start, died, or stopped answering."""

    exit_code = ExitCode.BROKER_FAILED


class LinkError(ContenderError):
    """One connection to the broker failed; `code` is the protocol's reason code when it gave one."""

    def __init__(self, message: str, *, hint: str = "", code: int = -1) -> None:
        super().__init__(message, hint=hint)
        self.code = code


class PipelineError(BattleError):
    """The analysis failed; what was recorded is untouched."""


class AnalysisStopped(PipelineError):  # noqa: N818
    """The analysis process was killed from outside, or hangs; what was recorded is untouched."""

    exit_code = ExitCode.ENVIRONMENT


class Interrupted(BattleError):  # noqa: N818
    """The user pressed Ctrl-C; what was measured until then is kept."""

    exit_code = ExitCode.INTERRUPTED
