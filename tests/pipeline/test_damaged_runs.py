"""Runs that were killed, cut short, or damaged on disk: bad evidence is normal evidence."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from battlebrokers.errors import EnvironmentNotReady, RunFolderError
from battlebrokers.pipeline.graph import _in_short, _told, analyze
from battlebrokers.tables import DELIVERIES, DERIVED, JOURNEYS, LEDGER, NODES, OPERATIONS, PUBLISHES
from battlebrokers.tables.manifest import CaptureFacts, Phase, WorkerFacts
from battlebrokers.tables.run_folder import RunFolder
from pipeline.world import LOAD_NS, PHASES, START_NS, Result, World
from support import capture_writer as write

pytestmark = pytest.mark.spark


def outcomes(result: Result, device: int) -> list[str]:
    return [row["outcome"] for row in sorted(result.rows(JOURNEYS, device=device), key=lambda row: row["seq"])]


def test_a_run_without_any_evidence_gives_empty_tables(spark: SparkSession, run_path: Path) -> None:
    folder = World().write(run_path, phases=[])
    analyze(spark, str(run_path))
    for table in DERIVED:
        assert folder.table(table).is_dir()
        assert Result(folder).rows(table) == []


def test_a_folder_without_manifest_is_no_run(spark: SparkSession, tmp_path: Path) -> None:
    with pytest.raises(RunFolderError, match="no manifest"):
        analyze(spark, str(tmp_path))


def test_a_damaged_manifest_is_named(spark: SparkSession, tmp_path: Path) -> None:
    (tmp_path / "manifest.json").write_text('{"run": 7}')
    with pytest.raises(RunFolderError, match="damaged"):
        analyze(spark, str(tmp_path))


def test_a_killed_run_is_analysed_up_to_its_last_flush(spark: SparkSession, run_path: Path) -> None:
    world = World()
    device, client = world.device(), world.client("t")
    messages = [world.publish(device, "t", 3 + n / 10, qos=1) for n in range(5)]
    for n in (0, 2):
        world.deliver(client, messages[n], 3.5 + n / 10)
    # Its publish was not written any more when the run was killed.
    unrecorded = world.publish(device, "t", 4.0, qos=1)
    world.rows[PUBLISHES].pop()
    world.deliver(client, unrecorded, 4.1)
    phases = [*PHASES[:2], Phase("measure", PHASES[2].start_ns, 0)]
    result = Result(world.write(run_path, state="running", phases=phases))
    analyze(spark, str(run_path))
    # 1 was overtaken by 2, so it is lost; of 3 and 4 nobody can say.
    assert outcomes(result, device) == ["delivered", "lost", "delivered", "indeterminate", "indeterminate"]
    assert {row["phase"] for row in result.rows(JOURNEYS)} == {"measure"}


def test_what_was_on_its_way_when_the_broker_died_is_not_called_lost(spark: SparkSession, run_path: Path) -> None:
    world = World()
    device, client = world.device(), world.client("t", qos=0)
    messages = [world.publish(device, "t", 3 + n / 10) for n in range(4)]
    world.deliver(client, messages[0], 3.1)
    world.deliver(client, messages[2], 3.3)
    never_heard = world.device()
    world.publish(never_heard, "t", 3.0)
    stray = world.publish(device, "elsewhere", 2.9)
    world.deliver(client, stray, 3.4)
    result = Result(world.write(run_path, state="broker-failed"))
    analyze(spark, str(run_path))
    assert outcomes(result, device) == ["delivered", "lost", "delivered", "indeterminate", "unexpected"]
    assert outcomes(result, never_heard) == ["indeterminate"]


def _damage(run: World, path: Path) -> dict[str, str]:
    """Break one segment in each way a disk or a kill can; returns file → part of the reason."""
    folder = run.write(path)
    deliveries, publishes = folder.table(DELIVERIES), folder.table(PUBLISHES)
    whole = (deliveries / "w-00000.parquet").read_bytes()
    (deliveries / "w-00002.parquet").write_bytes(whole[: len(whole) // 2])
    (deliveries / "w-00003.parquet").write_bytes(b"")
    (deliveries / "w-00004.parquet").write_bytes(b"not parquet at all")
    (deliveries / ".w-00005.parquet.tmp").write_bytes(b"still being written")
    pq.write_table(pa.table({"foreign": [1, 2, 3]}), publishes / "w-00002.parquet")
    wrong_kind = pq.read_table(publishes / "w-00000.parquet")
    place = wrong_kind.column_names.index("seq")
    wrong_kind = wrong_kind.set_column(place, "seq", wrong_kind["seq"].cast(pa.string()))
    pq.write_table(wrong_kind, publishes / "w-00003.parquet")
    return {
        "recorded/deliveries/w-00002.parquet": "",
        "recorded/deliveries/w-00003.parquet": "",
        "recorded/deliveries/w-00004.parquet": "",
        "recorded/publishes/w-00002.parquet": "no column worker",
        "recorded/publishes/w-00003.parquet": "seq is string",
    }


def test_broken_segments_are_named_and_left_out(spark: SparkSession, run_path: Path) -> None:
    world = World()
    device, client = world.device(), world.client("t")
    for n in range(4):
        world.deliver(client, world.publish(device, "t", 3 + n / 10, qos=1), 4 + n / 10)
    broken = _damage(world, run_path)
    outcome = analyze(spark, str(run_path))
    recorded = json.loads((run_path / "measures" / "defects.json").read_text())
    assert {defect["file"] for defect in recorded} == set(broken)
    assert all(broken[defect["file"]] in defect["reason"] and defect["reason"] for defect in recorded)
    assert len(outcome.defects) == len(broken)
    assert outcomes(Result(RunFolder(run_path)), device) == ["delivered"] * 4


def test_segments_that_are_gone_are_named(spark: SparkSession, run_path: Path) -> None:
    world = World()
    device, client = world.device(), world.client("t")
    for n in range(4):
        world.deliver(client, world.publish(device, "t", 3 + n / 10, qos=1), 4 + n / 10)
    folder = world.write(run_path)
    deliveries = folder.table(DELIVERIES)
    (deliveries / "w-00001.parquet").rename(deliveries / "w-00004.parquet")
    outcome = analyze(spark, str(run_path))
    assert [(defect.file, defect.reason) for defect in outcome.defects] == [
        ("recorded/deliveries/w-00001.parquet", "it is missing, and 2 after it")
    ]


def counted(folder: RunFolder, **counters: int) -> None:
    manifest = folder.read_manifest()
    worker = WorkerFacts(name="w", host="h", boot_id="b", pid=1, processes=1, counters=counters)
    folder.write_manifest(msgspec.structs.replace(manifest, workers=[worker]))


def test_a_table_that_is_gone_is_named_where_workers_counted_rows(spark: SparkSession, run_path: Path) -> None:
    world = World()
    device, client = world.device(), world.client("t")
    world.deliver(client, world.publish(device, "t", 3.0, qos=1), 3.1)
    folder = world.write(run_path)
    counted(folder, sent=1, received=1)
    shutil.rmtree(folder.table(DELIVERIES))
    outcome = analyze(spark, str(run_path))
    assert [(defect.file, defect.reason) for defect in outcome.defects] == [
        ("recorded/deliveries", "nothing is here, but the workers counted 1")
    ]


def test_a_run_whose_evidence_is_gone_keeps_what_was_computed_from_it(spark: SparkSession, run_path: Path) -> None:
    world = World()
    device, client = world.device(), world.client("t")
    world.deliver(client, world.publish(device, "t", 3.0, qos=1), 3.1)
    folder = world.write(run_path)
    counted(folder, sent=1, received=1)
    analyze(spark, str(run_path))
    shutil.rmtree(run_path / "recorded")
    with pytest.raises(RunFolderError, match="no evidence any more"):
        analyze(spark, str(run_path))
    assert len(Result(folder).rows(JOURNEYS)) == 1


def test_a_capture_nothing_can_be_read_from_costs_the_others_nothing(spark: SparkSession, run_path: Path) -> None:
    folder = World().write(run_path)
    files = {name: f"recorded/captures/{name}-00001.pcap" for name in ("broker", "redis", "gate")}
    (run_path / "recorded" / "captures").mkdir(parents=True)
    frame = write.ethernet(write.ipv4(write.tcp(1, 2)))
    (run_path / files["broker"]).write_bytes(write.pcap([write.Frame(START_NS, frame, -1)] * 3))
    (run_path / files["redis"]).write_bytes(b"")
    captures = [CaptureFacts(name, [file]) for name, file in files.items()]
    folder.write_manifest(msgspec.structs.replace(folder.read_manifest(), captures=captures))
    assert analyze(spark, str(run_path)).defects == []
    decoded = json.loads(folder.decoded_summary_path.read_text())
    assert decoded["packets"] == 3
    said = {Path(one["file"]).name: one["reason"] for one in decoded["defects"]}
    assert said == {"redis-00001.pcap": "it is empty", "gate-00001.pcap": "it does not exist"}
    # When none is left, what was decoded before is all there is of them.
    (run_path / files["broker"]).unlink()
    assert {one.file for one in analyze(spark, str(run_path)).defects} == {"recorded/captures"}
    assert json.loads(folder.decoded_summary_path.read_text())["packets"] == 3


def test_a_segment_broken_behind_a_sound_footer_is_found_when_it_is_read(spark: SparkSession, run_path: Path) -> None:
    world = World()
    device, client = world.device(), world.client("t")
    for n in range(2000):
        world.deliver(client, world.publish(device, "t", 3 + n / 1000, qos=1), 6 + n / 1000)
    folder = world.write(run_path)
    segment = folder.table(DELIVERIES) / "w-00001.parquet"
    content = bytearray(segment.read_bytes())
    content[200 : len(content) // 2] = bytes(len(content) // 2 - 200)
    segment.write_bytes(bytes(content))
    outcome = analyze(spark, str(run_path))
    assert [defect.file for defect in outcome.defects] == ["recorded/deliveries/w-00001.parquet"]
    counts = {row["outcome"] for row in Result(folder).rows(JOURNEYS)}
    assert counts == {"delivered", "lost"}
    (row,) = Result(folder).rows(LEDGER)
    assert (row["delivered"], row["lost"]) == (1000, 1000)


def test_tables_that_were_never_written_do_not_matter(spark: SparkSession, run_path: Path) -> None:
    world = World()
    device, client = world.device(), world.client("t")
    world.deliver(client, world.publish(device, "t", 3.0, qos=1), 3.1)
    world.rows[NODES].clear()
    world.rows[OPERATIONS].clear()
    result = Result(world.write(run_path, phases=[Phase("connect", START_NS, LOAD_NS)]))
    analyze(spark, str(run_path))
    # Nobody is known to have subscribed, and no device is known by name.
    (row,) = result.rows(JOURNEYS)
    assert (row["outcome"], row["device"], row["client"], row["client_fleet"]) == ("unexpected", -1, client, "")


def test_a_second_analysis_replaces_the_first(spark: SparkSession, run_path: Path) -> None:
    world = World()
    device, client = world.device(), world.client("t")
    world.deliver(client, world.publish(device, "t", 3.0, qos=1), 3.1)
    folder = world.write(run_path)
    (run_path / "measures" / "old").mkdir(parents=True)
    evidence = {path: path.read_bytes() for path in (run_path / "recorded").rglob("*.parquet")}
    analyze(spark, str(run_path))
    analyze(spark, str(run_path))
    assert len(Result(folder).rows(JOURNEYS)) == 1
    assert not (run_path / "measures" / "old").exists()
    assert {path: path.read_bytes() for path in (run_path / "recorded").rglob("*.parquet")} == evidence
    assert not list(run_path.rglob("*.crc"))
    assert not list(run_path.rglob("_*"))


def test_what_went_wrong_in_a_worker_is_named_in_one_line(spark: SparkSession) -> None:
    def fail(_batches):
        raise ValueError("no such wire")

    with pytest.raises(PySparkException) as raised:
        spark.range(1).mapInArrow(fail, "n BIGINT").collect()
    assert _in_short(raised.value).endswith("ValueError: no such wire")
    assert _in_short(RuntimeError("one\ntwo")) == "one"
    assert _in_short(RuntimeError()) == "RuntimeError"


def test_what_the_jvm_complains_of_is_its_last_cause() -> None:
    full = """An error occurred while calling o2848.parquet.
