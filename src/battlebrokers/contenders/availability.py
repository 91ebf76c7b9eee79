"""Looks whether a contender can run here: finds its programs and modules, reads its version, says what is missing.

Called by `lifecycle`, `bb brokers` and `bb doctor`. Starts no broker and installs nothing.
"""

from __future__ import annotations

import glob
import importlib.metadata
import importlib.util
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from battlebrokers.contenders.reader import SPECS
from battlebrokers.contenders.spec import Contender, Need, PackageManager, VersionSource, version_key
from battlebrokers.contenders.template import render

_ASK_TIMEOUT_S = 20.0

_COMMANDS: dict[PackageManager, str] = {
    "apt": "apt-get install -y --no-install-recommends {}",
    "dnf": "dnf install -y {}",
    "apk": "apk add {}",
    "brew": "brew install {}",
    "pip": "pip install {}",
}


@dataclass(frozen=True, slots=True)
class Available:
    """It can run: its version, and where each of its needs was found."""

    version: str
    path: str
    found: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Missing:
    """It cannot run: what is not here, and how to get it."""

    what: str
    hint: str


def availability(contender: Contender) -> Available | Missing:
    """Whether the contender can run on this machine."""
    found: dict[str, str] = {}
    for name, need in contender.needs.items():
        place = _find(need, contender.name)
        if isinstance(place, Missing):
            return Missing(place.what, place.hint or install_hint(contender))
        found[name] = place
    return Available(_version(contender, found), next(iter(found.values())), found)


def modules_folder(contender_name: str) -> Path:
    """Where Node modules of a contender are kept: the user's cache, never the system."""
    cache = os.environ.get("XDG_CACHE_HOME") or str(Path.home() / ".cache")
    return Path(cache) / "battlebrokers" / contender_name


def install_hint(contender: Contender) -> str:
    """The exact command that installs it here, for the package manager this machine has."""
    by_manager = {"apt": "apt-get", "dnf": "dnf", "apk": "apk", "brew": "brew"}
    for manager, packages in contender.install.items():
        if manager in by_manager and shutil.which(by_manager[manager]):
            return _with_rights(manager, _COMMANDS[manager].format(" ".join(packages)))
    for manager in ("commands", "pip"):
        if manager in contender.install:
            lines = contender.install[manager]
            return "; ".join(lines) if manager == "commands" else _COMMANDS["pip"].format(" ".join(lines))
    first = next(iter(contender.install), None)
    return _COMMANDS[first].format(" ".join(contender.install[first])) if first in _COMMANDS else ""


def _with_rights(manager: str, command: str) -> str:
    return command if manager == "brew" or os.geteuid() == 0 else f"sudo {command}"


def _find(need: Need, contender_name: str) -> str | Missing:
    if need.python is not None:
        if importlib.util.find_spec(need.python.partition(".")[0]) is not None:
            return sys.executable
        return Missing(f"the Python module {need.python}", "")
    if need.node is not None:
        folder = modules_folder(contender_name) / "node_modules" / need.node
        return str(folder) if (folder / "package.json").is_file() else Missing(f"the Node module {need.node}", "")
    assert need.executable is not None
    places = [*need.also_in, os.environ.get("PATH", os.defpath)]
    path = shutil.which(need.executable, path=os.pathsep.join(places))
    if path is None:
        return Missing(f"the program {need.executable}", "")
    if need.at_least is not None:
        told = re.search(r"\d+(\.\d+)*", _ask([path, "--version"]))
        if told is None or version_key(told.group()) < version_key(need.at_least):
            have = told.group() if told else "an unknown version"
            return Missing(
                f"{need.executable} {need.at_least} or newer (here: {have})",
                f"Install {need.executable} {need.at_least} or newer and put it on PATH.",
            )
    return path


def _version(contender: Contender, found: Mapping[str, str]) -> str:
    values = {**found, "specs": str(SPECS)}
    for source in contender.version:
        match = re.search(source.match, _read(source, values))
        if match:
            return match.group(1)
    return "unknown"


def _read(source: VersionSource, values: Mapping[str, str]) -> str:
    """What a version source has to say; nothing when it cannot be asked."""
    try:
        if source.python is not None:
            return importlib.metadata.version(source.python)
        if source.file is not None:
            return Path(render(source.file, values)).read_text(encoding="utf-8", errors="replace")
        if source.glob is not None:
            return "\n".join(sorted(glob.glob(render(source.glob, values)), reverse=True))  # noqa: PTH207 - absolute
        return _ask([render(word, values) for word in source.command or []])
    except (OSError, importlib.metadata.PackageNotFoundError):
        return ""


def _ask(command: list[str]) -> str:
    """What a program prints about itself, whatever it exits with."""
    try:
        answer = subprocess.run(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            timeout=_ASK_TIMEOUT_S,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return answer.stdout.decode(errors="replace")
