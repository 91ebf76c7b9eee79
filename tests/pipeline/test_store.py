"""The two kinds of places a run can lie in behave alike."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from battlebrokers.errors import RunFolderError
from battlebrokers.pipeline import graph
from battlebrokers.pipeline.graph import analyze
from battlebrokers.pipeline.store import HadoopStore, LocalStore, Store, open_store
from battlebrokers.tables import DELIVERIES, LEDGER
from battlebrokers.tables.run_folder import RunFolder
from pipeline.world import Result, World

pytestmark = pytest.mark.spark


@pytest.fixture(params=["local", "hadoop"])
def store(request: pytest.FixtureRequest, spark: SparkSession, tmp_path: Path) -> Store:
    # Hadoop's own view of local files stands for every other file system it knows.
    return LocalStore(tmp_path) if request.param == "local" else HadoopStore(tmp_path.as_uri(), spark)


def test_a_file_written_is_a_file_read(store: Store) -> None:
    store.write("measures/defects.json", b"\x00\xff[]")
    assert store.read("measures/defects.json") == b"\x00\xff[]"
    assert store.tail("measures/defects.json", 2) == b"[]"
    assert store.tail("measures/defects.json", 100) == b"\x00\xff[]"


def test_what_is_not_there_is_not_an_error(store: Store) -> None:
    assert store.read("manifest.json") is None
    assert store.segments("recorded/publishes") == []
    store.delete("measures")


def test_only_finished_segments_are_listed(store: Store) -> None:
    for name in ("b.parquet", "a.parquet", ".c.parquet.tmp", "_d.parquet", "notes.txt"):
        store.write(f"recorded/publishes/{name}", b"x")
    assert store.segments("recorded/publishes") == ["recorded/publishes/a.parquet", "recorded/publishes/b.parquet"]
    store.delete("recorded")
    assert store.segments("recorded/publishes") == []


def test_addresses_find_their_store(spark: SparkSession, tmp_path: Path) -> None:
    spaced = tmp_path / "with space"
    assert isinstance(open_store(str(spaced), spark), LocalStore)
    local = open_store(spaced.as_uri(), spark)
    assert isinstance(local, LocalStore)
    assert local.path == spaced
    assert local.locate("x") == f"{spaced.as_uri()}/x"
    assert isinstance(open_store("hdfs://name:9000/runs/1", spark), HadoopStore)


def test_a_run_on_a_hadoop_file_system_is_analysed_like_any_other(
    spark: SparkSession, run_path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = World()
    device, client = world.device(), world.client("t")
    for n in range(3):
        world.deliver(client, world.publish(device, "t", 3 + n / 10, qos=1), 4 + n / 10)
    folder = world.write(run_path)
    (folder.table(DELIVERIES) / "w-00002.parquet").write_bytes(b"torn")
    monkeypatch.setattr(graph, "open_store", lambda address, spark: HadoopStore(Path(address).as_uri(), spark))
    outcome = analyze(spark, str(run_path), str(tmp_path / "out"))
    assert [defect.file for defect in outcome.defects] == ["recorded/deliveries/w-00002.parquet"]
    (row,) = Result(RunFolder(tmp_path / "out")).rows(LEDGER)
    assert (row["delivered"], row["lost"]) == (3, 0)
    with pytest.raises(RunFolderError):
        analyze(spark, str(tmp_path / "nowhere"))
