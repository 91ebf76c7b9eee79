"""Where one start of a contender lives: its folder, its data, its ports, its logs.

Made and closed by `lifecycle`. Configuration and logs stay in the folder as evidence; data and ports are given back.
"""

from __future__ import annotations

import getpass
import os
import re
import shutil
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import MappingProxyType

from battlebrokers.contenders.configuration import Configuration
from battlebrokers.contenders.ports import HeldPorts
from battlebrokers.contenders.process import KeptProcess
from battlebrokers.contenders.reader import SPECS
from battlebrokers.contenders.spec import Stop
from battlebrokers.secrets import masked_document
from battlebrokers.visible import visible

_PASSED_ON = ("PATH", "HOME", "USER", "LOGNAME", "LANG", "LC_ALL", "TMPDIR", "TZ", "LD_LIBRARY_PATH", "PYTHONPATH")
"""All a broker sees of our environment: stray settings must not change what is measured."""
_PLAIN_PATH = re.compile(r"[\w./+@-]+", re.ASCII)
_TAIL_BYTES = 64_000
LOOPBACK = "127.0.0.1"
"""Where free ports are looked for when the contender listens in a network of its own."""


class Place:
    """A folder with a broker in it."""

    def __init__(
        self,
        folder: Path,
        host: str,
        port_names: Sequence[str],
        log_globs: Sequence[str],
        fixed: Mapping[str, int] = MappingProxyType({}),
        *,
        held_there: bool = True,
    ) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.folder = folder.resolve()
        self.host = host
        self.output = self.folder / "output.log"
        self._log_globs = log_globs
        for log in self.log_paths():
            log.unlink(missing_ok=True)  # what an earlier try complained about is not this one's
        self._alias: Path | None = None
        if not _PLAIN_PATH.fullmatch(str(self.folder)):
            # shell scripts and config languages of brokers break on spaces and quotes: give them a plain name for it
            self._alias = Path(tempfile.mkdtemp(prefix="bb-")) / "broker"
            self._alias.symlink_to(self.folder)
        self._data = Path(tempfile.mkdtemp(prefix="data-", dir=self.folder))
        self.ports = HeldPorts([name for name in port_names if name not in fixed], host if held_there else LOOPBACK)
        self.ports.numbers |= fixed

    def values(self) -> Mapping[str, str]:
        """The names templates use for this place."""
        root = self._alias or self.folder
        ports = {f"port.{name}": str(number) for name, number in self.ports.numbers.items()}
        data = str(root / self._data.name)
        return {**ports, "dir": str(root), "data": data, "user": getpass.getuser(), "specs": str(SPECS)}

    def start(self, configuration: Configuration, stop: Stop) -> KeptProcess:
        """Write the files and start the process."""
        for name, text in configuration.files.items():
            path = self.folder / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")
        inherited = {name: os.environ[name] for name in _PASSED_ON if name in os.environ}
        return KeptProcess(
            configuration.command,
            env={**inherited, **configuration.env},
            cwd=self.folder,
            output=self.output,
            stop_signal=stop.number,
            stop_within_s=stop.within_s,
        )

    def log_paths(self) -> list[Path]:
        """The log files there are: its own, then what it printed."""
        own = [path for pattern in self._log_globs for path in sorted(self.folder.glob(pattern))]
        return [*own, self.output] if self.output.exists() else own

    def last_lines(self, count: int) -> list[str]:
        """The end of its logs, without empty lines."""
        lines: list[str] = []
        for path in self.log_paths():
            try:
                with path.open("rb") as log:
                    log.seek(max(0, path.stat().st_size - _TAIL_BYTES))
                    lines += [line for line in log.read().decode(errors="replace").splitlines() if line.strip()]
            except OSError:
                continue
        return [visible(masked_document(line)) for line in lines[-count:]]

    def close(self) -> None:
        """Give back ports and disk. May be called twice."""
        self.ports.release()
        shutil.rmtree(self._data, ignore_errors=True)
        if self._alias is not None:
            shutil.rmtree(self._alias.parent, ignore_errors=True)
