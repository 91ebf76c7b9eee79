"""Kafka's protocol as kafka-python's generator writes it from Kafka's own schemas: names, ids and pairs are tshark's.

No Kafka server is at hand where these tests run. Every API of the client in up to three versions, then Produce and
Fetch with records in all versions. Deviations, with their reasons:

- `Record`s are messages of ours inside Produce and Fetch; tshark has no count of them, they are checked against what
  was written.
- Requests that are malformed to tshark 4.0 (versions it does not know yet, and a few of those it knows when their
  fields are empty) leave their responses nameless: those are compared with what was written.
"""

from __future__ import annotations

import importlib
import re
import uuid
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest

from battlebrokers.dissect.payload_marks import fingerprint_of
from battlebrokers.dissect.protocols.kafka import _APIS, _FLEXIBLE, _NEVER
from support.conversation import CLIENT, SERVER, Turn
from support.wiretap import needs, overheard, tshark, written

kafka = pytest.importorskip("kafka", reason="kafka-python is not installed")
api_message = pytest.importorskip("kafka.protocol.api_message", reason="kafka-python is not installed")
default_records = pytest.importorskip("kafka.record.default_records", reason="kafka-python is not installed")

pytestmark = [pytest.mark.slow, pytest.mark.broker]
PORT = 9092


def classes() -> dict[str, Any]:
    for package in ("admin", "consumer", "metadata", "producer", "sasl"):
        importlib.import_module(f"kafka.protocol.{package}")
    return {kind.__name__: kind for kind in api_message.ApiMessage.__subclasses__()}


def framed(message: Any, version: int, correlation: int) -> bytes:
    message.API_VERSION = version
    message.with_header(correlation_id=correlation)
    return bytes(message.encode(header=True, framed=True))


def batch(*values: bytes, codec: int = 0) -> bytes:
    builder = default_records.DefaultRecordBatchBuilder(
        magic=2, compression_type=codec, is_transactional=0, producer_id=-1, producer_epoch=-1, base_sequence=-1,
        batch_size=8 << 20,
    )  # fmt: skip
    for place, value in enumerate(values):
        builder.append(place, timestamp=1_700_000_000_000 + place, key=b"key", value=value, headers=[("h", b"v")])
    return bytes(builder.build())


@pytest.fixture
def every_codec(monkeypatch: pytest.MonkeyPatch) -> None:
    """The client frames packed batches itself and borrows the packing; here from pyarrow, which it does not know."""
    codecs = default_records.codecs

    def packer(name: str) -> Any:
        def pack(data: bytes) -> bytes:
            sink = pa.BufferOutputStream()
            with pa.CompressedOutputStream(sink, name) as stream:
                stream.write(bytes(data))
            return sink.getvalue().to_pybytes()

        return pack

    block = SimpleNamespace(compress=lambda data: pa.compress(data, codec="snappy", asbytes=True))
    monkeypatch.setattr(codecs, "snappy", block)
    for name in ("lz4", "zstd"):
        monkeypatch.setattr(codecs, f"has_{name}", lambda: True)
        monkeypatch.setattr(default_records, f"{name}_encode", packer(name))


def test_names_and_compact_versions_are_those_of_the_schemas() -> None:
    known = {kind.API_KEY: kind for name, kind in classes().items() if name.endswith("Request")}
    assert len(known) > 40
    for key, kind in known.items():
        assert _APIS[key] == kind.name.removesuffix("Request")
        since = kind._flexible_versions[0] if kind._flexible_versions else -1
        since = _NEVER if since < 0 else since
        assert (_FLEXIBLE[key] if key < len(_FLEXIBLE) else 0) == since, kind.name


