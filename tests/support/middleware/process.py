"""Starts a contract server as a process of its own and ends it again; used by tests that speak to one."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

TESTS = Path(__file__).parents[2]


@contextmanager
def contract_server(name: str, **ports: int) -> Iterator[dict[str, int]]:
    """Its ports by name; `ports` asks for certain ones."""
    command = [sys.executable, "-m", f"support.middleware.{name}"]
    for port, number in ports.items():
        command += [f"--{port}", str(number)]
    environment = os.environ | {"PYTHONPATH": str(TESTS)}
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment)
    assert process.stdout is not None
    try:
        line = process.stdout.readline()
        assert line, f"the contract server for {name} did not start (exit code {process.wait(60)})"
        yield json.loads(line)
    finally:
        process.terminate()
        try:
            process.wait(20)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        process.stdout.close()
