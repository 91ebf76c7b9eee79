"""The scenarios that come with BattleBrokers: where they lie and what they are called. Called by the reader."""

from __future__ import annotations

from functools import cache
from pathlib import Path

from battlebrokers.errors import EnvironmentNotReady


@cache
def scenario_folder() -> Path:
    """The folder of shipped scenarios: inside an installed package, beside `src` in a source tree."""
    package = Path(__file__).resolve().parent.parent
    for folder in (package / "scenarios", package.parent.parent / "scenarios"):
        if folder.is_dir():
            return folder
    raise EnvironmentNotReady(
        "the shipped scenarios are missing from this installation", hint="install battlebrokers again"
    )


def shipped_scenarios() -> list[str]:
    """Their names, in alphabetical order."""
    return sorted(path.stem for path in scenario_folder().glob("*.yaml"))


def shipped_path(name: str) -> Path | None:
    """The file of that name, if it is one of ours."""
    return scenario_folder() / f"{name}.yaml" if name in shipped_scenarios() else None
