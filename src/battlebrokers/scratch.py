"""Scratch folders that do not outlive their owners: each is locked by whoever uses it.

Called wherever a temporary folder is needed. A process that was killed cannot tidy up, but the system drops its lock:
the next start removes such folders. Process ids would not do, for containers that share a disk count them apart.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import tempfile
from pathlib import Path
from types import TracebackType

from battlebrokers import leftovers

_LOCK = "lock"


class Scratch:
    """A folder for temporary files, ours as long as a process holds `lock_fd` open."""

    def __init__(self, prefix: str) -> None:
        sweep(prefix)
        self.path = Path(tempfile.mkdtemp(prefix=prefix))
        # Locked before it gets its name: nobody ever sees it free.
        draft = self.path / f"{_LOCK}.draft"
        self.lock_fd = os.open(draft, os.O_RDWR | os.O_CREAT, 0o600)
        fcntl.flock(self.lock_fd, fcntl.LOCK_EX)
        draft.rename(self.path / _LOCK)
        self._forget = leftovers.register(leftovers.Order.FILES, lambda _within_s: self._remove())

    def _remove(self) -> None:
        _remove(self.path)

    def close(self) -> None:
        """Remove it; may be called twice."""
        self._remove()
        self._forget()
        if self.lock_fd >= 0:
            os.close(self.lock_fd)
            self.lock_fd = -1

    def __enter__(self) -> Path:
        return self.path

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def sweep(prefix: str) -> None:
    """Remove the folders of this name whose owners are dead; never one of another user, nor one without a lock."""
    for folder in Path(tempfile.gettempdir()).glob(f"{prefix}*"):
        with contextlib.suppress(OSError):
            if folder.is_symlink() or folder.stat().st_uid != os.geteuid():
                continue
            lock_fd = os.open(folder / _LOCK, os.O_RDWR | os.O_NOFOLLOW)
            try:
                fcntl.flock(lock_fd, fcntl.LOCK_EX | fcntl.LOCK_NB)  # refused while anybody lives who holds it
                _remove(folder)
            finally:
                os.close(lock_fd)


def _remove(folder: Path) -> None:
    """The lock goes last: what a process that is just being killed still adds is found by the next sweep."""
    with contextlib.suppress(OSError):
        for entry in folder.iterdir():
            if entry.name != _LOCK:
                with contextlib.suppress(OSError):
                    shutil.rmtree(entry) if entry.is_dir() and not entry.is_symlink() else entry.unlink()
        if [entry.name for entry in folder.iterdir()] in ([], [_LOCK]):
            shutil.rmtree(folder, ignore_errors=True)
