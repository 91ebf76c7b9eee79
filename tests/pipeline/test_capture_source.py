"""Captures come into Spark whole, whatever they are packed in and however they are cut into partitions."""

from __future__ import annotations

import gzip
import random
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from battlebrokers.errors import InputError
from battlebrokers.pipeline.captures import Captures, decode
from battlebrokers.pipeline.sources.capture import CaptureReader, prepared
from battlebrokers.pipeline.sources.files import RandomFile
from battlebrokers.pipeline.store import LocalStore, Store
from battlebrokers.tables import STREAMS
from support import capture_writer as write
from support.capture_writer import Frame

NOW_NS = 1_700_000_000_000_000_000


def frames(count: int) -> list[Frame]:
    noise = random.Random(3)
    return [
        Frame(
            NOW_NS + number * 1000,
            write.ethernet(
                write.ipv4(write.tcp(noise.randint(40000, 40100), 1883, seq=number, payload=noise.randbytes(200)))
            ),
        )
        for number in range(count)
    ]


def rows(paths: list[str], part_bytes: int = 1 << 30, wires: list[int] | None = None) -> list[dict]:
    reader = CaptureReader(paths, wires or list(range(len(paths))), part_bytes)
    return [row for part in reader.partitions() for batch in reader.read(part) for row in batch.to_pylist()]


@pytest.mark.spark
@pytest.mark.parametrize("kind", [write.pcap, write.pcapng])
def test_spark_reads_the_same_rows_from_one_partition_and_from_many(spark: SparkSession, tmp_path: Path, kind):
    content = bytearray(kind(frames(9000)))
    content[1_000_000:1_000_400] = bytes(400)
    paths = [str(tmp_path / "one.pcap"), str(tmp_path / "two.pcap")]
    Path(paths[0]).write_bytes(bytes(content))
    Path(paths[1]).write_bytes(kind(frames(20)))
    reader = spark.read.format("capture")
    whole = reader.load(paths)
    many = spark.read.format("capture").option("partBytes", 300_000).load(paths)
    assert whole.rdd.getNumPartitions() == 2
    assert many.rdd.getNumPartitions() > 6
    one = [row.asDict() for row in whole.orderBy("file", "at").collect()]
    assert one == [row.asDict() for row in many.orderBy("file", "at").collect()]
    assert one == rows(paths)
    assert {row["fault"] for row in one} == {None, "record"}
    assert sum(row["file"] == 1 for row in one) == 20
    single = spark.read.format("capture").load(paths[1])
    assert single.count() == 20
    assert single.where("destination_port = 1883 AND payload_bytes = 200").count() == 20


def packed_as(packing: str, content: bytes) -> bytes:
    return gzip.compress(content) if packing == "gzip" else pa.compress(content, codec="zstd", asbytes=True)


@pytest.mark.spark
def test_spark_reads_packed_captures_each_in_one_task(spark: SparkSession, tmp_path: Path):
    content = write.pcapng(frames(2000))
    halves = packed_as("gzip", content[:300_000]) + packed_as("gzip", content[300_000:])
    given = {"plain": content, "a.pcapng.gz": halves, "b.pcapng.zst": packed_as("zstd", content)}
    given["cut.gz"] = packed_as("gzip", content)[:-6]
    for name, packed in given.items():
        (tmp_path / name).write_bytes(packed)
    read = spark.read.format("capture").load([str(tmp_path / name) for name in given])
    assert read.rdd.getNumPartitions() == 4
    found: dict[int, list[dict]] = {}
    for row in read.orderBy("file", "at").collect():
        columns = row.asDict()
        found.setdefault(columns.pop("file"), []).append({**columns, "stream": None})
    assert len(found[0]) == 2000
    assert found[1] == found[2] == found[0]
    # All packets are there, and what is not whole tells so behind the last.
    assert found[3][:-1] == found[0]
    assert (found[3][-1]["fault"], found[3][-1]["at"]) == ("record", len(content))


@pytest.mark.spark
def test_spark_says_what_packed_file_is_no_capture(spark: SparkSession, tmp_path: Path):
    (tmp_path / "text.gz").write_bytes(gzip.compress(b"no capture at all"))
    with pytest.raises(Exception, match=r"text\.gz is no capture"):
        spark.read.format("capture").load(str(tmp_path / "text.gz")).count()


def test_files_of_one_wire_share_their_streams(tmp_path: Path):
    for name in ("a", "b"):
        (tmp_path / name).write_bytes(write.pcap(frames(50)))
    paths = [str(tmp_path / "a"), str(tmp_path / "b")]
    apart, together = rows(paths), rows(paths, wires=[0, 0])
    assert {row["stream"] for row in apart[:50]}.isdisjoint(row["stream"] for row in apart[50:])
    assert [row["stream"] for row in together[:50]] == [row["stream"] for row in together[50:]]
    assert [row["file"] for row in together] == [0] * 50 + [1] * 50


