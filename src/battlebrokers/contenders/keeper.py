"""The keeper: a tiny process that starts one broker, outlives nobody, and leaves nothing behind.

Run as a script by `process` with the standard library only. It ends the broker and everything the broker started
when it is told to, when its standard input closes, or when the process that started it is gone, killed or not.

Why not PR_SET_PDEATHSIG alone: that signal follows the *thread* that started the child (ours may be a short-lived one),
reaches no grandchild and no daemon (RabbitMQ's epmd), and cannot be graceful. The keeper is the broker's parent and the
sub-reaper of all its orphans; only against its own sudden death it ties the broker to itself with PR_SET_PDEATHSIG.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import json
import os
import resource
import select
import shutil
import signal
import stat
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

PR_SET_PDEATHSIG = 1
PR_SET_CHILD_SUBREAPER = 36
PR_SET_NO_NEW_PRIVS = 38
CLONE_NEWNS, CLONE_NEWNET = 0x00020000, 0x40000000
MS_NOSUID, MS_NODEV, MS_BIND, MS_REC, MS_PRIVATE = 2, 4, 4096, 16384, 1 << 18
PARENT_CHECK_S = 1.0
LEFTOVERS_S = 2.0
HURRY_S = 1.0
"""How long a broker has when our user wants everything to end at once."""
ASK_AGAIN_S = 0.15
"""A server of ours that hears the signal a second time skips what takes long, and still removes its network."""
OPEN_FILES_WANTED = 200_000
"""Enough for any load here; some brokers size their tables by this limit, so it is not raised without end."""

ON_LINUX = sys.platform.startswith("linux")


def _prctl(option: int, value: int) -> None:
    if ON_LINUX:
        ctypes.CDLL(None, use_errno=True).prctl(option, value, 0, 0, 0)


def _call(name: str, *arguments: Any) -> None:
    """A system call that returns nothing; raises OSError."""
    if getattr(ctypes.CDLL(None, use_errno=True), name)(*arguments):
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number), name)


def _become(order: dict[str, Any]) -> None:
    """In a child: enter the broker's network namespace and become the account it runs under; raises OSError."""
    if order["namespace"]:
        place = os.open(order["namespace"], os.O_RDONLY | os.O_CLOEXEC)
        _call("setns", place, CLONE_NEWNET)
        os.close(place)
    account = order["account"]
    if not account:
        return
    user, group = account
    _uncover([*order["needed"], *order["named"]], user, group)
    os.setgroups([])
    os.setgid(group)
    os.setuid(user)
    _prctl(PR_SET_NO_NEW_PRIVS, 1)
    os.chdir(order["cwd"])
    for path in order["needed"]:
        enough = (os.R_OK | os.X_OK,) if Path(path).is_dir() else (os.R_OK, os.X_OK)
        if not any(os.access(path, right) for right in enough):
            raise PermissionError(errno.EACCES, "it may not read", path)


def _uncover(paths: list[str], user: int, group: int) -> None:
    """Let an account reach these paths, and nothing else, in folders it may not enter, such as root's home.

    Seen by this process alone: in a mount namespace of its own, an empty folder with these paths in it covers each of
    those folders.
    """
    covered: dict[Path, set[Path]] = {}
    for path in map(Path, paths):
        for place in {path.absolute(), path.resolve()}:
            shut = shut_folder(place, user, group)
            if shut is not None:
                covered.setdefault(shut.resolve(), set()).add(shut.resolve() / place.relative_to(shut))
    if not covered:
        return
    _call("unshare", CLONE_NEWNS)
    _call("mount", None, b"/", None, MS_REC | MS_PRIVATE, None)
    mask = os.umask(0o022)
    for shut, places in covered.items():
        sources = [(place, os.open(place, os.O_PATH | os.O_CLOEXEC)) for place in sorted(places)]
        _call("mount", b"tmpfs", bytes(shut), b"tmpfs", MS_NOSUID | MS_NODEV, b"mode=755,size=1m")
        for place, source in sources:
            if not os.path.lexists(place):  # else what contains it is there already
                _bind(Path(f"/proc/self/fd/{source}"), place)
            os.close(source)
    os.umask(mask)


