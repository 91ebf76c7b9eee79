"""What Ponte's observers over CoAP hear after a fresh start: why its file calls them deaf to MQTT."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path

import pytest

from battlebrokers.contenders.capability_table import BEHAVIOURS, cells_of
from battlebrokers.contenders.lifecycle import start_contender
from battlebrokers.contenders.reader import find_contender
from battlebrokers.run.crew import EVERYTHING, FIRST, Route
from battlebrokers.run.trial import Trial

pytestmark = pytest.mark.broker

MQTT, HTTP, COAP = Route("mqtt", "tcp"), Route("http", "http"), Route("coap", "coap")
LATE_S = 2.5
"""Longer than an observation waits before it asks again for what was not there."""


async def test_a_topic_can_be_observed_once_it_has_a_kept_value_and_mqtt_keeps_none(
    tmp_path: Path, require_broker: Callable[[str], str]
) -> None:
    require_broker("ponte")
    with start_contender("ponte", "stock", tmp_path) as ponte:
        trial = Trial(ponte, find_contender("ponte"))
        async with trial.crew(MQTT, COAP) as crew:
            token = crew.publish(0, b"not kept")
            assert await crew.until(lambda: token in crew.ear.ended)
            # Observers have asked again by now, had they had anything to find.
            await asyncio.sleep(LATE_S)
            again = crew.publish(0, b"not kept either")
            assert await crew.until(lambda: again in crew.ear.ended)
            assert crew.ear.heard == []
            assert crew.not_acked(token) == crew.not_acked(again) == ""
        async with trial.crew(HTTP, COAP) as crew:
            crew.publish(0, b"kept")
            assert await crew.until(lambda: crew.has(EVERYTHING, b"kept") and crew.has(FIRST, b"kept")), crew.why
        async with trial.crew(MQTT, COAP) as crew:
            crew.publish(0, b"heard now")
            assert await crew.until(lambda: crew.has(FIRST, b"heard now")), crew.why


async def test_the_trial_tells_what_is_not_bridged_instead_of_waiting_for_it(
    tmp_path: Path, require_broker: Callable[[str], str]
) -> None:
    require_broker("ponte")
    with start_contender("ponte", "stock", tmp_path) as ponte:
        findings = await Trial(ponte, find_contender("ponte")).run()
    found = {(finding.route, finding.what): finding for finding in findings}
    assert found["mqtt", "heard over coap"].holds is None
    assert "without a kept value" in found["mqtt", "heard over coap"].detail
    assert found["coap", "heard over mqtt"].holds is True
    # HTTP has no clients of its own, and is a bridge all the same.
    assert found["http", "heard over coap"].holds is True
    assert found["http", "heard over mqtt"].holds is True
    assert [each for each in findings if each.holds is False] == []
    tried = {(route, what) for route, what in found if what in BEHAVIOURS or what.startswith("heard over")}
    assert tried == set(cells_of(find_contender("ponte")))
