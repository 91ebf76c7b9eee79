"""Under load in the group `sdn`: subscriptions that change, and a controller that is killed. The judging is pure.

What counts as broken: a copy of a message that was sent after an unsubscribe was answered; no copy of one sent after a
subscribe was answered. A neighbour at the same switch tells when a message was copied: before or after the next change.
"""

from __future__ import annotations

import bisect
import socket
import struct
import time
from collections.abc import Sequence
from dataclasses import dataclass

import msgspec

from benchmarks.bench import Bench
from benchmarks.sdn_network import BenchNetwork
from benchmarks.sdn_traffic import LoggedLoad, Traffic

RATE = 2000.0
_STAY_NS = 4_000_000
_SENT_AT = struct.Struct("<4s4xQQ")
"""In a message: the load program's mark, its number, when it was sent."""
_PAYLOAD_AT = 42
_MARK = b"BBL1"
_LOWEST_RATE = 100.0
_AT_MOST_S = 100.0
"""For the trials of one mode."""
_MORE = 1.05
"""Of the trials a few tell nothing, on a machine that is busy otherwise."""
_FOR_EVER = 1 << 63
_MEMBER, _NEIGHBOUR = 0, 4
"""Places among the subscribers: the first and the fifth are at the same switch."""


@dataclass(frozen=True)
class Trial:
    """One subscription from beginning to end; all on CLOCK_MONOTONIC."""

    asked_ns: int
    answered_ns: int
    left_ns: int
    """The unsubscribe was sent."""
    gone_ns: int
    """The unsubscribe was answered."""


class Judged(msgspec.Struct, frozen=True):
    """Of many trials."""

    trials: int
    """That tell something: at least one message had to come and one had not to."""
    unsubscribed: int
    """Trials after whose end nothing came that was sent later."""
    subscribed: int
    """Trials from whose answer on everything came."""
    answer_ns: list[int]
    """Asked → answered."""
    join_ns: list[int]
    """Answered → first copy; less than nothing when it was there before the answer."""
    rate: float = RATE


def judge(
    trials: Sequence[Trial],
    sent_ns: Sequence[int],
    member: dict[int, int],
    neighbour: dict[int, int],
    rate: float = RATE,
) -> Judged:
    """What the logs say about every trial: `member` came and went, `neighbour` stayed; message → when it came."""
    told = unsubscribed = subscribed = 0
    join_ns, answer_ns = [], []
    for trial, after in zip(trials, [*trials[1:], None], strict=True):
        until_ns = after.asked_ns if after else _FOR_EVER
        wanted = range(bisect.bisect_right(sent_ns, trial.answered_ns), bisect.bisect_left(sent_ns, trial.left_ns))
        # What was still on its way when the subscription ended may go either way.
        due = [number for number in wanted if neighbour.get(number, trial.left_ns) < trial.left_ns]
        unwanted = range(bisect.bisect_right(sent_ns, trial.gone_ns), bisect.bisect_left(sent_ns, until_ns))
        # Likewise when the next one began.
        undue = [number for number in unwanted if neighbour.get(number, until_ns) < until_ns]
        if not due or not undue:
            continue
        told += 1
        subscribed += all(number in member for number in due)
        unsubscribed += not any(number in member for number in undue)
        answer_ns.append(trial.answered_ns - trial.asked_ns)
        from_the_question = range(bisect.bisect_right(sent_ns, trial.asked_ns) - 20, wanted.stop)
        came = [member[one] for one in from_the_question if member.get(one, 0) > trial.asked_ns]
        if came:
            join_ns.append(min(came) - trial.answered_ns)
    return Judged(told, unsubscribed, subscribed, answer_ns, join_ns, rate)


def trials(bench: Bench, network: BenchNetwork, mode: str, count: int) -> Judged:
    """A host that subscribes and unsubscribes again and again, while others receive on; at least so often."""
    count = round(count * _MORE)
    traffic = network.ours(mode, _NEIGHBOUR + 1)
    address, name = traffic.targets[0].ipv4, network.subscribers[_MEMBER]
    rate = _carried(network, traffic)
    network.unsubscribe(address, name)
    load = LoggedLoad(network.loader, traffic, rate, _AT_MOST_S + 60, network.folder / "changes.log")
    done: list[Trial] = []
    last = time.monotonic() + _AT_MOST_S
    door = network.lab.frame_socket(network.subscribers[_NEIGHBOUR])
    try:
        for number in range(count):
            asked = time.monotonic_ns()
            network.subscribe(address, name)
            answered = time.monotonic_ns()
            _until_copied(door, answered + _STAY_NS)
            left = time.monotonic_ns()
            network.unsubscribe(address, name)
            gone = time.monotonic_ns()
            _until_copied(door, gone + _STAY_NS)
            done.append(Trial(asked, answered, left, gone))
            if time.monotonic() > last:
                bench.say(f"{mode}: time is over after {number + 1} of {count}")
                break
            if (number + 1) % 100 == 0:
                bench.say(f"{mode}: {number + 1} of {count} subscriptions begun and ended under load")
        _, log = load.end()
    finally:
        load.kill()
        door.close()
        network.subscribe(address, name)
    return judge(done, log.sent_ns, log.received_ns[_MEMBER], log.received_ns[_NEIGHBOUR], rate)


def _carried(network: BenchNetwork, traffic: Traffic) -> float:
    """The usual rate; half of it, and so on, where this machine does not even carry that in peace."""
    rate = RATE
    network.warm(traffic)
    while rate > _LOWEST_RATE and not network.loader.run(traffic, rate, 2.0, nap_us=0).was_carried(2.0):
        rate /= 2
        network.settle()
    return rate


def _until_copied(door: socket.socket, sent_ns: int) -> None:
    """Wait until a message that was sent later than that has reached the neighbour."""
    door.settimeout(10)
    newest = 0
    while newest <= sent_ns:
        frame = door.recv(2048)
        if len(frame) >= _PAYLOAD_AT + _SENT_AT.size:
            mark, _, stamp = _SENT_AT.unpack_from(frame, _PAYLOAD_AT)
            newest = stamp if mark == _MARK else newest


class Survived(msgspec.Struct, frozen=True):
    """A controller killed and restarted under load."""

    expected: int
    received: int
    without_s: float
    """How long there was no controller that knew its switches."""
    rate: float


def killed(network: BenchNetwork, traffic: Traffic) -> Survived:
    """SIGKILL in the midst of traffic, a while without anybody, and a new controller that finds everything again."""
    rate = _carried(network, traffic)
    load = LoggedLoad(network.loader, traffic, rate, 120, network.folder / "killed.log")
    try:
        time.sleep(0.5)
        began = time.monotonic()
        network.kill_controller()
        time.sleep(1.0)
        network.start_controller()
        while not network.is_complete() and time.monotonic() - began < 60:
            time.sleep(0.05)
        without_s = time.monotonic() - began
        time.sleep(1.0)
        outcome, _ = load.end()
    finally:
        load.kill()
    return Survived(outcome.expected, outcome.received, without_s, rate)
