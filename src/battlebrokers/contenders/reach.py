"""What of this machine a contender has to be able to reach when it runs under another account than ours.

Asked by `lifecycle` and `place`, as root. What is ours alone, such as a virtual environment below root's home, nobody
else could reach otherwise; `keeper` lets the contender reach these paths, and changes nothing of who may read them.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

from battlebrokers.contenders.availability import INTO_CACHE, installation_of
from battlebrokers.contenders.configuration import Configuration
from battlebrokers.contenders.reader import SPECS
from battlebrokers.contenders.spec import Contender

_PATH = re.compile(r"/[\w./+@%~-]+", re.ASCII)
_HOME = re.compile(r"^home\s*=\s*(/.*\S)\s*$", re.MULTILINE)
_MOST_NAMED = 100
_LONGEST_SCRIPT_BYTES = 1 << 16


def paths_needed(contender: Contender, found: Mapping[str, str]) -> list[str]:
    """Files and folders it cannot run without: programs and modules, with the environments they belong to."""
    paths = [*(place for place in found.values() if place.startswith("/")), str(SPECS)]
    if set(INTO_CACHE) & set(contender.install):
        paths.append(str(installation_of(contender)))
    return _with_environments(paths)


def paths_named(configuration: Configuration) -> list[str]:
    """Files and folders that its command, its environment and its configuration name, and those its scripts name."""
    words = [*configuration.command, *configuration.env.values()]
    paths = list(_paths_in([*words, *configuration.files.values()]))
    scripts = [text for path in _there(paths)[:_MOST_NAMED] if (text := _script(Path(path)))]
    return _with_environments([*paths, *_paths_in(scripts)])[:_MOST_NAMED]


def _paths_in(texts: Iterable[str]) -> Iterator[str]:
    for text in texts:
        yield from (path for path in (text, *_PATH.findall(text)) if path.startswith("/"))


def _script(path: Path) -> str:
    """The text of a program that another program interprets; empty for any other file."""
    try:
        if not path.is_file():
            return ""
        with path.open("rb") as file:
            text = file.read(_LONGEST_SCRIPT_BYTES)
    except OSError:
        return ""
    return text.decode(errors="replace") if text.startswith(b"#!") else ""


def _with_environments(paths: Iterable[str]) -> list[str]:
    """Those that exist; a Python brings its environment, and that the installation it was made from."""
    existing = _there(paths)
    more: list[str] = []
    for path in existing:
        environment = Path(path).absolute().parent.parent
        if (environment / "pyvenv.cfg").is_file():
            told = _HOME.search((environment / "pyvenv.cfg").read_text(errors="replace"))
            more += [str(environment), *([str(Path(told[1]).parent)] if told else [])]
        elif Path(path).resolve().is_relative_to(Path(sys.base_prefix).resolve()):
            more.append(sys.base_prefix)
    return _there([*existing, *more])


def _there(paths: Iterable[str]) -> list[str]:
    return [path for path in dict.fromkeys(paths) if _exists(path)]


def _exists(path: str) -> bool:
    try:
        return Path(path).exists()
    except (OSError, ValueError):  # a text that is far too long for a path, or holds what no path does
        return False
