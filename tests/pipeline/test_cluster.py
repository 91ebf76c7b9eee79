"""The same run on a real standalone cluster (master and two workers) and on this machine: identical tables.

On the cluster twice: gathered into one part, as small runs are, and spread over many, as large ones are.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pyarrow.parquet as pq
import pyspark
import pytest
from benchmarks.synthetic_capture import write_capture

from battlebrokers.pipeline.client import Analyst
from battlebrokers.tables import ALONE, DECODED, DERIVED, JOURNEYS, WIRE, Table
from support.evidence import Evidence
from support.ports import free_port

# Seven JVMs: on two cores that others use as well they take minutes to come up.
pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.timeout(600)]

SPARK_HOME = Path(pyspark.__file__).parent


def start(folder: Path, name: str, *arguments: str) -> subprocess.Popen[bytes]:
    env = {
        **os.environ,
        "SPARK_HOME": str(SPARK_HOME),
        "SPARK_LOCAL_DIRS": str(folder),
        "SPARK_WORKER_DIR": str(folder),
        # Executors inherit it: all of them live for a minute, and compiling thoroughly takes longer than it saves.
        "JAVA_TOOL_OPTIONS": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
    }
    with (folder / f"{name}.log").open("wb") as log:
        return subprocess.Popen([str(SPARK_HOME / "bin" / "spark-class"), *arguments], env=env, stdout=log, stderr=log)


def wait_for_line(log: Path, words: str, count: int = 1, seconds: float = 120) -> None:
    until = time.monotonic() + seconds
    while log.read_text(errors="replace").count(words) < count:
        assert time.monotonic() < until, log.read_text(errors="replace")[-2000:]
        time.sleep(0.1)


@pytest.fixture
def cluster(tmp_path_factory) -> Iterator[str]:
    folder = tmp_path_factory.mktemp("cluster")
    url = f"spark://127.0.0.1:{free_port()}"
    host = ("--host", "127.0.0.1", "--webui-port", "0")
    port = url.rsplit(":", 1)[1]
    running = [start(folder, "master", "org.apache.spark.deploy.master.Master", *host, "--port", port)]
    try:
        wait_for_line(folder / "master.log", "I have been elected leader")
        for number in (1, 2):
            worker = ("org.apache.spark.deploy.worker.Worker", *host, "--cores", "1", "--memory", "1g", url)
            running.append(start(folder, f"worker-{number}", *worker))
        wait_for_line(folder / "master.log", "Registering worker", 2)
        yield url
    finally:
        for process in reversed(running):
            process.terminate()
        for process in running:
            process.wait(60)


IN_MANY_PARTS = """
import sys
from battlebrokers.pipeline import audience, graph, session

# Limits of a large run: nothing is gathered, code is generated, and every shuffle has several parts.
session.FEW_EVENTS, session._EVENTS_PER_PARTITION, audience._ROWS_PER_PARTITION = 0, 1000, 1000
spread = {"spark.sql.adaptive.coalescePartitions.enabled": "false", "spark.sql.files.maxPartitionBytes": "16k"}
master, run, out = sys.argv[1:]
with session.start_session(master, extra=spread) as started:
    graph.analyze(started.spark, run, out)
"""


def a_bit_of_everything(folder: Path) -> Path:
    evidence = Evidence(folder)
    for client in range(4):
        evidence.connect(client)
        evidence.subscribe(client, "#" if client < 2 else "t/1", qos=client % 3, share="g" if client == 3 else None)
    for device in range(3):
        for seq in range(400):
            at_ms = 20 * seq + device
            evidence.publish(device, seq, at_ms, f"t/{device}", qos=device, retain=device == 2, acked=seq % 50 > 0)
            for client in (0, 1, *((2, 3) if device == 1 else ())):
                if (seq + client) % 37:
                    evidence.deliver(client, device, seq, at_ms, at_ms + 1 + (seq * 7919) % 40, dup=seq % 91 == 0)
                if not (seq + client) % 101:
                    evidence.deliver(client, device, seq, at_ms, at_ms + 60)
    for seq in range(0, 400, 3):
        evidence.ack(2, seq, 20 * seq + 500)
    for seq in range(400, 410):
        evidence.publish(0, seq, 20 * seq, "t/0", outcome="failed" if seq % 3 else "refused")
    for second in range(10):
        for service in ("broker", "store"):
            evidence.sample(1000 * second, service, 30 + second / 3, moved_bytes=1_000_000 * second)
    return evidence.write(segments=4)


def sorted_rows(folder: Path, table: Table) -> list[str]:
    return sorted(map(repr, pq.read_table(folder / table.folder).to_pylist()))


def test_a_cluster_gives_the_same_tables(tmp_path, cluster):
    run = a_bit_of_everything(tmp_path / "run")
    capture = tmp_path / "capture.pcap"
    write_capture(capture, 3 << 20)
    elsewhere = tmp_path / "from-the-cluster"
    with Analyst.start("local[2]", expected_events=100_000, idle=False) as analyst:
        analyst.analyze(str(run))
        analyst.decode([str(capture)], str(tmp_path / "capture"), {"10.0.0.1": "broker"})
    with Analyst.start(cluster, expected_events=100_000, idle=False) as analyst:
        analyst.analyze(str(run), out=str(elsewhere))
        analyst.decode([str(capture)], str(elsewhere / "capture"), {"10.0.0.1": "broker"})
    in_parts = tmp_path / "in-many-parts"
    subprocess.run([sys.executable, "-c", IN_MANY_PARTS, cluster, str(run), str(in_parts)], check=True)
    parts = {folder: len(list((folder / JOURNEYS.folder).glob("*.parquet"))) for folder in (run, elsewhere, in_parts)}
    assert parts[run] == parts[elsewhere] == 1
    assert parts[in_parts] > 2
    for table in DERIVED:
        here = sorted_rows(run, table)
        assert here, table.name
        assert here == sorted_rows(elsewhere, table), table.name
        assert here == sorted_rows(in_parts, table), table.name
    for table in (ALONE.get(table.name, table) for table in (*DECODED, *WIRE)):
        here, there = sorted_rows(tmp_path / "capture", table), sorted_rows(elsewhere / "capture", table)
        assert here == there, table.name
        assert here or table.name == "endings"
