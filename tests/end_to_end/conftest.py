from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from battlebrokers.contenders.lifecycle import RunningContender, start_contender
from battlebrokers.pipeline.client import Analyst


@pytest.fixture(scope="session")
def analyst() -> Iterator[Analyst]:
    """One Spark session for all end-to-end tests, on a JVM that compiles quickly: their runs are small."""
    with Analyst.start("local[2]", expected_events=100_000, idle=False) as started:
        yield started


@pytest.fixture
def mosquitto(require_broker, tmp_path: Path) -> Iterator[RunningContender]:
    require_broker("mosquitto")
    with start_contender("mosquitto", "tuned", tmp_path / "mosquitto") as running:
        yield running
