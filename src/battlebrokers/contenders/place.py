"""Where one start of a contender lives: its folder, its data, its ports, its logs.

Made and closed by `lifecycle`. Configuration and logs stay in the folder as evidence; data and ports are given back.
"""

from __future__ import annotations

import contextlib
import getpass
import os
import re
import shutil
import tempfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType

from battlebrokers import leftovers
from battlebrokers.contenders.account import Account, reaches
from battlebrokers.contenders.configuration import Configuration
from battlebrokers.contenders.confined import end_of_file, files_inside, is_file_inside, remove_inside, write_inside
from battlebrokers.contenders.path_checks import OUTPUT
from battlebrokers.contenders.ports import HeldPorts
from battlebrokers.contenders.process import KeptProcess
from battlebrokers.contenders.reach import paths_named
from battlebrokers.contenders.reader import SPECS
from battlebrokers.contenders.spec import Stop
from battlebrokers.errors import ContenderError
from battlebrokers.namespaces import NAMED
from battlebrokers.scratch import Scratch
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
        account: Account | None = None,
    ) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.folder = self._kept = folder.resolve()
        self.as_root = ""
        """Why it runs as root although an account was given; empty when it does not."""
        try:
            if account is not None:
                os.chown(self.folder, *account.owner)
        except OSError as error:  # root, but without the right to be anybody else
            account, self.as_root = None, f"{error.strerror}: chown"
        self.account = account
        self.host = host
        self.output = self.folder / OUTPUT
        self._log_globs = log_globs
        for log in self.log_paths():
            remove_inside(self._kept, log)  # what an earlier try complained about is not this one's
        self._alias: Path | None = None
        self._scratch: Scratch | None = None
        self._data: Path | None = None
        self._forget: Callable[[], None] = lambda: None
        self.ports = HeldPorts([], host)
        try:
            self._settle()
            self.ports = HeldPorts([name for name in port_names if name not in fixed], host if held_there else LOOPBACK)
        except BaseException:  # a full disk, no free port: nothing of it may stay
            self.close()
            raise
        self.ports.numbers |= fixed

    def _settle(self) -> None:
        """Make the folders it works in."""
        account = self.account
        if account is not None and not reaches(account, self.folder):
            # It works elsewhere, and its keeper brings what it wrote; what it prints goes to the right place at once.
            elsewhere = self.folder = Path(tempfile.mkdtemp(prefix="bb-", dir=_open_to(account))).resolve()
            self._forget = leftovers.register(
                leftovers.Order.FILES, lambda _within_s: shutil.rmtree(elsewhere, ignore_errors=True)
            )
        if not _PLAIN_PATH.fullmatch(str(self.folder)):
            # shell scripts and config languages of brokers break on spaces and quotes: give them a plain name for it
            self._scratch = Scratch("bb-alias-")
            self._alias = self._scratch.path / "broker"
            self._alias.symlink_to(self.folder)
        self._data = Path(tempfile.mkdtemp(prefix="data-", dir=self.folder))
        if account is not None:
            for each in (self.folder, self._data):
                os.chown(each, *account.owner)
            if self._scratch is not None:
                self._scratch.path.chmod(0o711)

    @property
    def data(self) -> Path:
        """The folder for what it stores; gone once the place is closed."""
        assert self._data is not None
        return self._data

    def values(self) -> Mapping[str, str]:
        """The names templates use for this place."""
        root = self._alias or self.folder
        ports = {f"port.{name}": str(number) for name, number in self.ports.numbers.items()}
        data = str(root / self.data.name)
        user = self.account.name if self.account is not None else getpass.getuser()
        return {**ports, "dir": str(root), "data": data, "user": user, "specs": str(SPECS)}

    def lend(self, files: Mapping[str, str]) -> dict[str, str]:
        """The same files where its account can read them: copies among its data, gone with it."""
        if self.account is None:
            return dict(files)
        lent = {}
        for name, path in files.items():
            copy = self.data / name
            copy.write_bytes(Path(path).read_bytes())
            copy.chmod(0o400)
            os.chown(copy, *self.account.owner)
            lent[name] = str(copy)
        return lent

    def own(self, path: str) -> str:
        """A path that something else is given to read or write, once it is known not to lead out of this place."""
        resolved = Path(path).resolve()
        if not any(resolved.is_relative_to(folder) for folder in (self.folder, SPECS.resolve())):
            self.close()  # nothing will be started here
            raise ContenderError(f"{path} leads out of the folder of the run", hint=f"It is a link to {resolved}.")
        return path

    def start(self, configuration: Configuration, stop: Stop, needed: Sequence[str] = ()) -> KeptProcess:
        """Write the files and start the process, which can reach what is `needed` under any account."""
        account = self.account.owner if self.account is not None else None
        for name, text in configuration.files.items():
            write_inside(self.folder, name, text, account)
        inherited = {name: os.environ[name] for name in _PASSED_ON if name in os.environ}
        if self.account is not None:
            home = {"HOME": str(self.data), "USER": self.account.name, "LOGNAME": self.account.name}
            inherited = {name: value for name, value in inherited.items() if name != "TMPDIR"} | home
        places = [self.folder, *([self._alias] if self._alias is not None else [])]
        return KeptProcess(
            configuration.command,
            env={**inherited, **configuration.env},
            account=account,
            needed=[*map(str, places), *needed],
            named=paths_named(configuration) if account is not None else (),
            bring_to=self._kept if self._kept != self.folder else None,
            namespace=str(NAMED / configuration.namespace) if configuration.namespace else "",
            cwd=self.folder,
            output=self.output,
            stop_signal=stop.number,
            stop_within_s=stop.within_s,
        )

    def log_paths(self) -> list[Path]:
        """The log files there are: its own, then what it printed."""
        own = [path for path in files_inside(self._where(), self._log_globs) if path != self.output]
        return [*own, self.output] if is_file_inside(self._kept, self.output) else own

    def _where(self) -> Path:
        """Where its files are: once it has ended, they are where they are kept."""
        return self.folder if self.folder.is_dir() else self._kept

    def last_lines(self, count: int) -> list[str]:
        """The end of its logs, without empty lines."""
        lines: list[str] = []
        for path in self.log_paths():
            with contextlib.suppress(OSError):
                text = end_of_file(self._kept if path == self.output else self._where(), path, _TAIL_BYTES)
                lines += [line for line in text.decode(errors="replace").splitlines() if line.strip()]
        return [visible(masked_document(line)) for line in lines[-count:]]

    def close(self) -> None:
        """Give back ports and disk. May be called twice."""
        self.ports.release()
        if self._data is not None:
            shutil.rmtree(self._data, ignore_errors=True)
        if self.folder != self._kept:
            shutil.rmtree(self.folder, ignore_errors=True)
            self.folder = self._kept
        self._forget()
        if self._scratch is not None:
            self._scratch.close()


def _open_to(account: Account) -> str | None:
    """The folder for temporary files, else the system's if that one is shut to an account."""
    return None if reaches(account, Path(tempfile.gettempdir()) / "any") else "/tmp"  # noqa: S108
