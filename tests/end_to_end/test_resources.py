"""Resources as others tell them: real control groups, a real Prometheus, real files of sysstat's."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from battlebrokers.contenders.reader import SPECS
from battlebrokers.record.cgroup import hierarchy, read_group
from battlebrokers.record.resources import ResourceSampler
from battlebrokers.run.observing import Accounts
from battlebrokers.tables import RESOURCES
from battlebrokers.tables.run_folder import RunFolder
from support.ports import free_port
from support.runs import run_for_real, write_scenario

pytestmark = [pytest.mark.slow]

TALK = """
name: talk
fleets:
  sensor: {devices: 5, topic: "talk/{device}", payload: {random_bytes: 64}, every: 40/s, qos: 1}
clients:
  listener: {count: 1, subscribe: ["talk/#"], qos: 1}
phases: {measure: 6s, drain: 5s, quiet: 1s}
"""
BUSY = "import time\nwhile True: sum(range(1000))"


def rows_of(folder: Path) -> list[dict[str, Any]]:
    files = sorted((folder / RESOURCES.folder).glob("*.parquet"))
    return [row for file in files for row in pq.ParquetFile(file).read().to_pylist()]


@pytest.fixture
def group() -> Iterator[Path]:
    """A control group of our own."""
    mounted = hierarchy()
    if mounted is None:
        pytest.skip("control groups of version 2 are not mounted here")
    folder = mounted / f"bb-test-{time.monotonic_ns()}"
    try:
        folder.mkdir()
    except OSError as error:
        pytest.skip(f"no control group can be made here: {error.strerror}")
    yield folder
    until = time.monotonic() + 60
    while (folder / "cgroup.procs").read_text().strip() and time.monotonic() < until:
        time.sleep(0.05)
    folder.rmdir()


@pytest.mark.alone
@pytest.mark.root
def test_a_service_in_a_group_of_its_own_is_counted_by_the_kernel(tmp_path, group):
    if (read_group(group) or pytest.fail("the group is gone")).cpu_seconds is None:
        pytest.skip("this kernel counts no CPU time in control groups of version 2")
    with subprocess.Popen([sys.executable, "-c", BUSY]) as busy:
        try:
            (group / "cgroup.procs").write_text(str(busy.pid))
            sampler = ResourceSampler(tmp_path, time.time_ns)
            sampler.watch("by-process", "contender", lambda: [busy.pid])
            sampler.watch("by-name", "contender", list, group.name)
            sampler.start()
            time.sleep(3.2)
            sampler.stop()
        finally:
            busy.kill()
    for name in ("by-process", "by-name"):
        mine = [row for row in rows_of(tmp_path) if row["service"] == name][:3]
        assert all(row["processes"] == 1 for row in mine)
        assert all(row["rss_bytes"] > 1_000_000 for row in mine)
        assert max(row["cpu_percent"] for row in mine) > 20
        assert max(row["busiest_thread_percent"] for row in mine) > 20


@pytest.fixture
def prometheus(tmp_path) -> Iterator[str]:
    """A Prometheus that watches itself every second."""
    program = shutil.which("prometheus")
    if program is None:
        pytest.skip("prometheus is not installed (apt-get install prometheus)")
    place = f"127.0.0.1:{free_port()}"
    (tmp_path / "prometheus.yml").write_text(
        "global: {scrape_interval: 1s}\n"
        f"scrape_configs: [{{job_name: itself, static_configs: [{{targets: ['{place}']}}]}}]\n"
    )
    words = [program, f"--config.file={tmp_path}/prometheus.yml", f"--storage.tsdb.path={tmp_path}/tsdb"]
    with (
        (tmp_path / "prometheus.log").open("wb") as log,
        subprocess.Popen([*words, f"--web.listen-address={place}"], stdout=log, stderr=log) as server,
    ):
        try:
            until = time.monotonic() + 60
            while not _has_scraped(f"http://{place}/api/v1/query?query=process_open_fds"):
                assert time.monotonic() < until, (tmp_path / "prometheus.log").read_text()
                time.sleep(0.1)
            yield f"http://{place}"
        finally:
            server.terminate()
            server.wait(60)


def _has_scraped(url: str) -> bool:
    try:
        with urllib.request.urlopen(url, timeout=60) as answer:
            return bool(json.load(answer)["data"]["result"])
    except OSError:
        return False


@pytest.mark.broker
def test_a_real_prometheus_tells_of_a_service_during_a_run(tmp_path, require_broker, prometheus):
    require_broker("mosquitto")
    said: list[str] = []
    mine = tmp_path / "mine.yaml"
    metrics = "{exporter: process, labels: {job: itself}, queries: {threads: 'go_threads{job=\"itself\"}'}}"
    spec = (SPECS / "mosquitto.yaml").read_text()
    mine.write_text(spec.replace('{mosquitto: ["*"]}', f'{{mosquitto: {{processes: ["*"], metrics: {metrics}}}}}'))
    accounts = Accounts(prometheus, {"extra": {"rss_bytes": "go_memstats_sys_bytes", "threads": "wrong(("}})
    folder = run_for_real(
        write_scenario(tmp_path, TALK), str(mine), tmp_path / "runs", accounts=accounts, say=said.append
    )
    rows = rows_of(folder.path)
    told = [row for row in rows if row["service"] == "mosquitto@prometheus"]
    manifest = folder.read_manifest()
    assert len(told) >= 5
    assert all(
        manifest.phases[0].start_ns - 10**9 <= row["sampled_ns"] <= manifest.phases[-1].end_ns + 10**9 for row in told
    )
    assert told[-1]["role"] == "observed"
    assert told[-1]["rss_bytes"] > 10_000_000
    assert told[-1]["threads"] >= 1
    assert told[-1]["cpu_percent"] is not None
    assert [row["rss_bytes"] for row in rows if row["service"] == "extra@prometheus"]
    assert len(said) == 1, said
    assert said[0].startswith("threads of extra@prometheus is not known: Prometheus:")


@pytest.mark.broker
@pytest.mark.spark
def test_a_file_of_sysstats_becomes_rows_that_the_analysis_takes(tmp_path, require_broker, analyst):
    require_broker("mosquitto")
    if shutil.which("sar") is None or shutil.which("sadf") is None:
        pytest.skip("sysstat is not installed (apt-get install sysstat)")
    file = tmp_path / "sa"
    with subprocess.Popen(["sar", "-o", str(file), "1", "300"], stdout=subprocess.DEVNULL) as sar:
        try:
            folder = run_for_real(
                write_scenario(tmp_path, TALK), "mosquitto", tmp_path / "runs", accounts=Accounts(sar=(file,))
            )
        finally:
            sar.terminate()
    told = [row for row in rows_of(folder.path) if row["service"].endswith("@sar")]
    assert len(told) >= 5
    assert all(row["rss_bytes"] > 0 and row["cpu_percent"] >= 0 for row in told)
    analyst.analyze(str(folder.path))
    assert _measured(folder, told[0]["service"]) >= 4


def _measured(folder: RunFolder, service: str) -> int:
    files = (folder.path / "measures" / "services").glob("*.parquet")
    rows = [row for file in files for row in pq.ParquetFile(file).read().to_pylist()]
    return sum(row["samples"] for row in rows if row["service"] == service and row["phase"] == "measure")
