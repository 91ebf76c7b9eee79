"""A disk that fills up during a load: the load ends at once, and all that was sent until then is on that disk."""

from __future__ import annotations

import os
import shutil
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from battlebrokers.clock import SECOND_NS
from battlebrokers.errors import EnvironmentNotReady, ExitCode
from battlebrokers.tables import DELIVERIES, PUBLISHES
from battlebrokers.tables.run_folder import RunFolder
from support.runs import run_for_real, write_scenario

pytestmark = [pytest.mark.root, pytest.mark.skipif(os.geteuid() != 0, reason="only root mounts a small disk")]

LONG = """
name: long
fleets: {sensor: {devices: 5, topic: "long/{device}", payload: {random_bytes: 64}, every: 100/s, qos: 1}}
clients: {listener: {count: 1, subscribe: ["long/#"], qos: 1}}
phases: {measure: 30s, drain: 5s, quiet: 1s}
"""


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    place = tmp_path / "disk"
    place.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=128m", "none", str(place)], capture_output=True, text=True, check=False
    )
    if mounted.returncode:
        pytest.skip(f"no small disk can be mounted here: {mounted.stderr.strip()}")
    yield place
    subprocess.run(["umount", "-l", str(place)], check=True)


@pytest.mark.alone
def test_the_load_ends_within_a_second_and_nothing_that_was_sent_is_lost(tmp_path: Path, small_disk: Path) -> None:
    filled_at_ns: list[int] = []

    def fill(seen) -> None:
        if seen.phase == "measure" and seen.share > 0.05 and not filled_at_ns:
            with (small_disk / "somebody-elses").open("wb") as file:
                os.posix_fallocate(file.fileno(), 0, shutil.disk_usage(small_disk).free)
            filled_at_ns.append(time.time_ns())

    scenario = write_scenario(tmp_path, LONG)
    with pytest.raises(EnvironmentNotReady, match="the evidence cannot be written") as caught:
        run_for_real(scenario, "loopback://", small_disk / "runs", watch=fill)
    assert caught.value.exit_code == ExitCode.ENVIRONMENT
    folder = RunFolder(next((small_disk / "runs").iterdir()))
    assert str(folder.path) in caught.value.message
    assert "takes about 100 MiB" in caught.value.message
    manifest = folder.read_manifest()
    assert (manifest.state, manifest.state_detail) == ("failed", caught.value.message)
    measure = manifest.phase("measure")
    assert measure is not None
    assert measure.end_ns - filled_at_ns[0] < SECOND_NS
    counted = manifest.workers[0].counters
    assert counted["recorder_overflow"] == 0
    assert pq.read_table(folder.table(PUBLISHES)).num_rows >= counted["sent"] > 0
    assert pq.read_table(folder.table(DELIVERIES)).num_rows == counted["received"] > 0
    assert not [path for path in folder.path.rglob(".*") if path.is_file()], "no halves of files"
