"""Room on the disk of the evidence that is kept until the disk is full: for what is in memory then, and the manifest.

Held by the orchestrator. An unlinked file: whatever happens to this process, the room is given back.
"""

from __future__ import annotations

import contextlib
import os
import tempfile
from pathlib import Path
from typing import IO


class Reserve:
    """Some bytes that are free again after `release`; where they cannot be had, there is none."""

    def __init__(self, folder: Path, size_bytes: int) -> None:
        self._file: IO[bytes] | None = None
        with contextlib.suppress(OSError):
            self._file = tempfile.TemporaryFile(dir=folder)  # noqa: SIM115 - it is open as long as it is of use
            with contextlib.suppress(AttributeError):
                os.posix_fallocate(self._file.fileno(), 0, size_bytes)

    def release(self) -> None:
        """Give the room back; may be called twice."""
        if self._file is not None:
            self._file.close()
            self._file = None
