"""What tshark sees in captures: the judge of our own captures in tests."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path

import pytest


def require_capturing() -> None:
    """Skip with the reason unless packets can be captured here and counted with tshark."""
    from battlebrokers.record.capture_tool import NoCapture, find_tool

    found = find_tool(other_namespace=True)
    if isinstance(found, NoCapture):
        pytest.skip(f"{found.why} ({found.fix})")
    for name in ("tshark", "ip"):
        if shutil.which(name) is None:
            pytest.skip(f"{name} is not installed")


def tshark(files: Sequence[Path], shown: str, *fields: str, ports: Sequence[int] = ()) -> list[list[str]]:
    """The fields of every packet that passes the display filter; several values of one field are split at commas."""
    rows: list[list[str]] = []
    for file in files:
        words = ["tshark", "-r", str(file), "-n", "-Y", shown, "-T", "fields"]
        words += [word for port in ports for word in ("-d", f"tcp.port=={port},mqtt")]
        words += [word for field in fields for word in ("-e", field)]
        told = subprocess.run(words, check=True, capture_output=True, text=True).stdout
        rows += [line.split("\t") for line in told.splitlines()]
    return rows
