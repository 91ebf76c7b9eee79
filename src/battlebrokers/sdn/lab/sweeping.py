"""Networks whose server was killed: found by their locks and taken down. Asked whenever a lab is built or removed."""

from __future__ import annotations

import fcntl
import os
from pathlib import Path
from typing import Final

from battlebrokers.sdn.lab.commands import Names
from battlebrokers.sdn.lab.laboratory import Laboratory

_LOCKS: Final = Path("/run")
_LONGEST_PATH: Final = 4096


def lock_of(prefix: str) -> Path:
    """Held by whoever serves a network under this prefix; in it stands the folder of that network."""
    return _LOCKS / f"battlebrokers-{prefix}.lock"


def take_down_the_dead() -> None:
    """Networks whose server was killed: their locks are there, and nobody holds them."""
    for place in sorted(_LOCKS.glob(lock_of("*").name)):
        lock = locked(place)
        if lock is None:
            continue
        try:
            prefix = place.stem.removeprefix("battlebrokers-")
            folder = Path(os.read(lock, _LONGEST_PATH).decode("utf-8", "replace"))
            if folder.is_absolute():
                Laboratory(folder / "lab", Names(prefix)).down()
                place.unlink(missing_ok=True)
        finally:
            os.close(lock)


def locked(place: Path) -> int | None:
    """The lock at that place, ours until it is closed; None when somebody has it, or has just taken it away."""
    lock = os.open(place, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        if os.fstat(lock).st_ino == place.stat().st_ino:
            return lock
    except (BlockingIOError, FileNotFoundError):
        pass
    os.close(lock)
    return None