@needs("tshark")
def test_every_api_is_named_and_paired_as_tshark_does(tmp_path: Path) -> None:
    known = classes()
    turns: list[Turn] = []
    names: list[str] = []
    correlation = 0
    for name, request in sorted(known.items()):
        if not name.endswith("Request") or re.sub("Request$", "Response", name) not in known:
            continue
        response = known[re.sub("Request$", "Response", name)]
        given = {"acks": 1} if name == "ProduceRequest" else {}  # with none it has no answer
        for version in sorted({0, request.max_version // 2, min(request.max_version, 7)}):
            correlation += 1
            try:
                asked, answered = (
                    framed(request(**given), version, correlation),
                    framed(response(), version, correlation),
                )
            except Exception:  # noqa: BLE001 - not everything can be written without values
                continue
            turns += [(CLIENT, asked), (SERVER, answered)]
            names.append(request.name.removesuffix("Request"))
    assert len(turns) > 100
    capture = tmp_path / "kafka.pcap"
    written(capture, turns, PORT)
    (said,) = overheard(capture, PORT)
    assert said.stream.malformed == said.stream.undecoded_bytes == 0
    assert [told.found.kind for told in said.messages if told.found.sender == CLIENT] == names
    responses = [told.found.kind for told in said.messages if told.found.sender == SERVER]
    assert responses == [f"{name}Response" for name in names]

    identity, question = "kafka.correlation_id", "kafka.request_frame"
    fields = ["kafka.request_key", "kafka.response_key", identity, question, "_ws.malformed"]
    rows = tshark(capture, fields, decode_as=f"tcp.port=={PORT},kafka", only="kafka")
    requests = [row for row in rows if row["kafka.request_key"]]
    assert [(told.found.kind, told.found.correlation) for told in said.messages if told.found.sender == CLIENT] == [
        (_APIS[int(row["kafka.request_key"][0])], row[identity][0]) for row in requests
    ]
    unread = {row[identity][0] for row in requests if row["_ws.malformed"]}
    theirs = [row for row in rows if not row["kafka.request_key"] and row[identity][0] not in unread]
    assert len(theirs) > 80
    told = [told.found for told in said.messages if told.found.sender == SERVER]
    assert [(row.kind, row.correlation) for row in told if row.correlation not in unread] == [
        (f"{_APIS[int(row['kafka.response_key'][0])]}Response", row[identity][0]) for row in theirs
    ]
    answered = [row for row in said.exchanges if row.response is not None]
    assert all(row.request.found.correlation == row.response.found.correlation for row in answered)
    pairs = {row[identity][0] for row in theirs if row[question]}
    assert {row.request.found.correlation for row in answered} - unread == pairs
    assert len(answered) == len(names)


@pytest.mark.parametrize("version", range(3, 14))
def test_records_are_found_in_produce_of_any_version(version: int, tmp_path: Path) -> None:
    known = classes()
    request, response = known["ProduceRequest"], known["ProduceResponse"]
    data = request.TopicProduceData.PartitionProduceData(index=0, records=batch(b"one", b"two" * 99))
    topic = request.TopicProduceData(name="sensors", topic_id=uuid.uuid4(), partition_data=[data])
    asked = request(transactional_id=None, acks=-1, timeout_ms=1000, topic_data=[topic])
    capture = tmp_path / "produce.pcap"
    turns: list[Turn] = [(CLIENT, framed(asked, version, 7)), (SERVER, framed(response(), version, 7))]
    written(capture, turns, PORT)
    (said,) = overheard(capture, PORT)
    assert [row.found.payload_bytes for row in said.messages if row.found.kind == "Record"] == [3, 297]
    assert said.pairs == [("Produce", "ProduceResponse")]
    assert version >= 13 or {row.found.name for row in said.messages} == {"sensors"}


@pytest.mark.parametrize("version", range(4, 19))
def test_records_are_found_in_fetch_of_any_version(version: int, tmp_path: Path) -> None:
    known = classes()
    request, response = known["FetchRequest"], known["FetchResponse"]
    partition = response.FetchableTopicResponse.PartitionData(
        partition_index=0, error_code=0, high_watermark=9, records=batch(b"one") + batch(b"two" * 99)
    )
    topic = response.FetchableTopicResponse(topic="sensors", topic_id=uuid.uuid4(), partitions=[partition])
    answer = response(responses=[topic])
    asked = request(topics=[request.FetchTopic(topic="sensors", topic_id=uuid.uuid4(), partitions=[])])
    capture = tmp_path / "fetch.pcap"
    written(capture, [(CLIENT, framed(asked, version, 8)), (SERVER, framed(answer, version, 8))], PORT)
    (said,) = overheard(capture, PORT)
    assert [row.found.payload_bytes for row in said.messages if row.found.kind == "Record"] == [3, 297]
    assert said.pairs == [("Fetch", "FetchResponse")]
    assert version >= 13 or {row.found.name for row in said.messages} == {"sensors"}
    assert not any(row.found.failed for row in said.messages)


def fetched(records: bytes, version: int = 11) -> list[Turn]:
    known = classes()
    request, response = known["FetchRequest"], known["FetchResponse"]
    partition = response.FetchableTopicResponse.PartitionData(
        partition_index=0, error_code=0, high_watermark=9, records=records
    )
    topic = response.FetchableTopicResponse(topic="sensors", topic_id=uuid.uuid4(), partitions=[partition])
    asked = request(topics=[request.FetchTopic(topic="sensors", topic_id=uuid.uuid4(), partitions=[])])
    return [(CLIENT, framed(asked, version, 8)), (SERVER, framed(response(responses=[topic]), version, 8))]


@pytest.mark.usefixtures("every_codec")
@pytest.mark.parametrize("codec", [0, 1, 2, 3, 4], ids=["plain", "gzip", "snappy", "lz4", "zstd"])
def test_every_record_is_found_however_large_the_answer_and_however_packed(codec: int, tmp_path: Path) -> None:
    values = [b"%06d" % place * 150 for place in range(2000)]
    batches = batch(*values[:900], codec=codec) + batch(*values[900:], codec=codec) + batch(b"last")
    assert (batches[22] & 7) == codec
    capture = tmp_path / "fetch.pcap"
    written(capture, fetched(batches), PORT)
    (said,) = overheard(capture, PORT)
    assert said.stream.malformed == said.stream.undecoded_bytes == 0
    records = [row.found for row in said.messages if row.found.kind == "Record"]
    assert [row.fingerprint for row in records] == [fingerprint_of(value) for value in [*values, b"last"]]
    assert said.pairs == [("Fetch", "FetchResponse")]


def test_batches_of_the_old_formats_are_counted(tmp_path: Path) -> None:
    legacy = pytest.importorskip("kafka.record.legacy_records")
    old = b""
    for magic in (0, 1):
        builder = legacy.LegacyRecordBatchBuilder(magic, compression_type=0, batch_size=1 << 20)
        builder.append(0, timestamp=1, key=None, value=b"old" * 9)
        old += bytes(builder.build())
    capture = tmp_path / "fetch.pcap"
    written(capture, fetched(old + batch(b"new")), PORT)
    (said,) = overheard(capture, PORT)
    assert [row.found.payload_bytes for row in said.messages if row.found.kind == "Record"] == [3]
    assert (said.stream.malformed, said.stream.undecoded_bytes) == (0, len(old))
