"""A shipped contender file with the ports of a contract server; used by tests that speak a dialect to one."""

from __future__ import annotations

import re
from pathlib import Path

from battlebrokers.contenders.reader import SPECS


def described(spec: str, ports: dict[str, int], folder: Path) -> Path:
    """The shipped file with other ports."""
    text = (SPECS / f"{spec}.yaml").read_text(encoding="utf-8")
    numbers = ", ".join(f"{name}: {number}" for name, number in ports.items())
    changed, times = re.subn(r"^ports: \{.*\}$", f"ports: {{{numbers}}}", text, flags=re.MULTILINE)
    assert times == 1
    path = folder / f"{spec}.yaml"
    path.write_text(changed, encoding="utf-8")
    return path