def _bind(source: Path, place: Path) -> None:
    if source.is_dir():
        place.mkdir(parents=True)
    else:
        place.parent.mkdir(parents=True, exist_ok=True)
        place.touch()
    _call("mount", bytes(source), bytes(place), None, MS_BIND | MS_REC, None)


def shut_folder(path: Path, user: int, group: int) -> Path | None:
    """The first folder on the way to a path that the account may not enter; None when it may enter all."""
    for folder in reversed(path.parents):
        about = folder.stat()
        bits = about.st_mode >> (6 if about.st_uid == user else 3 if about.st_gid == group else 0)
        if not bits & stat.S_IXOTH:
            return folder
    return None


def _why_not(order: dict[str, Any]) -> str:
    """Why the broker cannot run under its account here, tried by a child that ends at once; empty when it can."""
    read, write = os.pipe()
    child = os.fork()
    if not child:
        told = ""
        try:
            _become(order)
        except OSError as error:
            told = f"{error.strerror}: {error.filename}"
        except BaseException as error:  # noqa: BLE001 - this child may not go on in any case
            told = repr(error)
        os.write(write, told.encode()[:2000])
        os._exit(0)
    os.close(write)
    with open(read, "rb") as answer:  # noqa: PTH123 - a descriptor
        told = answer.read().decode(errors="replace")
    os.waitpid(child, 0)
    return told


def _tie_to(keeper: int) -> None:
    """In the child, before the broker's program: die with the keeper, and may open as many files as allowed."""
    _prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != keeper:
        os._exit(1)
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = OPEN_FILES_WANTED if hard == resource.RLIM_INFINITY else min(hard, OPEN_FILES_WANTED)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))


def _children() -> list[int]:
    """Our direct children, adopted orphans included; those we have not reaped cannot be anybody else."""
    found = []
    for entry in Path("/proc").iterdir() if ON_LINUX else []:
        if entry.name.isdigit():
            with contextlib.suppress(OSError, ValueError, IndexError):
                after_name = (entry / "stat").read_text(errors="replace").rpartition(")")[2].split()
                if int(after_name[1]) == os.getpid():
                    found.append(int(entry.name))
    return found


def _say(**facts: Any) -> None:
    with contextlib.suppress(OSError):
        os.write(1, json.dumps(facts).encode() + b"\n")


