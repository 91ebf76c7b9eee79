from __future__ import annotations

from battlebrokers.silence import Silence


class Clock:
    now_s = 100.0

    def __call__(self) -> float:
        return self.now_s


def test_it_is_over_when_the_limit_is_reached_and_begins_again_with_every_sign_of_life() -> None:
    clock = Clock()
    silence = Silence(2.0, clock)
    for step in range(3):
        clock.now_s += 0.9
        assert silence.over() is (step == 2)
    silence.heard()
    assert not silence.over()


def test_the_time_in_which_we_were_stopped_ourselves_does_not_count() -> None:
    clock = Clock()
    silence = Silence(5.0, clock)
    clock.now_s += 3600
    assert not silence.over()
