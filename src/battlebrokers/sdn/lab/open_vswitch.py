"""A private Open vSwitch: its own database and daemon in a folder, nothing of the system's touched.

Started and stopped by the lab. Where the kernel has no module for it, packets are switched in the daemon itself.
"""

from __future__ import annotations

import errno
import fcntl
import os
import shutil
import signal
import struct
import subprocess
import tempfile
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from socket import if_nameindex
from typing import Final

from battlebrokers import leftovers
from battlebrokers.errors import EnvironmentNotReady

_MODULE: Final = Path("/sys/module/openvswitch")
_SCHEMA: Final = Path("/usr/share/openvswitch/vswitch.ovsschema")
_DAEMONS: Final = ("ovs-vswitchd", "ovsdb-server")
_NEEDED: Final = (*_DAEMONS, "ovsdb-tool", "ovs-vsctl", "ip")
_FIRST: Final = ("nice", "-n", "-15")
"""Switches share no processor with hosts elsewhere: here they go first, or a busy host would cost everybody packets.
Where that is not allowed, `nice` complains and starts them all the same."""
_INSTALL: Final = "apt-get install openvswitch-switch iproute2"
_TAP: Final = "ovs-netdev"
"""The device every daemon that switches itself makes; its name cannot be chosen."""
_KERNEL_DATAPATH: Final = "ovs-system"
"""The device of the kernel's switch. There is one, and a second daemon would remove the first one's ports from it."""
_SET_INTERFACE: Final = 0x400454CA
_SET_PERSISTENT: Final = 0x400454CB
_TAP_FLAGS: Final = 0x1002
"""TUNSETIFF and TUNSETPERSIST; IFF_TAP with IFF_NO_PI."""
_END_S: Final = 10.0
_LET_GO_S: Final = 2.0
_LET_GO_AT_ONCE_S: Final = 0.3
_LOOK_S: Final = 0.02
_SYSTEM_PLACES: Final = "/usr/local/sbin:/usr/sbin:/sbin"


def search_path() -> str:
    """PATH with the places where system tools are, which not every user has in it."""
    return f"{os.environ.get('PATH', '')}:{_SYSTEM_PLACES}"


@dataclass(frozen=True, slots=True)
class Lacks:
    """What this machine has not, of what a lab needs."""

    tools: tuple[str, ...] = ()
    root_rights: bool = False
    tun: str = ""
    """Why /dev/net/tun cannot be used."""


def look() -> Lacks:
    """Find out by looking, and for the device by trying."""
    tools = tuple(tool for tool in _NEEDED if shutil.which(tool, path=search_path()) is None)
    tun = ""
    try:
        os.close(os.open("/dev/net/tun", os.O_RDWR))
    except OSError as fault:
        tun = str(fault.strerror)
    return Lacks(tools, os.geteuid() != 0, tun)


def what_is_missing() -> EnvironmentNotReady | None:
    """Why no lab can be built here: the first thing to mend."""
    lacks = look()
    if lacks.tools:
        return EnvironmentNotReady(f"{lacks.tools[0]} is not installed", hint=_INSTALL)
    if lacks.root_rights:
        return EnvironmentNotReady("network namespaces need root rights", hint="run it with sudo")
    if lacks.tun:
        return EnvironmentNotReady(f"/dev/net/tun cannot be used: {lacks.tun}", hint="a container needs it passed in")
    return None


def kernel_switches() -> bool:
    """Whether the kernel has Open vSwitch's module; else its daemon switches."""
    return _MODULE.exists()


def _load_module() -> None:
    """The module may be there and not loaded; where it is not, or not allowed, the daemon switches."""
    if not kernel_switches() and (modprobe := shutil.which("modprobe", path=search_path())):
        subprocess.run([modprobe, "--quiet", "openvswitch"], capture_output=True, check=False)


