"""The account a contender runs under when we are root.

Asked by `lifecycle`. Changes nothing: `keeper` becomes that account, right before the contender's program.
"""

from __future__ import annotations

import os
import pwd
import re
from dataclasses import dataclass
from pathlib import Path

from battlebrokers.contenders.keeper import shut_folder
from battlebrokers.contenders.spec import Contender

UNPRIVILEGED = "nobody"
_SYS_ADMIN = 21


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
    """Whom its processes become; None when they stay what we are, or when there is no such account."""
    if not gives_up_root(contender):
        return None
    try:
        entry = pwd.getpwnam(UNPRIVILEGED)
    except KeyError:
        return None
    return Account(entry.pw_name, entry.pw_uid, entry.pw_gid) if entry.pw_uid else None


def gives_up_root(contender: Contender) -> bool:
    """Whether it must not be root as we are; an engine's client has to be, and what says so in its file."""
    run = contender.run
    return os.geteuid() == 0 and not (run.as_root or run.container or run.compose)


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
