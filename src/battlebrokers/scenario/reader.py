"""Reading a scenario: name or file → checked model, or one error with every mistake in it.

Called by the command line. All file access of the scenario language is here, in `kinds` (referenced files),
`credentials` and `payloads` (their content).
"""

from __future__ import annotations

import difflib
import math
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from battlebrokers.errors import InputError, ScenarioError, UsageError
from battlebrokers.scenario.document import LARGEST_BYTES, Document, read_document
from battlebrokers.scenario.masking import masked_yaml, secrets_of
from battlebrokers.scenario.model import Scenario
from battlebrokers.scenario.overrides import apply_overrides
from battlebrokers.scenario.resolve import resolve
from battlebrokers.scenario.rules import check_rules
from battlebrokers.scenario.shipped import shipped_path, shipped_scenarios
from battlebrokers.scenario.validation import validate
from battlebrokers.secrets import masked_setting, remember

_LONGEST_TOLD = 80
"""Overrides longer than this are counted in a title, not told."""


@dataclass(frozen=True, slots=True)
class LoadedScenario:
    """A scenario with its provenance: where it came from, its text, and what the command line changed.

    Text and overrides are for people and evidence: secrets in them are masked. The scenario has them.
    """

    scenario: Scenario
    source: str
    text: str
    overrides: tuple[str, ...] = ()
    scale: float = 1.0

    @property
    def title(self) -> str:
        """Its name, and what makes this not quite that scenario."""
        title = self.scenario.name
        if self.scale != 1.0:
            title += f" at scale {self.scale:g}"
        told = ", ".join(self.overrides)
        if len(self.overrides) > 2 or len(told) > _LONGEST_TOLD:
            changed = "1 setting" if len(self.overrides) == 1 else f"{len(self.overrides)} settings"
            title += f" with {changed} changed"
        elif told:
            title += f" with {told}"
        return title

    def resolved(self) -> dict[str, Any]:
        """All values after defaults, overrides and scale, as plain data that could be read again."""
        return resolve(self.scenario).plain()


def load_scenario(name_or_path: str, overrides: Sequence[str] = (), scale: float = 1.0) -> LoadedScenario:
    """Read, change, scale and check a scenario; raises InputError or ScenarioError with all its mistakes."""
    if not (math.isfinite(scale) and scale > 0):
        raise UsageError(f"--scale {scale:g} makes no sense", hint="use a number above 0, such as 0.01")
    path, source = _find(name_or_path)
    text = _read(path, source)
    return read_scenario(text, source, overrides, scale, path=path)


def read_scenario(
    text: str, source: str, overrides: Sequence[str] = (), scale: float = 1.0, path: Path | None = None
) -> LoadedScenario:
    """The same for a text; `path` is where it lies: mistakes name it, files it mentions are looked for beside it."""
    document = read_document(text, str(path) if path else source)
    folder = path.parent if path else None
    if document.data:
        apply_overrides(document, overrides)
        _check(document, scale, folder)
    if document.mistakes:
        raise ScenarioError(sorted(document.mistakes, key=lambda mistake: (mistake.line == 0, mistake.line)))
    scenario, _ = validate(document, folder)
    assert scenario is not None
    remember(*secrets_of(scenario))
    told = tuple(masked_setting(override) for override in overrides)
    return LoadedScenario(scaled(scenario, scale), source, masked_yaml(text), told, scale)


def _check(document: Document, scale: float, folder: Path | None) -> None:
    scenario, left_out = validate(document, folder)
    if scenario is None:
        return
    for path, message, hint in check_rules(scaled(scenario, scale)):
        # What was left out has been reported; rules must not complain about the hole.
        if not any(path[: len(hole)] == hole or hole[: len(path)] == path for hole in left_out):
            document.mistake(path, message, hint)


def scaled(scenario: Scenario, scale: float) -> Scenario:
    """The scenario with all counts of devices and clients multiplied; 1 stays at least 1, 0 stays 0."""
    if scale == 1.0:
        return scenario
    fleets = {
        name: f.model_copy(update={"devices": scaled_count(f.devices, scale)}) for name, f in scenario.fleets.items()
    }
    clients = {
        name: c.model_copy(update={"count": scaled_count(c.count, scale)}) for name, c in scenario.clients.items()
    }
    return scenario.model_copy(update={"fleets": fleets, "clients": clients})


def scaled_count(count: int, scale: float) -> int:
    """A count times the scale, rounded, never to nothing."""
    return max(1, math.floor(count * scale + 0.5)) if count else 0


def _find(name_or_path: str) -> tuple[Path, str]:
    shipped = shipped_path(name_or_path)
    if shipped is not None:
        return shipped, name_or_path
    if not name_or_path or "\0" in name_or_path:
        raise UsageError("a scenario needs a name", hint="shipped: " + ", ".join(shipped_scenarios()))
    return Path(name_or_path), Path(name_or_path).name


def _shipped_like(name: str) -> str:
    """The shipped names most like this one; all of them if none is like it."""
    names = shipped_scenarios()
    begun = [one for one in names if len(name) > 1 and one.startswith(name)]
    close = begun[:3] or difflib.get_close_matches(name, names, n=3, cutoff=0.6)
    if close:
        return f"did you mean {' or '.join(f'`{one}`' for one in close)}?"
    return f"shipped: {', '.join(names)}; or name a YAML file of your own"


def _without_waiting(path: str, flags: int) -> int:
    """Opens a pipe that nobody writes to without waiting for a writer: it is empty."""
    return os.open(path, flags | os.O_NONBLOCK)


def _read(path: Path, source: str) -> str:
    try:
        with open(path, "rb", opener=_without_waiting) as file:
            os.set_blocking(file.fileno(), True)
            content = file.read(LARGEST_BYTES + 1)
    except FileNotFoundError:
        looks_like_file = path.suffix != "" or len(path.parts) > 1
        hint = f"no such file: {path}" if looks_like_file else _shipped_like(str(path))
        raise InputError(f"there is no scenario {source!r}", hint=hint) from None
    except IsADirectoryError:
        raise InputError(f"{path} is a folder", hint="name a YAML file in it") from None
    except PermissionError:
        raise InputError(f"{path} may not be read", hint=f"chmod u+r {path}") from None
    except (OSError, ValueError) as error:
        raise InputError(f"{path} cannot be read: {getattr(error, 'strerror', None) or error}") from None
    if len(content) > LARGEST_BYTES:
        raise InputError(f"{path} is larger than {LARGEST_BYTES} bytes", hint="that is no scenario")
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError:
        raise InputError(f"{path} is not a text file in UTF-8", hint="a scenario is a YAML file") from None
