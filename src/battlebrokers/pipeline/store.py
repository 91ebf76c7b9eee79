"""Where a run's files lie: a local folder, or any Hadoop-style address (`hdfs://…`, `s3a://…`).

Called by the evidence reader and the graph. Lists, reads, writes and deletes whole files; knows no table.
"""

from __future__ import annotations

import abc
import shutil
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

from pyspark.sql import SparkSession

from battlebrokers.errors import RunFolderError
from battlebrokers.tables.manifest_checks import MOST_BYTES
from battlebrokers.tables.run_folder import read_small_file, write_atomically

_MOST_READ_BYTES = MOST_BYTES
"""Only manifests are read whole; tables are Spark's business."""


class Store(abc.ABC):
    """The files under one address; all names are relative to it."""

    def __init__(self, address: str) -> None:
        self.address = address

    def locate(self, name: str) -> str:
        """The full address of a file or folder, as Spark wants it."""
        return f"{self.address.rstrip('/')}/{name}"

    @abc.abstractmethod
    def read(self, name: str) -> bytes | None:
        """A file's content; None if it does not exist."""

    @abc.abstractmethod
    def tail(self, name: str, size: int) -> bytes:
        """The last bytes of a file; fewer if it is shorter."""

    @abc.abstractmethod
    def write(self, name: str, content: bytes) -> None:
        """Replace a file."""

    @abc.abstractmethod
    def segments(self, name: str) -> list[str]:
        """The names of the Parquet files of a folder, sorted; empty if there is no such folder."""

    @abc.abstractmethod
    def delete(self, name: str) -> None:
        """Remove a folder with everything in it, if it is there."""


class LocalStore(Store):
    """A folder of this machine."""

    def __init__(self, path: Path) -> None:
        super().__init__(path.absolute().as_posix())
        self.path = path.absolute()

    def locate(self, name: str) -> str:
        """The absolute `file:` address, so that a cluster's default file system does not matter."""
        return (self.path / name).as_uri()

    def read(self, name: str) -> bytes | None:
        """A file's content; None if it does not exist."""
        try:
            return read_small_file(self.path / name, _MOST_READ_BYTES)
        except (FileNotFoundError, NotADirectoryError):
            return None
        except OSError as error:
            raise RunFolderError(f"{self.path / name} cannot be read: {error.strerror}") from error

    def tail(self, name: str, size: int) -> bytes:
        """The last bytes of a file; fewer if it is shorter."""
        return (self.path / name).read_bytes()[-size:]

    def write(self, name: str, content: bytes) -> None:
        """Replace a file in one step."""
        write_atomically(self.path / name, content)

    def segments(self, name: str) -> list[str]:
        """The names of the Parquet files of a folder, sorted."""
        folder = self.path / name
        if not folder.is_dir():
            return []
        return sorted(f"{name}/{entry.name}" for entry in folder.iterdir() if _is_segment(entry.name))

    def delete(self, name: str) -> None:
        """Remove a folder with everything in it, if it is there."""
        shutil.rmtree(self.path / name, ignore_errors=True)


class HadoopStore(Store):
    """A folder on any file system Hadoop knows; needs the running session's JVM."""

    def __init__(self, address: str, spark: SparkSession) -> None:
        super().__init__(address)
        self._jvm: Any = spark._jvm  # noqa: SLF001 - PySpark offers no public door to Hadoop's file systems
        self._conf: Any = spark._jsparkSession.sessionState().newHadoopConf()  # noqa: SLF001

    def _path(self, name: str) -> Any:
        return self._jvm.org.apache.hadoop.fs.Path(self.locate(name))

    def _files(self, path: Any) -> Any:
        return path.getFileSystem(self._conf)

    def read(self, name: str) -> bytes | None:
        """A file's content; None if it does not exist."""
        path = self._path(name)
        files = self._files(path)
        if not files.exists(path):
            return None
        if files.getFileStatus(path).getLen() > _MOST_READ_BYTES:
            raise RunFolderError(f"{self.locate(name)} cannot be read: it is larger than {_MOST_READ_BYTES} bytes")
        stream = files.open(path)
        try:
            return bytes(self._jvm.org.apache.commons.io.IOUtils.toByteArray(stream))
        finally:
            stream.close()

    def tail(self, name: str, size: int) -> bytes:
        """The last bytes of a file; fewer if it is shorter."""
        path = self._path(name)
        files = self._files(path)
        length = files.getFileStatus(path).getLen()
        stream = files.open(path)
        try:
            stream.seek(max(0, length - size))
            return bytes(self._jvm.org.apache.commons.io.IOUtils.toByteArray(stream))
        finally:
            stream.close()

    def write(self, name: str, content: bytes) -> None:
        """Replace a file."""
        path = self._path(name)
        stream = self._files(path).create(path, True)
        try:
            stream.write(bytearray(content))
        finally:
            stream.close()

    def segments(self, name: str) -> list[str]:
        """The names of the Parquet files of a folder, sorted."""
        path = self._path(name)
        files = self._files(path)
        if not files.exists(path):
            return []
        names = [status.getPath().getName() for status in files.listStatus(path)]
        return sorted(f"{name}/{found}" for found in names if _is_segment(found))

    def delete(self, name: str) -> None:
        """Remove a folder with everything in it, if it is there."""
        path = self._path(name)
        self._files(path).delete(path, True)


def open_store(address: str | Path, spark: SparkSession) -> Store:
    """The store for a path or address: plain paths and `file:` are local, everything else is Hadoop's."""
    text = str(address)
    parts = urlsplit(text)
    if parts.scheme == "file":
        return LocalStore(Path(unquote(parts.path)))
    if len(parts.scheme) > 1:
        return HadoopStore(text, spark)
    return LocalStore(Path(text))


def _is_segment(name: str) -> bool:
    """Whether a file is finished evidence: writers keep theirs hidden until it is whole."""
    return name.endswith(".parquet") and not name.startswith((".", "_"))