: org.apache.spark.SparkException: [TASK_WRITE_FAILED] Task failed while writing rows
\tat org.apache.spark.sql.Writer.write(Writer.scala:7)
Caused by: java.io.IOException: No space left on device
\tat java.base/sun.nio.ch.FileDispatcherImpl.write0(Native Method)
"""
    assert _in_short(RuntimeError(full)) == "No space left on device"
    assert isinstance(_told(RuntimeError(full)), EnvironmentNotReady)
    other = full.replace("java.io.IOException: No space left on device", "java.lang.StackOverflowError")
    assert _in_short(RuntimeError(other)) == "java.lang.StackOverflowError"
    assert _told(RuntimeError(other)).message == "the analysis failed: java.lang.StackOverflowError"
    shallow = "An error occurred while calling o1.x.\n: java.lang.IllegalStateException: stopped\n\tat A.b(C)"
    assert _in_short(RuntimeError(shallow)) == "stopped"


def test_phases_of_another_time_than_the_evidence_are_refused_before_anything_is_computed(
    spark: SparkSession, run_path: Path
) -> None:
    world = World()
    device, client = world.device(), world.client("t")
    world.deliver(client, world.publish(device, "t", 3.0, qos=1), 3.1)
    folder = world.write(run_path)
    later_ns = 300 * 86_400 * 10**9
    manifest = json.loads(folder.manifest_path.read_bytes())
    manifest["started_ns"] += later_ns
    for phase in manifest["phases"]:
        phase["start_ns"] += later_ns
        phase["end_ns"] += later_ns
    folder.manifest_path.write_text(json.dumps(manifest))
    with pytest.raises(RunFolderError, match="its phases do not fit the evidence"):
        analyze(spark, str(run_path))
    assert not folder.table(JOURNEYS).exists()


def test_a_segment_of_another_time_is_a_defect_and_the_rest_is_analysed(spark: SparkSession, run_path: Path) -> None:
    world = World()
    device, client = world.device(), world.client("t")
    world.deliver(client, world.publish(device, "t", 3.0, qos=1), 3.1)
    folder = world.write(run_path)
    segment = next(folder.table(DELIVERIES).glob("*.parquet"))
    rows = pq.read_table(segment)
    place = rows.schema.get_field_index("received_ns")
    strange = rows.set_column(place, rows.schema.field(place), pa.array([10**18] * rows.num_rows, pa.int64()))
    pq.write_table(strange, segment.with_name("x-00000.parquet"))
    analyze(spark, str(run_path))
    defects = json.loads((folder.path / "measures" / "defects.json").read_bytes())
    assert ["its times are not of this run" in defect["reason"] for defect in defects].count(True) == 1
    assert outcomes(Result(folder), device) == ["delivered"]
