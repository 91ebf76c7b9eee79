"""What every group gets: how large to measure, where to put things, and whom to tell.

A group is a module with `figures(bench) -> Iterator[Figure]`, named in `__main__.GROUPS`.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import psutil

from battlebrokers.contenders.broker_url import parse_broker_url
from battlebrokers.contenders.lifecycle import RunningContender, start_contender
from benchmarks.own_network import own_network

_SETTLE_S = 60.0
_LOOK_S = 0.3
_IDLE_SHARE = 0.1
"""Of one core; less than this is a broker with nothing to do."""


@dataclass(frozen=True)
class Bench:
    """One call of the benchmarks."""

    folder: Path
    """For everything that is thrown away afterwards."""
    quick: bool = False
    """Tiny sizes: shows that everything works, measures nothing."""
    only: str = ""
    """The beginning of the names of the figures wanted."""
    output: Path | None = None
    """The file the figures go to; what else a group writes lies beside it. None: nothing is written."""

    @property
    def rounds(self) -> int:
        """How often each comparison is repeated; the median counts."""
        return 1 if self.quick else 5

    def wants(self, *names: str) -> bool:
        """Whether any of these figures is asked for."""
        return any(name.startswith(self.only) for name in names)

    def interleaved(self, what: str, *sides: Callable[[], float]) -> list[list[float]]:
        """Run the sides in turn (A B A B …); returns each side's numbers, round by round."""
        numbers: list[list[float]] = [[] for _ in sides]
        for place in range(self.rounds):
            for side, found in zip(sides, numbers, strict=True):
                found.append(side())
            latest = " | ".join(f"{found[-1]:,.4g}" for found in numbers)
            self.say(f"{what}, round {place + 1} of {self.rounds}: {latest}")
        return numbers

    def say(self, words: str) -> None:
        """Progress, on stderr."""
        print(f"{time.strftime('%H:%M:%S')}  {words}", file=sys.stderr, flush=True)


class Broker:
    """The one broker all of a group's figures are measured on."""

    def __init__(self, running: RunningContender) -> None:
        place = parse_broker_url(running.endpoints["tcp"])
        self.url, self.host, self.port = place.url, place.host, place.port
        self.title = f"{running.name} {running.version} ({running.profile})"
        self._pids = [pid for _, pids in running.services for pid in pids]

    def settle(self) -> None:
        """Wait until it has worked off what the last load left in its sockets: nobody pays for his predecessor."""
        until = time.monotonic() + _SETTLE_S
        while time.monotonic() < until:
            before = self._cpu_s()
            time.sleep(_LOOK_S)
            if self._cpu_s() - before <= _IDLE_SHARE * _LOOK_S:
                return

    def _cpu_s(self) -> float:
        times = [psutil.Process(pid).cpu_times() for pid in self._pids]
        return sum(time.user + time.system for time in times)


@contextmanager
def mosquitto(bench: Bench) -> Iterator[Broker]:
    """Mosquitto in a network of its own, with every setting as it comes, for as long as the block lasts."""
    with own_network() as network, start_contender("mosquitto", "tuned", bench.folder / "mosquitto") as running:
        broker = Broker(running)
        bench.say(f"{broker.title} on {broker.host}:{broker.port} in {network}")
        yield broker
