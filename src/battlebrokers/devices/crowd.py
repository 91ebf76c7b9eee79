"""The crowd: all devices of one process, driven by one alarm. No task, timer or queue per device.

At each ring it finds, in one numpy comparison, the devices that owe a message, and lets them speak. With a tick, the
whole process sleeps from one ring to the next.
"""

from __future__ import annotations

import asyncio
from array import array
from bisect import bisect_left
from time import sleep

import numpy as np
import numpy.typing as npt

from battlebrokers.clock import SECOND_NS
from battlebrokers.devices.alarm import Alarm
from battlebrokers.devices.device import Device
from battlebrokers.devices.stopwatch import Stopwatch
from battlebrokers.pacing.schedule import NEVER

_REST_NS = 400_000
"""Shortest rest between two rings: messages due within it share a ring (and a system call)."""
_TURN_NS = 3_000_000
"""Longest time devices speak before arrivals get their turn; whoever is left speaks first at the next ring."""


class Crowd:
    """Drives its devices from the start of the load to its end.

    With `tick_ns` it puts the event loop itself to sleep between two rings, on purpose: at high rates a process spends
    most of its time being woken for one small chunk after the other, and every wake-up costs the broker that causes it
    as well. What came meanwhile (arrivals, timers, orders) is served after each sleep, before devices speak.
    """

    def __init__(self, stopwatch: Stopwatch, clock_shift_ns: int, tick_ns: int = 0) -> None:
        self._stopwatch = stopwatch
        self._shift_ns = clock_shift_ns
        self._tick_ns = tick_ns
        self._devices: list[Device] = []
        # The same numbers twice: one by one an array of Python's is faster, all at once a view of numpy's on it.
        self._due_ns = array("q")
        self._all_due_ns: npt.NDArray[np.int64] = np.empty(0, dtype=np.int64)
        self._alarm: Alarm | None = None
        self._alarm_ns = NEVER
        self._speaking = False
        self._first = 0
        self.rings = 0
        self.sleeps = 0
        """How often the process slept from one tick to the next."""

    def add(self, device: Device) -> None:
        """One more device; only before the start."""
        device.index = len(self._devices)
        self._devices.append(device)

    def __len__(self) -> int:
        return len(self._devices)

    def start(self, load_start_ns: int) -> None:
        """Arm every schedule; the first ring comes when the first message is due, or with the first tick."""
        self._alarm = Alarm(self._ring)
        self._due_ns = array("q", [device.start(load_start_ns) for device in self._devices])
        self._all_due_ns = np.frombuffer(self._due_ns, dtype=np.int64)
        if self._tick_ns:
            self._alarm.set(load_start_ns - self._shift_ns)
        else:
            self._set_alarm(0)

    def rearm(self, device: Device, due_ns: int) -> None:
        """A device that was held or offline may speak again."""
        if self._alarm is None:
            return
        self._due_ns[device.index] = due_ns
        # With a tick the next ring is on its way in any case.
        if not self._tick_ns and not self._speaking and due_ns < self._alarm_ns:
            self._alarm_ns = due_ns
            self._alarm.set(due_ns - self._shift_ns)

    def stop(self) -> None:
        """No more rings; what is still owed stays with the devices."""
        if self._alarm is not None:
            self._speak(until_ns=NEVER)
            self._alarm.close()
            self._alarm = None

    def _speak(self, until_ns: int) -> bool:
        """Let every device that owes something speak; False when time ran out before all had."""
        now_ns = self._stopwatch.now_ns
        due_ns = self._due_ns
        devices = self._devices
        order: list[int] = (self._all_due_ns <= now_ns()).nonzero()[0].tolist()
        # Begin where the last turn ended, so that under overload no device is always the last.
        if self._first:
            split = bisect_left(order, self._first)
            order = order[split:] + order[:split]
            self._first = 0
        self._speaking = True
        spoken = 0
        for index in order:
            # A device held in `speak` may be released from within it, so its own answer must not undo that.
            due_ns[index] = NEVER
            wanted_ns = devices[index].speak()
            if wanted_ns < due_ns[index]:
                due_ns[index] = wanted_ns
            spoken += 1
            if not spoken & 7 and now_ns() > until_ns:
                self._first = index + 1
                break
        self._speaking = False
        return spoken == len(order)

    def _ring(self) -> None:
        if self._alarm is None:
            return
        self.rings += 1
        now_ns = self._stopwatch.now_ns()
        done = self._speak(now_ns + _TURN_NS)
        if not self._tick_ns:
            self._set_alarm(self._stopwatch.now_ns() + (_REST_NS if done else 0))
            return
        # Whoever still owes what was due at this ring speaks again at once.
        if done and not (self._all_due_ns <= now_ns).any():
            self._sleep(now_ns + self._tick_ns)
        # The loop looks at its sockets before this comes: arrivals are stamped first, then devices speak.
        asyncio.get_running_loop().call_soon(self._ring)

    def _sleep(self, until_ns: int) -> None:
        """The transports have written by now what the devices said: only what a socket did not take waits here."""
        remaining_ns = until_ns - self._stopwatch.now_ns()
        if remaining_ns > 0:
            sleep(remaining_ns / SECOND_NS)
            self.sleeps += 1

    def _set_alarm(self, not_before_ns: int) -> None:
        next_ns = self._due_ns[int(self._all_due_ns.argmin())] if self._due_ns else NEVER
        self._alarm_ns = next_ns
        if next_ns != NEVER and self._alarm is not None:
            self._alarm_ns = max(next_ns, not_before_ns)
            self._alarm.set(self._alarm_ns - self._shift_ns)
