from __future__ import annotations

from itertools import islice

from battlebrokers.protocols.backoff import backoff_delays


def test_delays_double_up_to_the_cap_with_jitter_in_the_upper_half():
    delays = list(islice(backoff_delays(7, first_s=1, cap_s=10), 8))
    for delay, ceiling in zip(delays, [1, 2, 4, 8, 10, 10, 10, 10], strict=True):
        assert ceiling / 2 <= delay <= ceiling


def test_a_seed_gives_the_same_delays_and_another_seed_others():
    assert list(islice(backoff_delays(1), 5)) == list(islice(backoff_delays(1), 5))
    assert list(islice(backoff_delays(1), 5)) != list(islice(backoff_delays(2), 5))