class Keeper:
    """One broker process, from its start until nothing of it is left."""

    def __init__(self, order: dict[str, Any]) -> None:
        self.order = order
        self.main = 0
        self.gone = False
        self.give_up_at: float | None = None
        self.ask_again_at: float | None = None
        self.hurried = False

    def start(self) -> None:
        """Start the broker in a session of its own, so that the terminal's Ctrl-C does not reach it."""
        keeper = os.getpid()
        order = self.order
        if order["account"] and (why := _why_not(order)):
            order["account"] = None
            _say(as_root=why)

        def before_its_program() -> None:
            _become(order)
            _tie_to(keeper)  # in this order: who becomes another is tied to nobody

        how = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
        with open(os.open(order["output"], how, 0o644), "ab") as output:  # noqa: PTH123 - a plain descriptor will do
            broker = subprocess.Popen(
                self.order["command"],
                cwd=self.order["cwd"],
                env=self.order["env"],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
                preexec_fn=before_its_program,  # safe: this process has one thread
            )
        self.main = broker.pid
        broker.returncode = 0  # reaped by us, not by subprocess
        _say(pid=self.main)

    def reap(self) -> None:
        """Collect who has ended, and tell when it is the broker itself."""
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                self.gone = True
                return
            if pid == 0:
                return
            if pid == self.main:
                self.gone = True
                _say(exit=os.waitstatus_to_exitcode(status))

    def ask_to_stop(self) -> None:
        """Send the broker's own stop signal, once; a frozen broker is thawed so that it can hear it."""
        if self.give_up_at is None:
            self.give_up_at = time.monotonic() + self.order["stop_within_s"]
            self._signal()

    def hurry(self) -> None:
        """Ask once more, and allow it a second at most."""
        self.hurried = True
        asked_before = self.give_up_at is not None
        now = time.monotonic()
        self.give_up_at = min(self.give_up_at or now + HURRY_S, now + HURRY_S)
        self._signal()
        self.ask_again_at = None if asked_before else now + ASK_AGAIN_S

    def _signal(self) -> None:
        for number in (self.order["stop_signal"], signal.SIGCONT):
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.main, number)

    def clear(self, *, at_once: bool) -> None:
        """End whoever is left: SIGTERM first, SIGKILL after a moment, until nobody is."""
        if not ON_LINUX:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(self.main, signal.SIGKILL)
        asked: set[int] = set()
        kill_at = time.monotonic() + (0.0 if at_once else LEFTOVERS_S)
        end_at = kill_at + 5 * LEFTOVERS_S
        while (left := _children()) and time.monotonic() < end_at:
            killing = time.monotonic() >= kill_at
            for pid in left:
                if killing or pid not in asked:
                    asked.add(pid)
                    with contextlib.suppress(ProcessLookupError):
                        os.kill(pid, signal.SIGKILL if killing else signal.SIGTERM)
            time.sleep(0.005)
            self.reap()

    def keep(self) -> None:
        """Wait for the broker's end or for a reason to end it."""
        wake, wake_write = os.pipe()
        os.set_blocking(wake_write, False)
        signal.set_wakeup_fd(wake_write, warn_on_full_buffer=False)
        stopping = False

        def stop(_number: int, _frame: object) -> None:
            nonlocal stopping
            stopping = True

        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            signal.signal(number, stop)
        signal.signal(signal.SIGCHLD, lambda _number, _frame: None)
        self.start()
        watched = [0, wake]
        while True:
            self.reap()
            if self.gone:
                self.clear(at_once=self.hurried)
                return
            timeout_s = PARENT_CHECK_S
            if stopping or os.getppid() != self.order["parent"]:
                self.ask_to_stop()
            if self.give_up_at is not None:
                left_s = self.give_up_at - time.monotonic()
                if left_s <= 0:
                    self.clear(at_once=True)
                    continue
                timeout_s = min(timeout_s, left_s)
            if self.ask_again_at is not None:
                if time.monotonic() >= self.ask_again_at:
                    self.ask_again_at = None
                    self._signal()
                else:
                    timeout_s = min(timeout_s, ASK_AGAIN_S)
            ready, _, _ = select.select(watched, [], [], timeout_s)
            if wake in ready:
                os.read(wake, 4096)
            if 0 in ready:
                said = os.read(0, 4096)
                if b"kill" in said:
                    self.give_up_at = 0.0
                elif b"hurry" in said:
                    self.hurry()
                stopping = True
                if not said:
                    watched.remove(0)

    def bring_files(self) -> None:
        """Move what it wrote elsewhere to where it is kept, also when we alone are left; links stay links."""
        if self.order["bring_to"]:
            here, there = self.order["cwd"], self.order["bring_to"]
            with contextlib.suppress(OSError, shutil.Error):
                shutil.copytree(here, there, symlinks=True, ignore=_left_behind, dirs_exist_ok=True)
            shutil.rmtree(here, ignore_errors=True)


def _left_behind(folder: str, names: list[str]) -> list[str]:
    """What is not kept: data, and sockets and pipes, which cannot be copied."""
    return [name for name in names if name.startswith("data-") or not _is_kept(Path(folder, name))]


def _is_kept(path: Path) -> bool:
    try:
        kind = path.lstat().st_mode
    except OSError:
        return False
    return stat.S_ISREG(kind) or stat.S_ISDIR(kind) or stat.S_ISLNK(kind)


def main() -> None:
    """Keep the broker described in the first line of standard input (JSON)."""
    _prctl(PR_SET_CHILD_SUBREAPER, 1)
    line = b""
    while not line.endswith(b"\n"):
        said = os.read(0, 1)  # not one byte more: what follows are orders
        if not said:
            return
        line += said
    keeper = Keeper(json.loads(line))
    try:
        try:
            keeper.keep()
        finally:
            keeper.bring_files()
    except OSError as error:
        _say(error=f"{error.strerror or error}: {error.filename or keeper.order['command'][0]}")
    except (subprocess.SubprocessError, ValueError) as error:
        _say(error=f"{error} (network namespace {keeper.order['namespace'] or 'of ours'})")


if __name__ == "__main__":
    main()
