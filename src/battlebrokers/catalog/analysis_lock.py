"""One analysis of a run at a time: two would delete each other's half-written tables.

Called by the commands around an analysis. The lock is the system's, so it ends with its process, however that ends.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
from collections.abc import Iterator
from pathlib import Path

from battlebrokers.errors import EnvironmentNotReady

LOCK = ".analysis.lock"


@contextlib.contextmanager
def analysis_lock(folder: Path) -> Iterator[None]:
    """Hold the right to write the tables in this folder; refuse at once, naming who holds it, if somebody does.

    Where no lock file can be made, no tables can be written either; whoever writes them will say why.
    """
    path = folder / LOCK
    lock_fd = _locked(path)
    try:
        yield
    finally:
        if lock_fd is not None:
            with contextlib.suppress(OSError):
                path.unlink()  # while it is locked: who opened it meanwhile sees that it is not the file there any more
            os.close(lock_fd)


def _locked(path: Path) -> int | None:
    while True:
        try:
            lock_fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
        except OSError:
            return None
        try:
            fcntl.flock(lock_fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            holder = os.pread(lock_fd, 32, 0).decode("ascii", "replace").strip()
            os.close(lock_fd)
            raise _refusal(path.parent, holder) from None
        except OSError:  # a file system without locks
            os.close(lock_fd)
            return None
        if _is_there(path, lock_fd):
            os.ftruncate(lock_fd, 0)
            os.pwrite(lock_fd, f"{os.getpid()}\n".encode(), 0)
            return lock_fd
        os.close(lock_fd)


def _is_there(path: Path, lock_fd: int) -> bool:
    try:
        return os.path.samestat(os.fstat(lock_fd), path.stat())
    except OSError:
        return False


def _refusal(folder: Path, holder: str) -> EnvironmentNotReady:
    known = holder.isdigit()
    who = f"process {holder}" if known else "another process"
    how = f"`kill {holder}` ends it; what was recorded is safe" if known else "look for another `bb` on it"
    return EnvironmentNotReady(f"{folder} is being analysed by {who}", hint=f"Wait until it is done, or {how}.")
