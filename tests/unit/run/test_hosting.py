"""A real broker that somebody started and gave up on."""

from __future__ import annotations

import asyncio

import psutil
import pytest

from battlebrokers.contenders.reader import SPECS
from battlebrokers.errors import Interrupted
from battlebrokers.run.hosting import start_patiently

pytestmark = [pytest.mark.broker, pytest.mark.slow]


def family() -> set[int]:
    return {child.pid for child in psutil.Process().children(recursive=True)}


async def test_a_broker_nobody_waits_for_any_more_is_gone_again(tmp_path):
    before = family()
    with pytest.raises(Interrupted, match="nothing was measured"):
        await start_patiently("amqtt", "tuned", tmp_path / "contender", None, lambda: True)
    assert family() <= before


async def test_a_broker_that_never_answers_is_not_waited_for_by_who_has_given_up(tmp_path):
    deaf = tmp_path / "deaf.yaml"
    text = (
        (SPECS / "amqtt.yaml")
        .read_text()
        .replace("-m, amqtt.scripts.broker_script", '-c, "import time; time.sleep(900)"')
    )
    deaf.write_text(text.replace("within_s: 30", "within_s: 900"))
    before, given_up = family(), False
    starting = asyncio.create_task(start_patiently(str(deaf), "tuned", tmp_path / "contender", None, lambda: given_up))
    while family() <= before:  # noqa: ASYNC110 - there is no event to wait for
        await asyncio.sleep(0.01)
    given_up = True
    with pytest.raises(Interrupted, match="nothing was measured"):
        await asyncio.wait_for(starting, 60)
    assert family() <= before


async def test_a_start_that_is_cancelled_leaves_no_broker_behind(tmp_path):
    before = family()
    starting = asyncio.create_task(start_patiently("amqtt", "tuned", tmp_path / "contender", None, lambda: False))
    while family() <= before:  # noqa: ASYNC110 - there is no event to wait for
        await asyncio.sleep(0.01)
    starting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await starting
    assert family() <= before


async def test_a_broker_that_is_wanted_is_there(tmp_path):
    contender = await start_patiently("amqtt", "tuned", tmp_path / "contender", None, lambda: False)
    try:
        assert contender.alive()
    finally:
        contender.stop()
