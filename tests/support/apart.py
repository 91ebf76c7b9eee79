"""A command in network, mount and process namespaces of its own: labs under their usual names collide with nobody."""

from __future__ import annotations

import os
import subprocess
from contextlib import suppress
from pathlib import Path

import psutil

from support.runs import BB, Result

_STEPS = (
    "mount -t sysfs sysfs /sys",  # it shows the interfaces of the network it was mounted in
    "mount -t tmpfs tmpfs /run",
    "mkdir -p /run/netns",
    "ip link set lo up",
    'exec "$@"',
)
_APART = (
    "unshare",
    "--net",
    "--mount",
    "--pid",
    "--fork",
    "--kill-child",
    "--mount-proc",
    "sh",
    "-c",
    " && ".join(_STEPS),
    "apart",
)
WHAT_IS_LEFT = 'echo "left: $(ip netns list) $(ip -o link | grep -v " lo:") $(pgrep "ovs|python|bb")"'
"""A line for the end of a script: `left:` and nothing more when everything is gone again."""


def script_apart(script: str, folder: Path, timeout: float = 300) -> Result:
    """Run a shell script with `bb` on its path and everything it leaves removed."""
    done = subprocess.run(
        [*_APART, "sh", "-c", script], cwd=folder, env=_environment(), capture_output=True, text=True,
        timeout=timeout, check=False,
    )  # fmt: skip
    return Result(done.returncode, done.stdout, done.stderr)


def start_apart(script: str, folder: Path) -> subprocess.Popen[str]:
    """Begin one and leave it running."""
    return subprocess.Popen(
        [*_APART, "sh", "-c", script], cwd=folder, env=_environment(), stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
        stdin=subprocess.PIPE, text=True,
    )  # fmt: skip


def inside(process: subprocess.Popen[str], words: str) -> psutil.Process:
    """The process in there whose command line has these words."""
    for one in psutil.Process(process.pid).children(recursive=True):
        with suppress(psutil.NoSuchProcess):  # it may end between two looks
            if words in " ".join(one.cmdline()) and "sh" not in one.name():
                return one
    raise AssertionError(f"nothing with '{words}' runs in there")


def _environment() -> dict[str, str]:
    path = f"{BB.parent}:{os.environ['PATH']}:/usr/sbin:/sbin"
    return {**os.environ, "PATH": path, "NO_COLOR": "1", "COLUMNS": "160"}
