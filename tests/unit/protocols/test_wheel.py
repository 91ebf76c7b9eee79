"""The wheel: members are visited when their slot comes up, by one timer."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable

from battlebrokers.protocols.wheel import TICK_S, Wheel, wheel_of
from support.links import until


class Sleeper:
    def __init__(self, following: Callable[[], int] = lambda: 0) -> None:
        self.slot = 0
        self.visits = 0
        self.following = following

    def beat(self) -> int:
        self.visits += 1
        return self.following()


async def test_a_member_is_visited_until_it_leaves():
    wheel = Wheel(asyncio.get_running_loop())
    steady = Sleeper(lambda: wheel.tick + 1)
    once = Sleeper()
    wheel.enter(steady, wheel.tick + 1)
    wheel.enter(once, wheel.tick + 1)
    await until(lambda: steady.visits >= 3)
    assert once.visits == 1
    assert once.slot == 0
    wheel.leave(steady)
    seen = steady.visits
    await asyncio.sleep(0.3)
    assert steady.visits == seen
    assert not wheel._slots


async def test_a_slow_member_that_enters_again_costs_nobody_their_visit():
    wheel = Wheel(asyncio.get_running_loop())

    def dawdle() -> int:
        time.sleep(2.5 * TICK_S)
        return wheel.tick + 1 if slow.visits == 1 else 0

    slow, patient = Sleeper(dawdle), Sleeper()
    wheel.enter(slow, wheel.tick + 1)
    wheel.enter(patient, wheel.tick + 2)
    await until(lambda: slow.visits == 2)
    await until(lambda: patient.visits)
    assert not wheel._slots


async def test_nobody_is_visited_before_time():
    wheel = Wheel(asyncio.get_running_loop())
    early, late = Sleeper(), Sleeper()
    wheel.enter(early, wheel.tick + 1)
    wheel.enter(late, wheel.tick + 1000)
    await until(lambda: early.visits)
    assert not late.visits
    wheel.enter(late, wheel.tick - 5)
    await until(lambda: late.visits)
    assert not wheel._slots


async def test_a_member_that_left_during_a_turn_is_not_visited():
    wheel = Wheel(asyncio.get_running_loop())
    members: list[Sleeper] = []

    def remove_others() -> int:
        for member in members:
            wheel.leave(member)
        return 0

    members += [Sleeper(remove_others) for _ in range(5)]
    for member in members:
        wheel.enter(member, wheel.tick + 1)
    await until(lambda: sum(member.visits for member in members))
    await asyncio.sleep(0.25)
    assert sum(member.visits for member in members) == 1


async def test_a_stalled_loop_visits_everybody_it_missed():
    loop = asyncio.get_running_loop()
    wheel = Wheel(loop)
    members = [Sleeper() for _ in range(10)]
    for at, member in enumerate(members):
        wheel.enter(member, wheel.tick + 1 + at % 4)
    wheel._origin_s -= 5.0
    await until(lambda: all(member.visits == 1 for member in members))


async def test_a_loop_has_one_wheel():
    loop = asyncio.get_running_loop()
    assert wheel_of(loop) is wheel_of(loop)