def test_packed_captures_are_unpacked_beside_the_tables(tmp_path: Path):
    content = write.pcap(frames(3000))
    half = len(content) // 2
    files = {
        "plain.pcap": content,
        "two-members.pcap.gz": gzip.compress(content[:half]) + gzip.compress(content[half:]) + bytes(512),
        "no-suffix": pa.compress(content, codec="zstd", asbytes=True),
        "two-frames.pcap.zst": b"".join(
            pa.compress(part, codec="zstd", asbytes=True) for part in (content[:half], content[half:])
        ),
    }
    for name, packed in files.items():
        (tmp_path / name).write_bytes(packed)
    given = [str(tmp_path / name) for name in files]
    given[0] = (tmp_path / "plain.pcap").as_uri()
    plain, defects = prepared(given, LocalStore(tmp_path / "out"))
    assert defects == []
    assert plain[0] == str(tmp_path / "plain.pcap")
    assert all(Path(path).read_bytes() == content for path in plain)
    assert all(str(tmp_path / "out" / "decoded" / "captures") in path for path in plain[1:])


@pytest.mark.parametrize("packing", ["gzip", "zstd"])
def test_packed_captures_that_were_cut_off_yield_what_can_be_read(tmp_path: Path, packing):
    content = write.pcap(frames(5000))
    packed = packed_as(packing, content)
    path = tmp_path / "cut"
    path.write_bytes(packed[: len(packed) // 2])
    (plain,), (defect,) = prepared([str(path)], LocalStore(tmp_path / "out"))
    assert defect["file"] == str(path)
    assert defect["count"] == 1
    found = rows([plain])
    assert len(found) > 1500
    assert [row["fault"] for row in found[:-1]] == [None] * (len(found) - 1)


def plain_of(tmp_path: Path, packed: bytes) -> tuple[bytes, dict[str, int]]:
    """What is unpacked of this, and its defects."""
    path = tmp_path / "packed"
    path.write_bytes(packed)
    (plain,), defects = prepared([str(path)], LocalStore(tmp_path / "out"))
    assert {defect["file"] for defect in defects} <= {str(path)}
    return Path(plain).read_bytes(), {defect["reason"]: defect["count"] for defect in defects}


@pytest.mark.parametrize("packing", ["gzip", "zstd"])
def test_all_that_lies_before_a_damaged_place_is_unpacked(tmp_path: Path, packing):
    content = write.pcap(frames(3000))
    noise = random.Random(5)
    for number in range(10):
        packed = bytearray(packed_as(packing, content))
        at = noise.randrange(len(packed) // 4, len(packed))
        if packing == "gzip" and number % 2:  # zstd needs no checksum, and then a flip may stay unseen
            packed[at] ^= 1 << noise.randrange(8)
        else:
            packed[at:] = noise.randbytes(len(packed) - at)
        found, defects = plain_of(tmp_path, bytes(packed))
        # Payloads are noise: a packed byte holds little more than a plain one. Of zstd whole blocks are lost.
        lost = 1000 if packing == "gzip" else 131_072
        known = content[: max(1, int(len(content) * at / len(packed)) - lost)]
        assert found.startswith(known)
        reasons = {
            f"cut off or damaged {packing} data: the rest is missing",
            f"wrong checksum of {packing} data: what was unpacked may be damaged",
        }
        assert defects
        assert set(defects) <= reasons


def test_a_wrong_checksum_costs_nothing_and_is_told(tmp_path: Path):
    content = write.pcap(frames(3000))
    parts = [content[:200_000], content[200_000:500_000], content[500_000:]]
    members = [bytearray(gzip.compress(part)) for part in parts]
    for flipped in (-8, -1):  # the checksum, and the length behind it
        members[0][-8] ^= 1
        members[1][flipped] ^= 1
        found, defects = plain_of(tmp_path, b"".join(members))
        assert found == content
        assert defects == {"wrong checksum of gzip data: what was unpacked may be damaged": 2}
        members = [bytearray(gzip.compress(part)) for part in parts]
    single = bytearray(gzip.compress(content))
    single[-5] ^= 0x80
    assert plain_of(tmp_path, bytes(single)) == (
        content, {"wrong checksum of gzip data: what was unpacked may be damaged": 1}
    )  # fmt: skip


@pytest.mark.parametrize("packing", ["gzip", "zstd"])
def test_what_is_packed_very_small_is_unpacked_whole(tmp_path: Path, packing):
    content = write.pcap([Frame(NOW_NS, bytes(60_000)) for _ in range(300)])
    packed = packed_as(packing, content)
    assert len(packed) < len(content) // 500
    assert plain_of(tmp_path, packed) == (content, {})
    found, defects = plain_of(tmp_path, packed[:-1])
    assert len(content) - len(found) < 131_072
    assert len(defects) == 1


def test_drops_told_at_the_end_of_a_capture_are_defects(tmp_path: Path):
    path = tmp_path / "a.pcapng"
    front = write.section() + write.interface() + b"".join(write.packet(frame) for frame in frames(500))
    path.write_bytes(front + write.statistics(0, 3, 4) + write.statistics(0, 5, 6) + write.statistics(1, 1, 0))
    _, defects = prepared([str(path)], LocalStore(tmp_path / "out"))
    assert [(defect["reason"], defect["count"]) for defect in defects] == [
        ("packets dropped by the interface while capturing", 6),
        ("packets dropped by the system while capturing", 6),
    ]


def test_what_cannot_be_read_is_said_at_once(tmp_path: Path):
    (tmp_path / "empty").write_bytes(b"")
    (tmp_path / "text").write_text("no capture at all")
    (tmp_path / "packed-text").write_bytes(gzip.compress(b"no capture at all"))
    (tmp_path / "packed-nothing").write_bytes(gzip.compress(b""))
    target = LocalStore(tmp_path / "out")
    for name, reason in {
        "empty": "is empty", "text": "no capture", "packed-text": "no capture", "missing": "does not exist",
        "packed-nothing": "nothing", ".": "cannot be read",
    }.items():  # fmt: skip
        with pytest.raises(InputError, match=reason) as caught:
            prepared([str(tmp_path / name)], target)
        assert caught.value.hint
    with pytest.raises(InputError, match="cannot be read"):
        prepared(["nowhere://a/b"], target)


def test_a_capture_without_packets_is_a_capture(tmp_path: Path):
    (tmp_path / "a").write_bytes(write.pcap([]))
    (tmp_path / "b").write_bytes(write.section() + write.interface())
    plain, defects = prepared([str(tmp_path / "a"), str(tmp_path / "b")], LocalStore(tmp_path / "out"))
    assert rows(plain) == []
    assert defects == []


def test_addresses_with_a_scheme_are_read_through_arrow(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    from pyarrow import fs

    from battlebrokers.pipeline.sources import files

    (tmp_path / "far.pcap").write_bytes(write.pcap(frames(100)))
    asked = []

    def from_uri(address: str):
        asked.append(address)
        return fs.SubTreeFileSystem(str(tmp_path), fs.LocalFileSystem()), address.split("://bucket/")[1]

    class Files:
        pass

    Files.from_uri = staticmethod(from_uri)
    monkeypatch.setattr(fs, "FileSystem", Files)
    with files.RandomFile("s3a://bucket/far.pcap") as file:
        assert file.size == (tmp_path / "far.pcap").stat().st_size
        assert file.read(file.size - 2, 99) == (tmp_path / "far.pcap").read_bytes()[-2:]
    (tmp_path / "far.pcap.gz").write_bytes(gzip.compress(write.pcap(frames(100))))
    (tmp_path / "tables/decoded/captures").mkdir(parents=True)
    monkeypatch.setattr(Store, "__abstractmethods__", frozenset())
    (unpacked,), defects = prepared(["s3://bucket/far.pcap.gz"], Store("s3a://bucket/tables"))
    assert (unpacked, defects) == ("s3a://bucket/tables/decoded/captures/000-far.pcap", [])
    assert len(rows([unpacked])) == 100
    asked.clear()
    plain, _ = prepared(["s3://bucket/far.pcap"], LocalStore(tmp_path / "out"))
    assert plain == ["s3://bucket/far.pcap"]
    assert len(rows(plain)) == 100
    assert asked[0] == "s3://bucket/far.pcap"


def test_files_at_the_end_are_read_as_far_as_they_go(tmp_path: Path):
    (tmp_path / "a").write_bytes(b"0123456789")
    with RandomFile(str(tmp_path / "a")) as file:
        assert file.read(8, 100) == b"89"
        assert file.read(50, 1) == b""


@pytest.mark.spark
def test_services_on_ipv6_get_their_names_however_they_were_spelled(spark: SparkSession, tmp_path: Path):
    said = [(50_000, 6379, b"PING\r\n"), (6379, 50_000, b"+PONG\r\n")]
    content = []
    for number, (source, port, payload) in enumerate(said):
        ends = {"source": "2001:db8::9", "destination": "2001:db8::5"}
        if port == 50_000:
            ends = {"source": ends["destination"], "destination": ends["source"]}
        segment = write.tcp(source, port, seq=1 + number, payload=payload)
        content.append(Frame(NOW_NS + number, write.ethernet(write.ipv6(segment, **ends), kind=0x86DD)))
    (tmp_path / "a.pcap").write_bytes(write.pcap(content))
    captures = Captures([str(tmp_path / "a.pcap")], names={"[2001:DB8:0::5]:6379": "redis", "[2001:db8::9]": "web"})
    decode(spark, captures, LocalStore(tmp_path / "out"))
    (stream,) = spark.read.parquet(str(tmp_path / "out" / STREAMS.folder)).collect()
    assert (stream["server"], stream["server_service"], stream["client_service"]) == ("2001:db8::5", "redis", "web")