class OpenVSwitch:
    """The two daemons of one folder."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.environment = os.environ | {
            "PATH": search_path(), "OVS_RUNDIR": str(folder), "OVS_LOGDIR": str(folder), "OVS_DBDIR": str(folder),
        }  # fmt: skip

        self._kernel_is_taken = False

    @property
    def datapath(self) -> str:
        """`system` where the kernel switches for us, `netdev` where the daemon has to."""
        return "system" if kernel_switches() and not self._kernel_is_taken else "netdev"

    def start(self) -> None:
        """An empty database, and the daemons in the background."""
        _load_module()
        _remove_what_nobody_holds(_TAP)
        devices = [name for _, name in if_nameindex()]
        self._kernel_is_taken = _KERNEL_DATAPATH in devices
        if self.datapath == "netdev" and _TAP in devices:
            raise EnvironmentNotReady(
                "another Open vSwitch switches here already, and without the kernel's module there is room for one",
                hint="end the other lab (bb sdn lab down, or Ctrl-C for bb sdn serve), or use a network namespace",
            )
        folder = self._folder
        folder.mkdir(parents=True, exist_ok=True)
        database, socket = folder / "conf.db", folder / "db.sock"
        database.unlink(missing_ok=True)
        self.run("ovsdb-tool", "create", str(database), str(_SCHEMA))
        self.run("ovsdb-server", str(database), f"--remote=punix:{socket}", *self._as_daemon("ovsdb-server"))
        self.run("ovs-vsctl", "--no-wait", "--timeout=10", "init")
        # Who switches by itself does not even look at what the kernel switches for others.
        apart = ["--disable-system"] if self.datapath == "netdev" else []
        self.run(*_FIRST, "ovs-vswitchd", f"unix:{socket}", *apart, *self._as_daemon("ovs-vswitchd"))

    def stop(self) -> None:
        """End both daemons; those that were never there are no matter."""
        was_there = (self._folder / f"{_DAEMONS[0]}.pid").exists()
        for daemon in _DAEMONS:
            pid = self.pid(daemon)
            if pid is not None:
                _end(pid)
            (self._folder / f"{daemon}.pid").unlink(missing_ok=True)
        # One that was killed a moment ago may still be letting go.
        until = time.monotonic() + (_LET_GO_S if was_there else 0)
        while not _remove_what_nobody_holds(_TAP) and time.monotonic() < until:
            time.sleep(_LOOK_S)

    def kill(self, within_s: float) -> None:
        """End both daemons at once; where the kernel switches, its ports are taken from it first."""
        switching = self.pid(_DAEMONS[0])
        if switching is not None and self.datapath == "system":
            control = f"--target={self._folder / _DAEMONS[0]}.ctl"
            with suppress(OSError, subprocess.TimeoutExpired):
                subprocess.run(
                    ["ovs-appctl", control, "exit", "--cleanup"],
                    env=self.environment, capture_output=True, timeout=within_s, check=False,
                )  # fmt: skip
        for daemon in _DAEMONS:
            if (pid := self.pid(daemon)) is not None:
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            (self._folder / f"{daemon}.pid").unlink(missing_ok=True)

    def let_go(self) -> None:
        """Remove the device that a killed daemon leaves, as soon as the kernel lets go of it."""
        until = time.monotonic() + _LET_GO_AT_ONCE_S
        while not _remove_what_nobody_holds(_TAP) and time.monotonic() < until:
            time.sleep(_LOOK_S)

    def pid(self, daemon: str) -> int | None:
        """The process of a daemon of this folder; None when it does not run."""
        with suppress(OSError, ValueError):
            pid = int((self._folder / f"{daemon}.pid").read_text())
            # A number written down may have become somebody else's meanwhile.
            if daemon in (Path("/proc") / str(pid) / "cmdline").read_text():
                return pid
        return None

    def run(self, *words: str, said: str | None = None) -> str:
        """One command with this folder's environment, and something to read; its output, or why it failed."""
        if leftovers.ending.is_set():
            raise EnvironmentNotReady("interrupted: nothing is built any more")
        try:
            # A group of its own: Ctrl-C is for us, and half a command would be a failure of its own.
            done = subprocess.run(
                words, env=self.environment, input=said, capture_output=True, text=True, timeout=60, check=False,
                process_group=0,
            )  # fmt: skip
        except FileNotFoundError as fault:
            raise EnvironmentNotReady(f"{words[0]} is not installed", hint=_INSTALL) from fault
        except subprocess.TimeoutExpired as fault:
            raise EnvironmentNotReady(f"`{' '.join(words[:4])} …` does not end", hint="bb sdn lab down") from fault
        if done.returncode:
            raise EnvironmentNotReady(f"`{' '.join(words[:8])}` failed: {(done.stderr or done.stdout).strip()}")
        return done.stdout

    def _as_daemon(self, name: str) -> list[str]:
        here = self._folder / name
        return [f"--pidfile={here}.pid", f"--log-file={here}.log", f"--unixctl={here}.ctl", "--detach", "--no-chdir"]


def start_batch(lines: list[str], environment: Mapping[str, str]) -> subprocess.Popen[bytes]:
    """Several commands of `ip` in one process, which has them all and goes on when this process has ended."""
    with tempfile.TemporaryFile() as orders:
        orders.write("".join(f"{line}\n" for line in lines).encode())
        orders.seek(0)
        return subprocess.Popen(
            ["ip", "-force", "-batch", "-"], env=environment, stdin=orders, stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL, start_new_session=True,
        )  # fmt: skip


def _remove_what_nobody_holds(device: str) -> bool:
    """A daemon that was killed leaves its device behind, and no other could start; False when somebody uses it."""
    if device not in (name for _, name in if_nameindex()):
        return True
    try:
        tun = os.open("/dev/net/tun", os.O_RDWR | os.O_CLOEXEC)
    except OSError:
        return True  # Whoever has no rights removes nothing, now or later.
    try:
        fcntl.ioctl(tun, _SET_INTERFACE, struct.pack("16sH22x", device.encode(), _TAP_FLAGS))
        fcntl.ioctl(tun, _SET_PERSISTENT, 0)
    except OSError as fault:
        return fault.errno != errno.EBUSY
    finally:
        os.close(tun)
    return True


def _end(pid: int) -> None:
    for number in (signal.SIGTERM, signal.SIGKILL):
        with suppress(ProcessLookupError):
            os.kill(pid, number)
        until = time.monotonic() + _END_S
        while time.monotonic() < until:
            if _is_over(pid):
                return
            time.sleep(_LOOK_S)


def _is_over(pid: int) -> bool:
    """Whether a process has ended, buried by its parent or not: as the first process of a container we are that."""
    try:
        state = (Path("/proc") / str(pid) / "stat").read_text().rpartition(")")[2].split()[0]
    except (OSError, IndexError):
        return True
    return state == "Z"
