"""Where things lie in a run folder. Knows names, reads and writes the manifest, computes nothing."""

from __future__ import annotations

import errno
import os
import re
import secrets
import stat
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

import msgspec

from battlebrokers.errors import RunFolderError
from battlebrokers.secrets import bare_url
from battlebrokers.tables.base import Table
from battlebrokers.tables.manifest import Manifest
from battlebrokers.tables.manifest_checks import MOST_BYTES, decode_manifest

_ID_LETTERS = "abcdefghjkmnpqrstvwxyz0123456789"
"""Base 32 without i, l, o and u: nothing to misread, no accidental words."""
_ID_LENGTH = 5
PRIVATE = 0o700
"""Evidence tells what went over the wire: run folders are their owner's alone."""


@dataclass(frozen=True, slots=True)
class RunFolder:
    """One run on disk."""

    path: Path

    @property
    def run_id(self) -> str:
        """The run's id: the last part of the folder's name."""
        return self.path.name.rsplit("-", 1)[-1]

    @property
    def manifest_path(self) -> Path:
        """The manifest's file."""
        return self.path / "manifest.json"

    @property
    def summary_path(self) -> Path:
        """The summary's file: the object `bb run --json` prints."""
        return self.path / "summary.json"

    @property
    def findings_path(self) -> Path:
        """The findings' file."""
        return self.path / "findings.json"

    @property
    def report_path(self) -> Path:
        """The self-contained HTML report."""
        return self.path / "report.html"

    @property
    def decoded_summary_path(self) -> Path:
        """What decoded captures add up to; written last, so without it their tables are not whole."""
        return self.path / "decoded" / "summary.json"

    @property
    def logs(self) -> Path:
        """Where service logs and worker logs are kept."""
        return self.path / "recorded" / "logs"

    @property
    def captures(self) -> Path:
        """Where captures are kept; the manifest tells whose they are."""
        return self.path / "recorded" / "captures"

    def table(self, table: Table) -> Path:
        """The folder of a table's Parquet files."""
        return self.path / table.folder

    def read_manifest(self) -> Manifest:
        """The manifest, or a clear error."""
        try:
            raw = read_small_file(self.manifest_path, MOST_BYTES)
        except (FileNotFoundError, NotADirectoryError):
            raise RunFolderError(
                f"{self.path} is not a run folder: it has no manifest.json", hint="`bb list` shows the runs here."
            ) from None
        except OSError as error:
            raise RunFolderError(f"{self.manifest_path} cannot be read: {error.strerror}") from error
        return decode_manifest(raw, str(self.manifest_path)).masked()

    def write_manifest(self, manifest: Manifest) -> None:
        """Replace the manifest in one step, so that no reader ever sees half of it."""
        write_atomically(self.manifest_path, msgspec.json.format(msgspec.json.encode(manifest.masked()), indent=2))


def new_run_folder(runs: Path, scenario: str, contender: str, now: datetime) -> RunFolder:
    """Create `<time>-<scenario>-<contender>-<id>` under `runs`, for nobody else to read; its id is new among all there."""
    runs.mkdir(parents=True, exist_ok=True)
    taken = {path.name.rsplit("-", 1)[-1] for path in runs.iterdir()}
    while (run_id := "".join(secrets.choice(_ID_LETTERS) for _ in range(_ID_LENGTH))) in taken:
        pass
    path = runs / f"{now:%Y%m%dT%H%M%S}-{_slug(scenario)}-{_slug(bare_url(contender))}-{run_id}"
    path.mkdir(mode=PRIVATE)
    path.chmod(PRIVATE)  # whatever the umask took away
    return RunFolder(path)


def _slug(name: str) -> str:
    """A name that is safe as part of a folder's name on every file system."""
    return re.sub(r"[^a-z0-9.]+", "-", name.lower()).strip("-.")[:40] or "unnamed"


def read_small_file(path: Path, most_bytes: int) -> bytes:
    """A file's content; an OSError for one that is larger, or that is no ordinary file and might never end."""
    # Opening a named pipe would wait for a writer.
    with os.fdopen(os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC), "rb") as file:
        if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
            raise OSError(errno.EINVAL, "it is no ordinary file")
        content = file.read(most_bytes + 1)
    if len(content) > most_bytes:
        raise OSError(errno.EFBIG, f"it is larger than {most_bytes} bytes")
    return content


def write_atomically(path: Path, content: bytes) -> None:
    """Write beside, then rename."""
    path.parent.mkdir(parents=True, exist_ok=True)
    beside = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        beside.write_bytes(content)
        beside.replace(path)
    finally:
        beside.unlink(missing_ok=True)
