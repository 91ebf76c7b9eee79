"""A network of one's own for rates on loopback: a namespace with nothing but `lo`, and the kernel's usual TCP in it.

Used by `engine`. The host's TCP settings would be measured otherwise: with `bbr`, for one, a broker pays a timer
interrupt for almost every segment it sends. All sides of a comparison are inside; without root it is the host's own.
"""

from __future__ import annotations

import ctypes
import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

_NEW_NETWORK = 0x40000000
CONGESTION_CONTROL = Path("/proc/sys/net/ipv4/tcp_congestion_control")
"""Of whatever network the reader is in."""
_USUAL = ("cubic", "reno")
"""The first that is allowed: a namespace may choose only what the host lets everybody use, as it always does reno."""


@contextmanager
def own_network() -> Iterator[str]:
    """Everything this thread and its children do inside the block happens there; yields its name for people."""
    libc = ctypes.CDLL(None, use_errno=True)
    home = os.open("/proc/thread-self/ns/net", os.O_RDONLY)
    try:
        if os.geteuid() or libc.unshare(_NEW_NETWORK):
            yield f"the host's network, TCP {CONGESTION_CONTROL.read_text().strip()}"
            return
        try:
            subprocess.run(["ip", "link", "set", "lo", "up"], check=True)
            yield f"a network namespace, TCP {_choose()}"
        finally:
            libc.setns(home, _NEW_NETWORK)
    finally:
        os.close(home)


def _choose() -> str:
    for name in _USUAL:
        with suppress(OSError):
            CONGESTION_CONTROL.write_text(name)
            return name
    return CONGESTION_CONTROL.read_text().strip()
