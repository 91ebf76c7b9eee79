"""The capture programs: which one is here, whether we may use it, how it is called and what its words mean.

Called by `bb doctor`, `bb capture` and runs that capture. Starts nothing itself.
"""

from __future__ import annotations

import os
import re
import shutil
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from battlebrokers.record.wire import Wire

ToolName = Literal["dumpcap", "tcpdump"]

WHOLE_PACKETS = 0
DEFAULT_LIMIT_BYTES = 4 << 30
SMALLEST_LIMIT_BYTES = 1_000_000
SMALLEST_SNAP_BYTES = 96
"""Ethernet with a tag, IPv6 and TCP with options."""
_FILE_BYTES = 256_000_000
"""One file of the ring, unless the limit is too small for four of them."""
_FEWEST_FILES = 4
_KERNEL_BUFFER_MIB = 64
_INSTALL = "as root: apt-get install -y --no-install-recommends tshark   (or tcpdump)"

_DUMPCAP_DROPS = re.compile(r"received/dropped on interface .*?: (\d+)/(\d+) \(pcap:(\d+)/dumpcap:(\d+)")
_DUMPCAP_FILE = re.compile(r"^File: (.+)$", re.MULTILINE)
_TCPDUMP_COUNT = re.compile(r"^(\d+) packets? captured", re.MULTILINE)
_TCPDUMP_DROPS = re.compile(r"^(\d+) packets? dropped by (?:kernel|interface)", re.MULTILINE)
_TCPDUMP_FILE_DONE = re.compile(r"^.+\.pcap\d+(?:\) failed: .*)?$", re.MULTILINE)
_TCPDUMP_UP = re.compile(r"^(?:tcpdump: )?listening on ", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class CaptureTool:
    """A capture program that is here and that we may use."""

    name: ToolName
    path: str
    settle_s: float
    """How long after a packet it lies in its file at the latest, with some margin."""


@dataclass(frozen=True, slots=True)
class NoCapture:
    """Why nothing can be captured, and the exact fix."""

    why: str
    fix: str


@dataclass(frozen=True, slots=True)
class Limits:
    """How much of each packet and how many bytes in all are kept of one service."""

    snap_bytes: int = WHOLE_PACKETS
    total_bytes: int = DEFAULT_LIMIT_BYTES

    @property
    def file_bytes(self) -> int:
        """The size of one ring file: whole megabytes."""
        wanted = min(_FILE_BYTES, self.total_bytes // _FEWEST_FILES)
        return max(wanted // 1_000_000, 1) * 1_000_000

    @property
    def files(self) -> int:
        """How many files the ring has before the oldest is replaced."""
        return max(self.total_bytes // self.file_bytes, 2)


@dataclass(frozen=True, slots=True)
class Counted:
    """What a capture program counted; None where it did not say."""

    packets: int | None
    dropped: int | None


def find_tool(*, other_namespace: bool = False) -> CaptureTool | NoCapture:
    """dumpcap, else tcpdump, if it is here and we may use it; `other_namespace` needs the right to enter one, too."""
    known: tuple[tuple[ToolName, float], ...] = (("dumpcap", 0.6), ("tcpdump", 1.5))
    here = [(name, path, settle_s) for name, settle_s in known if (path := _which(name))]
    if not here:
        return NoCapture("neither dumpcap nor tcpdump is installed", _INSTALL)
    if other_namespace and os.geteuid() != 0:
        return NoCapture("entering the network namespace of a service takes root", "run bb as root (sudo -E bb …)")
    if other_namespace and shutil.which("nsenter") is None:
        return NoCapture("nsenter is not installed", "as root: apt-get install -y --no-install-recommends util-linux")
    for name, path, settle_s in here:
        if may_capture(path):
            return CaptureTool(name, path, settle_s)
    name, path, _ = here[0]
    return NoCapture(f"{name} may not capture as {_who()}", _right(name, path))


def may_capture(path: str) -> bool:
    """Whether this program sees packets when we start it: as root, or by capabilities of its file."""
    if not os.access(path, os.X_OK):
        return False
    if not sys.platform.startswith("linux"):
        return True
    if os.geteuid() == 0:
        return _have_net_raw(Path("/proc/self/status"))
    try:
        return bool(os.getxattr(path, "security.capability"))
    except OSError:
        return False


def command(tool: CaptureTool, wire: Wire, file: Path, limits: Limits) -> list[str]:
    """The command line that captures one wire into ring files named after `file`."""
    enter = ["nsenter", f"--net={wire.namespace_path}", "--"] if wire.namespace_path else []
    if tool.name == "dumpcap":
        words = [tool.path, "-q", "-n", "-i", wire.interface, "-B", str(_KERNEL_BUFFER_MIB), "-w", str(file)]
        words += ["-b", f"filesize:{limits.file_bytes // 1000}", "-b", f"files:{limits.files}"]
        words += ["-s", str(limits.snap_bytes)] if limits.snap_bytes else []
        return [*enter, *words, *(["-f", wire.filter] if wire.filter else [])]
    words = [tool.path, "-n", "-U", "-i", wire.interface, "-B", str(_KERNEL_BUFFER_MIB << 10), "-w", str(file)]
    words += ["-C", str(limits.file_bytes // 1_000_000), "-W", str(limits.files), "-s", str(limits.snap_bytes)]
    # After each file it tells its name to a program, which else nobody learns; that it may not start one tells it, too.
    words += ["--time-stamp-precision=nano", "-z", "echo"]
    words += ["-Z", "root"] if os.geteuid() == 0 else []  # else it becomes somebody who may not write here
    return [*enter, *words, *([wire.filter] if wire.filter else [])]


def is_up(tool: CaptureTool, said: str) -> bool:
    """Whether its socket is open, its filter set and its file begun: both programs say so only then."""
    return bool((_DUMPCAP_FILE if tool.name == "dumpcap" else _TCPDUMP_UP).search(said))


def counted(tool: CaptureTool, said: str) -> Counted:
    """The counters in its last words."""
    if tool.name == "dumpcap":
        match = _DUMPCAP_DROPS.search(said)
        return Counted(int(match[1]), int(match[2])) if match else Counted(None, None)
    packets, drops = _TCPDUMP_COUNT.search(said), _TCPDUMP_DROPS.findall(said)
    return Counted(int(packets[1]) if packets else None, sum(map(int, drops)) if drops else None)


def files_begun(tool: CaptureTool, said: str) -> int:
    """How many files it has begun, replaced ones included."""
    if tool.name == "dumpcap":
        return len(_DUMPCAP_FILE.findall(said))
    return len(_TCPDUMP_FILE_DONE.findall(said)) + is_up(tool, said)


def complaint(said: str) -> str:
    """The line that says why it did not start, or ended."""
    said = _TCPDUMP_FILE_DONE.sub("", said)
    lines = [line.strip() for line in said.splitlines() if line.strip() and not line.startswith("Capturing on")]
    told = next((line for line in lines if "permission" in line.lower()), lines[0] if lines else "")
    return told.removeprefix("tcpdump: ").removeprefix("dumpcap: ")


def right_fix(tool: CaptureTool) -> str:
    """What to type when the program is here and refused."""
    return _right(tool.name, tool.path)


def _right(name: str, path: str) -> str:
    if os.geteuid() == 0:
        return "give this container the right: docker run --cap-add=NET_RAW --cap-add=NET_ADMIN"
    setcap = f"as root: setcap cap_net_raw,cap_net_admin=eip {path}"
    if name == "dumpcap" and not os.access(path, os.X_OK):
        setcap = "as root: dpkg-reconfigure wireshark-common (answer yes), usermod -aG wireshark $USER, log in again"
    return setcap


def _which(name: str) -> str | None:
    """On PATH, even if we may not execute it: that has a fix of its own."""
    folders = os.environ.get("PATH", os.defpath).split(os.pathsep)
    paths = (str(Path(folder) / name) for folder in folders if folder and (Path(folder) / name).is_file())
    return shutil.which(name) or next(paths, None)


def _have_net_raw(status: Path) -> bool:
    try:
        match = re.search(r"^CapEff:\s*([0-9a-f]+)", status.read_text(), re.MULTILINE)
    except OSError:
        return True
    return match is None or bool(int(match[1], 16) >> 13 & 1)


def _who() -> str:
    return "root here: it lacks CAP_NET_RAW" if os.geteuid() == 0 else "you"
