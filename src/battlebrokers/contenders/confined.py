"""Reads, writes and removes files of a contender without ever leaving its folder, whatever symbolic links lead there.

Called by `place` and `reader`. Every step of a path is opened by itself and no link is followed, so that a broker that
puts a link in the place of a file or a folder between a check and its use gains nothing.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import stat
from collections.abc import Iterator, Sequence
from pathlib import Path, PurePath, PurePosixPath

_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_FILE_MODE = 0o644
Owner = tuple[int, int]
"""User and group by number."""


def files_inside(folder: Path, patterns: Sequence[str]) -> list[Path]:
    """The regular files that match and lie in the folder once all links are followed; `folder` has none itself."""
    found: dict[Path, None] = {}
    for pattern in patterns:
        with contextlib.suppress(OSError, ValueError, NotImplementedError):
            found |= dict.fromkeys(sorted(path for path in folder.glob(pattern) if is_file_inside(folder, path)))
    return list(found)


def is_file_inside(folder: Path, path: Path) -> bool:
    """Whether this is a regular file of that folder, links followed."""
    try:
        place = path.resolve(strict=True)
        return place.is_relative_to(folder) and stat.S_ISREG(place.stat().st_mode)
    except (OSError, RuntimeError):
        return False


def remove_inside(folder: Path, path: Path) -> None:
    """Remove a file by its own name; a link goes, and what it points to stays."""
    with contextlib.suppress(OSError, ValueError):
        by_name = (path.parent.resolve() / path.name).relative_to(folder)
        with _parent_of(folder, by_name) as (place, name):
            os.unlink(name, dir_fd=place)


def write_inside(folder: Path, name: str, text: str, owner: Owner | None = None) -> None:
    """Put a text there, in place of whatever had that name."""
    with _parent_of(folder, PurePosixPath(name), make=True, owner=owner) as (place, last):
        beside = f".{secrets.token_hex(8)}.tmp"
        file = os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, _FILE_MODE, dir_fd=place)
        try:
            with open(file, "w", encoding="utf-8") as stream:  # noqa: PTH123 - a descriptor
                stream.write(text)
                if owner is not None:
                    os.fchown(stream.fileno(), *owner)
            os.replace(beside, last, src_dir_fd=place, dst_dir_fd=place)
        except BaseException:
            with contextlib.suppress(OSError):
                os.unlink(beside, dir_fd=place)
            raise


def end_of_file(folder: Path, path: Path, most_bytes: int) -> bytes:
    """The last bytes of a regular file of the folder; raises OSError when it is none, or none any more."""
    place = path.resolve(strict=True)
    with _parent_of(folder, place.relative_to(folder)) as (parent, name):
        file = os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, dir_fd=parent)
    with open(file, "rb") as stream:  # noqa: PTH123 - a descriptor
        about = os.fstat(file)
        if not stat.S_ISREG(about.st_mode):
            raise OSError(f"{path} is not a file")
        stream.seek(max(0, about.st_size - most_bytes))
        return stream.read(most_bytes)


@contextlib.contextmanager
def _parent_of(
    folder: Path, path: PurePath, *, make: bool = False, owner: Owner | None = None
) -> Iterator[tuple[int, str]]:
    """The folder of a relative path, opened step by step, and the last name; `make` makes missing folders."""
    *steps, last = path.parts
    place = os.open(folder, _FOLDER)
    try:
        for step in steps:
            if step == "..":
                raise PermissionError(1, "leads out of the folder", str(path))
            if make:
                with contextlib.suppress(FileExistsError):
                    os.mkdir(step, 0o755, dir_fd=place)
                    if owner is not None:
                        os.chown(step, *owner, dir_fd=place, follow_symlinks=False)
            inner = os.open(step, _FOLDER, dir_fd=place)
            os.close(place)
            place = inner
        yield place, last
    finally:
        os.close(place)
