"""Looks whether a contender can run here: finds its programs and modules, reads its version, says what is missing.

Called by `lifecycle`, `bb brokers` and `bb doctor`. Starts no broker and installs nothing.
"""

from __future__ import annotations

import glob
import hashlib
import importlib.metadata
import importlib.util
import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from battlebrokers.contenders.reader import SPECS
from battlebrokers.contenders.spec import Contender, Need, PackageManager, VersionSource, version_key
from battlebrokers.contenders.template import render

_ASK_TIMEOUT_S = 20.0
INTO_CACHE: tuple[PackageManager, ...] = ("npm", "npm-overrides", "pip-own")
_BARE_NAME = re.compile(r"(?:@[\w.-]+/)?([A-Za-z0-9][\w.-]*)")
"""The name of a package without what stands before and after it: `@scope/name@^1.2`, `name>=3`."""

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
    """Whether the contender can run on this machine; of one that somebody else runs nothing is looked for or asked."""
    if contender.run.external:
        # Nothing runs here for it; what we may do is another matter.
        missing = [
            place
            for need in contender.needs.values()
            if need.rights is not None
            if isinstance(place := _find(need, contender), Missing)
        ]
        return missing[0] if missing else Available("unknown", "", {})
    found: dict[str, str] = {}
    for name, need in _needs_of(contender).items():
        place = _find(need, contender)
        if isinstance(place, Missing):
            # Programs are not what we install into a cache: where the file says how to get them, that is told.
            typed = contender.install.get("commands", []) if need.executable is not None else []
            return Missing(place.what, place.hint or "; ".join(typed) or install_hint(contender))
        found |= {name: place[0]} | ({f"{name}.folder": place[1]} if place[1] else {})
    if contender.run.container or contender.run.compose:
        engine = container_engine()
        if engine is None:
            return Missing("a running Docker or Podman", "Install and start Docker, or install Podman.")
        found[ENGINE] = engine
    for companion in contender.beside.values():
        if companion.contender is not None:
            there = availability(Contender.find(companion.contender))
            if isinstance(there, Missing):
                return there
    return Available(_version(contender, found), next(iter(found.values()), ""), found)


ENGINE = "container-engine"
"""What the program that runs containers is called among what was found."""


@cache
def container_engine() -> str | None:
    """Docker or Podman, if it can run something."""
    for program in ("docker", "podman"):
        path = shutil.which(program)
        if path is not None and _succeeds([path, "info"]):
            return path
    return None


def located(contender: Contender) -> dict[str, str]:
    """Where each of its needs is that is here; looks for files and starts nothing."""
    needs = {name: need.model_copy(update={"at_least": None}) for name, need in _needs_of(contender).items()}
    places = {name: _find(need, contender) for name, need in needs.items()}
    return {name: place[0] for name, place in places.items() if not isinstance(place, Missing)}


def version_questions(contender: Contender) -> list[list[str]]:
    """The commands that are run to learn what versions are here, as templates."""
    asked = [[f"${{{name}}}", "--version"] for name, need in contender.needs.items() if need.at_least is not None]
    sources = contender.version or _obvious_version(contender)
    return asked + [list(source.command) for source in sources if source.command is not None]


def _needs_of(contender: Contender) -> dict[str, Need]:
    """Its own needs, and those of the programs that run beside it."""
    programs = {
        name: Need(executable=companion.executable, also_in=companion.also_in)
        for name, companion in contender.beside.items()
        if companion.executable is not None
    }
    return {**contender.needs, **programs}


def installation_of(contender: Contender) -> Path:
    """Where what we install for a contender is kept: the user's cache, one folder for all that want the same packages.

    Earlier every contender had a folder of its own name; where that is all there is, it still serves.
    """
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "battlebrokers"
    wanted = {manager: contender.install[manager] for manager in INTO_CACHE if manager in contender.install}
    named_after_contender = cache / contender.name
    if not wanted:
        return named_after_contender
    first = _BARE_NAME.match(next((package for packages in wanted.values() for package in packages), ""))
    digest = hashlib.sha256(json.dumps(wanted, sort_keys=True).encode()).hexdigest()[:8]
    shared = cache / f"{first.group(1) if first else contender.name}-{digest}"
    return named_after_contender if named_after_contender.is_dir() and not shared.is_dir() else shared


def own_environment(contender: Contender) -> Path:
    """The virtual environment of a Python program that must not be mixed with ours."""
    return installation_of(contender) / "venv"


