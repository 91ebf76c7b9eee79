"""A network namespace with a way to here, for tests with root."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager

import pytest


@contextmanager
def network_namespace() -> Iterator[tuple[str, str, str]]:
    """Its name, its address, our end of the veth that leads to it; skips where there are no namespaces."""
    name, ours = f"bbt{os.getpid()}", f"bbv{os.getpid()}"[:15]
    second = os.getpid() % 250 + 1
    setup = [
        f"ip netns add {name}",
        f"ip link add {ours} type veth peer name eth0 netns {name}",
        f"ip addr add 10.213.{second}.1/24 dev {ours}",
        f"ip link set {ours} up",
        f"ip -n {name} addr add 10.213.{second}.2/24 dev eth0",
        f"ip -n {name} link set eth0 up",
        f"ip -n {name} link set lo up",
    ]
    try:
        for line in setup:
            made = subprocess.run(line.split(), capture_output=True, text=True, check=False)
            if made.returncode:
                pytest.skip(f"no network namespaces here: {line}: {made.stderr.strip()}")
        yield name, f"10.213.{second}.2", ours
    finally:
        subprocess.run(["ip", "link", "del", ours], capture_output=True, check=False)
        subprocess.run(["ip", "netns", "del", name], capture_output=True, check=False)
