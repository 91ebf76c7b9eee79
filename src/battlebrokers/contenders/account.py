"""The account a contender runs under when we are root, and what of this machine it has to be able to reach.

Asked by `lifecycle`. Changes nothing: `keeper` becomes that account, right before the contender's program.
"""

from __future__ import annotations

import os
import pwd
import re
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from battlebrokers.contenders.availability import INTO_CACHE, installation_of
from battlebrokers.contenders.configuration import Configuration
from battlebrokers.contenders.keeper import shut_folder
from battlebrokers.contenders.reader import SPECS
from battlebrokers.contenders.spec import Contender

UNPRIVILEGED = "nobody"
_SYS_ADMIN = 21
_PATH = re.compile(r"/[\w./+@%~-]+", re.ASCII)
_MOST_NAMED = 100


@dataclass(frozen=True, slots=True)
class Account:
    """A user of this machine who owns nothing here."""

    name: str
    user_id: int
    group_id: int

    @property
    def owner(self) -> tuple[int, int]:
        """User and group by number."""
        return self.user_id, self.group_id


def account_of(contender: Contender) -> Account | None:
    """Whom its processes become; None when they stay what we are: not root, an engine's client, or root by its file."""
    run = contender.run
    if os.geteuid() != 0 or run.as_root or run.container or run.compose:
        return None
    try:
        entry = pwd.getpwnam(UNPRIVILEGED)
    except KeyError:
        return None
    return Account(entry.pw_name, entry.pw_uid, entry.pw_gid) if entry.pw_uid else None


def reaches(account: Account, folder: Path) -> bool:
    """Whether the account can work in a folder that is given to it: by itself, or because its keeper may mount."""
    return shut_folder(folder, *account.owner) is None or _may_mount()


def _may_mount() -> bool:
    """Whether we have CAP_SYS_ADMIN, which root in a container mostly has not."""
    try:
        match = re.search(r"^CapEff:\s*([0-9a-f]+)", Path("/proc/self/status").read_text(), re.MULTILINE)
    except OSError:
        return False
    return match is not None and bool(int(match[1], 16) >> _SYS_ADMIN & 1)


def paths_needed(contender: Contender, found: Mapping[str, str]) -> list[str]:
    """Files and folders it cannot run without: programs and modules, wherever they lie.

    What is ours alone, such as a virtual environment below root's home, nobody else could reach otherwise.
    """
    paths = [*(place for place in found.values() if place.startswith("/")), str(SPECS)]
    if set(INTO_CACHE) & set(contender.install):
        paths.append(str(installation_of(contender)))
    return _there([*paths, *_with_our_python(paths)])


def paths_named(configuration: Configuration) -> list[str]:
    """Files and folders that its command, its environment and its configuration name: they may be reached as well."""
    texts = [*configuration.command, *configuration.env.values(), *configuration.files.values()]
    paths = [path for text in texts for path in (text, *_PATH.findall(text)) if path.startswith("/")]
    return _there([*paths, *_with_our_python(paths)])[:_MOST_NAMED]


def _with_our_python(paths: Sequence[str]) -> list[str]:
    """Our environment and what it was made from, when one of the paths is in either."""
    ours = [Path(sys.prefix), Path(sys.base_prefix)]
    return [str(prefix) for prefix in ours] if any(_is_in(path, ours) for path in paths if _exists(path)) else []


def _there(paths: Sequence[str]) -> list[str]:
    return [path for path in dict.fromkeys(paths) if _exists(path)]


def _exists(path: str) -> bool:
    try:
        return Path(path).exists()
    except (OSError, ValueError):  # a text that is far too long for a path, or holds what no path does
        return False


def _is_in(path: str, folders: Iterable[Path]) -> bool:
    places = (Path(path).absolute(), Path(path).resolve())
    roots = [root for folder in folders for root in (folder, folder.resolve())]
    return any(place.is_relative_to(root) for place in places for root in roots)
