from __future__ import annotations

import pytest

from battlebrokers.errors import QuantityError
from battlebrokers.scenario.nodes import PacePlan
from battlebrokers.scenario.paces import FORMS, messages_until, parse_pace

SECOND_NS = 1_000_000_000


@pytest.mark.parametrize(
    ("text", "plan"),
    [
        ("1s", PacePlan("steady", SECOND_NS)),
        ("100/s", PacePlan("steady", SECOND_NS // 100)),
        ("3/s", PacePlan("steady", SECOND_NS, per_interval=3)),
        ("20s..60s", PacePlan("uniform", 20 * SECOND_NS, 60 * SECOND_NS)),
        ("poisson 5s", PacePlan("poisson", 5 * SECOND_NS)),
        ("poisson 20/s", PacePlan("poisson", SECOND_NS // 20)),
        ("burst 10 every 1s", PacePlan("burst", SECOND_NS, burst_size=10)),
        ("ramp 10/s..100/s over 30s", PacePlan("ramp", SECOND_NS // 10, SECOND_NS // 100, ramp_ns=30 * SECOND_NS)),
    ],
)
def test_the_ways_to_write_a_pace(text: str, plan: PacePlan) -> None:
    assert parse_pace(text) == plan


@pytest.mark.parametrize(
    "value",
    ["", "0s", "0/s", 5, True, None, [], "60s..20s", "0s..0s", "poison 5s", "burst 0 every 1s", "burst 5",
     "ramp 0/s..0/s over 1s", "ramp 1/s..2/s over 0s", "ramp 1/s", "sometimes", "x" * 300, "1s..", "..", "1/s..2/s"],
)  # fmt: skip
def test_wrong_paces_are_refused(value: object) -> None:
    with pytest.raises(QuantityError) as caught:
        parse_pace(value)
    assert caught.value.hint


@pytest.mark.parametrize("form", FORMS)
def test_every_form_we_advertise_is_one(form: str) -> None:
    assert messages_until(parse_pace(form), 60 * SECOND_NS) > 0


def test_nothing_is_due_before_a_device_joins() -> None:
    assert messages_until(PacePlan("steady", SECOND_NS, start_ns=5 * SECOND_NS), 5 * SECOND_NS) == 0
