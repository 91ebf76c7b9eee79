"""The crowd: all devices of one process, driven by one alarm. No task, timer or queue per device.

At each ring it finds, in one numpy comparison, the devices that owe a message, and lets them speak.
"""

from __future__ import annotations

from bisect import bisect_left

import numpy as np
import numpy.typing as npt

from battlebrokers.devices.alarm import Alarm
from battlebrokers.devices.device import Device
from battlebrokers.devices.stopwatch import Stopwatch
from battlebrokers.pacing.schedule import NEVER

_REST_NS = 400_000
"""Shortest rest between two rings: messages due within it share a ring (and a system call)."""
_TURN_NS = 3_000_000
"""Longest time devices speak before arrivals get their turn; whoever is left speaks first at the next ring."""


class Crowd:
    """Drives its devices from the start of the load to its end."""

    def __init__(self, stopwatch: Stopwatch, clock_shift_ns: int) -> None:
        self._stopwatch = stopwatch
        self._shift_ns = clock_shift_ns
        self._devices: list[Device] = []
        self._due_ns: npt.NDArray[np.int64] = np.empty(0, dtype=np.int64)
        self._alarm: Alarm | None = None
        self._alarm_ns = NEVER
        self._speaking = False
        self._first = 0
        self.rings = 0

    def add(self, device: Device) -> None:
        """One more device; only before the start."""
        device.index = len(self._devices)
        self._devices.append(device)

    def __len__(self) -> int:
        return len(self._devices)

    def start(self, load_start_ns: int) -> None:
        """Arm every schedule; the first ring comes when the first message is due."""
        self._alarm = Alarm(self._ring)
        self._due_ns = np.array([device.start(load_start_ns) for device in self._devices], dtype=np.int64)
        self._set_alarm(0)

    def rearm(self, device: Device, due_ns: int) -> None:
        """A device that was held or offline may speak again."""
        if self._alarm is None:
            return
        self._due_ns[device.index] = due_ns
        if not self._speaking and due_ns < self._alarm_ns:
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
        order: list[int] = (due_ns <= now_ns()).nonzero()[0].tolist()
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
        self._set_alarm(self._stopwatch.now_ns() + (_REST_NS if done else 0))

    def _set_alarm(self, not_before_ns: int) -> None:
        due_ns = self._due_ns
        next_ns = int(due_ns[due_ns.argmin()]) if len(due_ns) else NEVER
        self._alarm_ns = next_ns
        if next_ns != NEVER and self._alarm is not None:
            self._alarm_ns = max(next_ns, not_before_ns)
            self._alarm.set(self._alarm_ns - self._shift_ns)
