from __future__ import annotations

from benchmarks.outpour import Offer


def test_what_is_offered_is_raised_until_the_engine_is_the_limit():
    offers = []

    def sent_per_s(offered_per_s):
        offers.append(offered_per_s)
        return min(offered_per_s, 5_000_000.0)

    offer = Offer(2_000_000.0)
    assert offer.limit(sent_per_s) == 5_000_000.0
    assert offers == [2_000_000.0, 3_000_000.0, 4_500_000.0, 6_750_000.0]
    assert offer.limit(sent_per_s) == 5_000_000.0
    assert offers[4:] == [6_750_000.0], "the next round begins where the first one ended"


def test_an_endless_engine_ends_the_search():
    assert Offer().limit(lambda offered_per_s: offered_per_s) >= 50_000_000.0
