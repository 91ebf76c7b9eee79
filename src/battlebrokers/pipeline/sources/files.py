"""Files a capture may lie in: on this machine, or at any address Arrow knows (`s3://…`, `hdfs://…`).

Used on the driver and in Spark's Python workers; reads from any place of a file, never all of it.
"""

from __future__ import annotations

import os
from contextlib import closing
from pathlib import Path
from types import TracebackType
from typing import Any
from urllib.parse import unquote, urlsplit


class RandomFile:
    """A file to read from; close it, or use it as a context."""

    def __init__(self, address: str) -> None:
        self._remote: Any = None
        self._descriptor = -1
        path = local_path(address)
        if path is not None:
            self._descriptor = os.open(path, os.O_RDONLY)
            self.size = os.fstat(self._descriptor).st_size
        else:
            self._remote = remote(address).open_input_file(remote_key(address))
            self.size = int(self._remote.size())

    def read(self, at: int, size: int) -> bytes:
        """Bytes [at, at + size), fewer if the file ends before."""
        if self._remote is not None:
            size = max(0, min(size, self.size - at))
            return bytes(self._remote.read_at(size, at)) if size else b""
        found = os.pread(self._descriptor, size, at)
        while len(found) < size and (more := os.pread(self._descriptor, size - len(found), at + len(found))):
            found += more
        return found

    def close(self) -> None:
        """Be done with it."""
        if self._remote is not None:
            self._remote.close()
        else:
            os.close(self._descriptor)

    def __enter__(self) -> RandomFile:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def local_path(address: str) -> str | None:
    """The path on this machine; None if the file lies elsewhere."""
    parts = urlsplit(address)
    if parts.scheme == "file":
        return unquote(parts.path)
    return None if len(parts.scheme) > 1 and "://" in address else address


def remote(address: str) -> Any:
    """The file system of an address."""
    from pyarrow.fs import FileSystem

    return FileSystem.from_uri(_arrow_address(address))[0]


def open_stream(address: str) -> Any:
    """A file to read from front to end, as Arrow's input stream."""
    from pyarrow import OSFile

    path = local_path(address)
    return closing(OSFile(path) if path is not None else remote(address).open_input_file(remote_key(address)))


def open_new(address: str) -> Any:
    """A file to write from front to end, in place of one that may be there."""
    path = local_path(address)
    if path is None:
        return closing(remote(address).open_output_stream(remote_key(address)))
    Path(path).parent.mkdir(parents=True, exist_ok=True)
    return Path(path).open("wb")


def remote_key(address: str) -> str:
    """Where in its file system an address lies."""
    from pyarrow.fs import FileSystem

    return str(FileSystem.from_uri(_arrow_address(address))[1])


def _arrow_address(address: str) -> str:
    """Hadoop's names for S3 are not Arrow's."""
    scheme, _, rest = address.partition("://")
    return f"s3://{rest}" if scheme in {"s3a", "s3n"} else address