def install_hint(contender: Contender) -> str:
    """The exact command that installs it here, for the package manager this machine has."""
    by_manager = {"apt": "apt-get", "dnf": "dnf", "apk": "apk", "brew": "brew"}
    for manager, packages in contender.install.items():
        if manager in by_manager and shutil.which(by_manager[manager]):
            return _with_rights(manager, _COMMANDS[manager].format(" ".join(packages)))
    if {"npm", "pip-own"} & set(contender.install):
        return f"bb brokers install {contender.name}"
    for manager in ("commands", "pip"):
        if manager in contender.install:
            lines = contender.install[manager]
            return "; ".join(lines) if manager == "commands" else _COMMANDS["pip"].format(" ".join(lines))
    first = next(iter(contender.install), None)
    return _COMMANDS[first].format(" ".join(contender.install[first])) if first in _COMMANDS else ""


def _with_rights(manager: str, command: str) -> str:
    return command if manager == "brew" or os.geteuid() == 0 else f"sudo {command}"


def _find(need: Need, contender: Contender) -> tuple[str, str] | Missing:
    """Where a need is: what to run or read, and the folder of a module."""
    if need.rights is not None:
        return (need.rights, "") if os.geteuid() == 0 else Missing("the right to act as root", "Run it with sudo.")
    if need.python is not None:
        return _find_python(need.python, contender)
    if need.node is not None:
        folder = installation_of(contender) / "node_modules" / need.node
        here = (folder / "package.json").is_file()
        return (str(folder), str(folder)) if here else Missing(f"the Node module {need.node}", "")
    if need.file is not None:
        there = next((place for place in need.file if Path(place).is_file()), None)
        return Missing(f"the file {need.file[0]}", "") if there is None else (there, "")
    place = _find_program(need)
    return place if isinstance(place, Missing) else (place, "")


def _find_python(module: str, contender: Contender) -> tuple[str, str] | Missing:
    name = module.partition(".")[0]
    if "pip-own" in contender.install:
        own = own_environment(contender)
        for folder in _own_packages(contender):
            for place in (folder / name, folder / f"{name}.py"):
                if place.exists():
                    return str(own / "bin" / "python"), str(place)
        return Missing(f"the Python program {module}", f"bb brokers install {contender.name}")
    found = importlib.util.find_spec(name)
    if found is None:
        return Missing(f"the Python module {module}", "")
    return sys.executable, str(Path(found.origin).parent) if found.origin else ""


def _own_packages(contender: Contender) -> list[Path]:
    return sorted(own_environment(contender).glob("lib/python*/site-packages"))


def _find_program(need: Need) -> str | Missing:
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
    for source in contender.version or _obvious_version(contender):
        match = re.search(source.match, _read(source, values, contender))
        if match:
            return match.group(1)
    return "unknown"


def _obvious_version(contender: Contender) -> list[VersionSource]:
    """Where the version stands when the file does not say: what is called like it, else its first module or program."""
    if contender.run.container or not contender.needs:
        return []
    modules = [name for name, need in contender.needs.items() if need.python or need.node]
    name = contender.name if contender.name in contender.needs else next(iter(modules or contender.needs))
    need = contender.needs[name]
    if need.python is not None:
        return [VersionSource(python=need.python.partition(".")[0])]
    if need.node is not None:
        return [VersionSource(file=f"${{{name}}}/package.json", match=r'"version":\s*"([^"]+)"')]
    return [VersionSource(command=[f"${{{name}}}", "--version"])] if need.executable is not None else []


def _read(source: VersionSource, values: Mapping[str, str], contender: Contender) -> str:
    """What a version source has to say; nothing when it cannot be asked."""
    try:
        if source.python is not None:
            if "pip-own" not in contender.install:
                return importlib.metadata.version(source.python)
            places = [str(place) for place in _own_packages(contender)]
            return next((each.version for each in _distributions(source.python, places)), "")
        if source.file is not None:
            place = Path(render(source.file, values)).resolve()
            module = Path(render(source.file.partition("/")[0], values)).resolve()
            # A link in a module must not lead to what is none of its.
            inside = place.is_relative_to(module) and place.is_file()
            return place.read_text(encoding="utf-8", errors="replace") if inside else ""
        if source.glob is not None:
            return "\n".join(sorted(glob.glob(render(source.glob, values)), reverse=True))  # noqa: PTH207 - absolute
        return _ask([render(word, values) for word in source.command or []])
    except (OSError, importlib.metadata.PackageNotFoundError):
        return ""


def _distributions(name: str, places: list[str]) -> Iterable[importlib.metadata.Distribution]:
    return importlib.metadata.distributions(name=name, path=places)


def _succeeds(command: list[str]) -> bool:
    try:
        asked = subprocess.run(
            command, stdin=subprocess.DEVNULL, capture_output=True, timeout=_ASK_TIMEOUT_S, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return False
    return asked.returncode == 0


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
