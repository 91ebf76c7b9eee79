"""One RabbitMQ for all tests that listen to one: it takes ten seconds to start."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from battlebrokers.contenders.availability import Missing, availability
from battlebrokers.contenders.lifecycle import RunningContender, start_contender
from battlebrokers.contenders.reader import find_contender
from battlebrokers.errors import ContenderError


@pytest.fixture(scope="session")
def rabbitmq(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningContender]:
    """As the product starts it: AMQP, MQTT and Web-MQTT on ports of its own; or the reason why there is none."""
    here = availability(find_contender("rabbitmq"))
    if isinstance(here, Missing):
        pytest.skip(f"RabbitMQ cannot run here: {here.what} is missing ({here.hint})")
    try:
        broker = start_contender("rabbitmq", "stock", tmp_path_factory.mktemp("rabbitmq"))
    except ContenderError as error:
        pytest.skip(str(error))
    with broker:
        yield broker
