"""A real CoAP server for tests: libcoap's, which makes an observable resource of every path that is PUT."""

from __future__ import annotations

import contextlib
import shutil
import socket
import subprocess
import time
from collections.abc import Iterator

import pytest

from support.ports import free_port

PROGRAM = "coap-server-notls"
WITHIN_S = 60.0


@contextlib.contextmanager
def coap_server(*arguments: str) -> Iterator[int]:
    """Yields its port; skips where it is not installed."""
    program = shutil.which(PROGRAM)
    if program is None:
        pytest.skip(f"{PROGRAM} is missing (apt-get install libcoap3-bin)")
    port = free_port()
    command = [program, "-A", "127.0.0.1", "-p", str(port), "-d", "1000", "-v", "0", *arguments]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        _wait(port, process)
        yield port
    finally:
        process.terminate()
        process.wait(60)


def _wait(port: int, process: subprocess.Popen[bytes]) -> None:
    """Ping it (an empty confirmable message) until it answers."""
    deadline = time.monotonic() + WITHIN_S
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        probe.connect(("127.0.0.1", port))
        probe.settimeout(0.1)
        while True:
            assert process.poll() is None, "the CoAP server has ended"
            assert time.monotonic() < deadline, "the CoAP server does not answer"
            with contextlib.suppress(OSError):
                probe.send(b"\x40\x00\x12\x34")
                if probe.recv(100)[0] >> 4 & 3 == 3:
                    return
