"""What is known of the switch behind a channel: what it said of itself, and what was counted. Values only."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

from battlebrokers.sdn.core.broker import Skills
from battlebrokers.sdn.core.instructions import Tables

_NO_SERIAL: Final = "None"
"""What Open vSwitch says when nobody gave it one."""


def serial_number(said: bytes) -> str:
    """The serial number a switch told; empty where it has none."""
    serial = said.decode("utf-8", "replace").strip()
    return "" if serial == _NO_SERIAL else serial


@dataclass(frozen=True, slots=True)
class Introduction:
    """What a switch says of itself when it comes."""

    switch: int
    ports: frozenset[int]
    names: dict[int, str]
    tables: Tables
    skills: Skills
    description: str
    serial: str = ""
    """Empty where it has none."""


@dataclass(slots=True)
class Counts:
    """What one channel has seen."""

    packet_ins: int = 0
    packet_outs: int = 0
    errors: int = 0
    malformed: int = 0
    unsent: int = 0
    """Frames for a switch that did not keep up."""
    reasons: list[str] = field(default_factory=list)
    """The first errors, as the switch put them."""
