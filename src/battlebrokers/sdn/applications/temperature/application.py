"""The temperature application: who does what when something is due or heard. Pure: time and datagrams come in.

The sensor publishes readings, two monitors average them, the main one triggers the actuators. `conduct` gives it a
network, `picture` draws what happened. It opens no socket and reads no clock.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from battlebrokers.sdn.applications.temperature.parts import Actuator, MovingAverage, Room, Trigger

SENSOR: Final = "sensor"
MAIN_MONITOR: Final = "monitor1"
WINDOWS: Final = {MAIN_MONITOR: 5, "monitor2": 10}
"""Monitor → over how many readings it averages."""
ACTUATORS: Final = ("actuator1", "actuator2")
HOSTS: Final = (SENSOR, *WINDOWS, *ACTUATORS)
TRIGGER: Final = b"TRIGGER"
_AGAIN_AFTER: Final = 10
_AT_WORK_INTERVALS: Final = 10.5
"""Ten readings, whatever the network and this machine delay by less than half an interval: same seed, same run."""
_LONGEST_READING: Final = 16


class Topic(StrEnum):
    """The two resources."""

    MONITORING = "monitoring"
    ACTUATORS = "actuators"


SUBSCRIBERS: Final = {Topic.MONITORING: tuple(WINDOWS), Topic.ACTUATORS: ACTUATORS}


class Kind(StrEnum):
    """What can happen."""

    PUBLISHED = "published"
    HEARD = "heard"
    FIRED = "fired"
    TRIGGERED = "triggered"
    RESTS = "rests"
    UNEXPECTED = "unexpected"


@dataclass(frozen=True, slots=True)
class Event:
    """One thing that happened at a host."""

    at_s: float
    host: str
    kind: Kind
    value: float | None = None
    """A temperature: read, or of the average that fired."""
    average: float | None = None
    """A monitor's moving average with what it heard; None as long as it has heard too little."""
    payload: bytes = b""

    @property
    def role(self) -> str:
        """What the host is: its name without its number."""
        return self.host.rstrip("0123456789")

    def words(self, threshold_c: float) -> str:
        """What happened, for people."""
        match self.kind:
            case Kind.PUBLISHED:
                return f"publishes {self.value:.2f} °C"
            case Kind.HEARD:
                average = "too few" if self.average is None else f"{self.average:.2f} °C"
                return f"hears {self.value:.2f} °C, moving average of {WINDOWS[self.host]}: {average}"
            case Kind.FIRED:
                return f"threshold of {threshold_c:g} °C crossed: triggers the actuators"
            case Kind.TRIGGERED:
                return "hears the trigger: cools"
            case Kind.RESTS:
                return "has cooled long enough: rests"
            case Kind.UNEXPECTED:
                return f"hears what is not for it: {self.payload[:40]!r}"


@dataclass(frozen=True, slots=True)
class Send:
    """A datagram to publish."""

    host: str
    topic: Topic
    payload: bytes


class Application:
    """All five hosts."""

    def __init__(self, seed: int, threshold_c: float, interval_s: float) -> None:
        self.threshold_c = threshold_c
        self.events: list[Event] = []
        self._room = Room(seed)
        self._averages = {host: MovingAverage(size) for host, size in WINDOWS.items()}
        self._trigger = Trigger(threshold_c, _AGAIN_AFTER)
        self._actuators = {host: Actuator(_AT_WORK_INTERVALS * interval_s) for host in ACTUATORS}
        self._at_work: set[str] = set()

    def reading_due(self, at_s: float) -> list[Send]:
        """The sensor's turn; the actuators' time passes too."""
        for host, actuator in self._actuators.items():
            if host in self._at_work and not actuator.works(at_s):
                self._at_work.discard(host)
                self._note(at_s, host, Kind.RESTS)
        value = self._room.read(len(self._at_work))
        payload = f"{value:.2f}".encode()
        self._note(at_s, SENSOR, Kind.PUBLISHED, value, payload)
        return [Send(SENSOR, Topic.MONITORING, payload)]

    def heard(self, host: str, payload: bytes, at_s: float) -> list[Send]:
        """A datagram came to a host; returns what it publishes because of it."""
        if host in self._averages and (value := read_temperature(payload)) is not None:
            return self._monitored(host, value, payload, at_s)
        if host in self._actuators and payload == TRIGGER:
            self._actuators[host].triggered(at_s)
            self._at_work.add(host)
            self._note(at_s, host, Kind.TRIGGERED, payload=payload)
        else:
            self._note(at_s, host, Kind.UNEXPECTED, payload=payload)
        return []

    def _monitored(self, host: str, value: float, payload: bytes, at_s: float) -> list[Send]:
        average = self._averages[host].add(value)
        self.events.append(Event(at_s, host, Kind.HEARD, value, average, payload))
        if host != MAIN_MONITOR or not self._trigger.judge(average):
            return []
        self._note(at_s, host, Kind.FIRED, average, TRIGGER)
        return [Send(host, Topic.ACTUATORS, TRIGGER)]

    def _note(self, at_s: float, host: str, kind: Kind, value: float | None = None, payload: bytes = b"") -> None:
        self.events.append(Event(at_s, host, kind, value, payload=payload))


def read_temperature(payload: bytes) -> float | None:
    """The temperature in a datagram; None when there is none."""
    if len(payload) > _LONGEST_READING:
        return None
    try:
        value = float(payload.decode("ascii"))
    except ValueError:
        return None
    return value if math.isfinite(value) else None


def copies_missing(events: list[Event]) -> int:
    """How many copies of what was published are not heard yet."""
    counts = {kind: sum(event.kind is kind for event in events) for kind in Kind}
    wanted = counts[Kind.PUBLISHED] * len(WINDOWS) + counts[Kind.FIRED] * len(ACTUATORS)
    return wanted - counts[Kind.HEARD] - counts[Kind.TRIGGERED]


def log_line(event: Event, address: str, threshold_c: float) -> str:
    """Time, host, address, role and what happened, in columns."""
    return f"{event.at_s:9.3f} s  {event.host:10} {address:10} {event.role:9} {event.words(threshold_c)}"
