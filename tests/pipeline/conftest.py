"""One Spark session for all tests of the pipeline: starting it is the expensive part."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from battlebrokers.errors import EnvironmentNotReady
from battlebrokers.pipeline.session import start_session


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    try:
        session = start_session("local[2]", expected_events=1)
    except EnvironmentNotReady as error:
        pytest.skip(error.message)
    with session:
        yield session.spark


@pytest.fixture
def run_path(tmp_path: Path) -> Path:
    return tmp_path / "run"
