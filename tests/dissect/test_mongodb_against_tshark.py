"""MongoDB's protocol as its own Python driver writes it: messages and request ids are tshark's.

No MongoDB server is at hand where these tests run: requests are built by pymongo, replies from its `bson`. Deviations,
with their reasons:

- tshark pairs nothing: pairs are checked against its request ids.
- A message packed by snappy or zstd is `OP_COMPRESSED` here; tshark 4.0 would open snappy.
"""

from __future__ import annotations

import struct
from collections import Counter
from pathlib import Path

import pytest

from support.conversation import CLIENT, SERVER, Turn
from support.wiretap import needs, overheard, tshark, written

bson = pytest.importorskip("bson", reason="pymongo is not installed")
message = pytest.importorskip("pymongo.message", reason="pymongo is not installed")
compression = pytest.importorskip("pymongo.compression_support", reason="pymongo is not installed")

pytestmark = [pytest.mark.slow, pytest.mark.broker, needs("tshark")]
PORT = 27017
OPTIONS = bson.codec_options.DEFAULT_CODEC_OPTIONS


def reply(identity: int, answers: int, content: dict[str, object], flags: int = 0) -> bytes:
    body = struct.pack("<IB", flags, 0) + bson.encode(content)
    return struct.pack("<iiii", 16 + len(body), identity, answers, 2013) + body


def conversation() -> list[Turn]:
    every_type = {
        "d": 1.5, "s": "text", "o": {"a": [1, {"b": None}]}, "b": b"\0\1", "i": bson.ObjectId(), "t": True,
        "r": bson.Regex("a.*", "i"), "c": bson.Code("x()"), "w": bson.Code("x()", {"x": 1}), "l": bson.Int64(1 << 40),
        "n": bson.Decimal128("1.5"), "m": bson.MinKey(), "M": bson.MaxKey(), "ts": bson.Timestamp(1, 2),
    }  # fmt: skip
    commands: list[tuple[int, dict[str, object], dict[str, object]]] = [
        (0, {"hello": 1, **every_type}, {"maxWireVersion": 17, "ok": 1.0}),
        (0, {"insert": "t", "ordered": True, "documents": [every_type, {"x": 2}]}, {"n": 2, "ok": 1}),
        (0, {"insert": "t", "documents": [{"big": "x" * 5000}]}, {"n": 1, "ok": 1.0}),
        (0, {"find": "t", "filter": {"d": {"$gt": 1}}}, {"cursor": {"firstBatch": [every_type] * 20}, "ok": 1.0}),
        (0, {"update": "t", "updates": [{"q": {}, "u": {"$set": {"a": 1}}}]}, {"n": 3, "nModified": 3, "ok": 1}),
        (2, {"insert": "t", "documents": [{"x": 3}], "writeConcern": {"w": 0}}, {}),
        (0, {"nonsense": 1}, {"ok": 0.0, "errmsg": "no such command", "code": 59}),
        (0, {"delete": "t", "deletes": [{"q": {}, "limit": 0}]}, {"n": 5, "ok": bson.Int64(1)}),
    ]
    turns: list[Turn] = []
    for number, (flags, command, answer) in enumerate(commands):
        identity, data, _, _ = message._op_msg(flags, command, "shop", None, OPTIONS)
        turns.append((CLIENT, data))
        if answer:
            turns.append((SERVER, reply(9000 + number, identity, answer)))
    packed = compression.ZlibContext(6)
    for number in range(3):
        identity, data, _, _ = message._op_msg(0, {"ping": 1, "x": "y" * 100}, "shop", None, OPTIONS, ctx=packed)
        turns += [(CLIENT, data), (SERVER, reply(9100 + number, identity, {"ok": 1.0}))]
    return turns


def signed(identity: str) -> str:
    """An id of tshark's, as the number the protocol means."""
    return str(struct.unpack("<i", struct.pack("<I", int(identity, 0)))[0])


def test_messages_and_ids_are_tsharks(tmp_path: Path) -> None:
    turns, capture = conversation(), tmp_path / "mongodb.pcap"
    written(capture, turns, PORT, cut=60_000)
    fields = ["mongo.request_id", "mongo.response_to", "mongo.element.name", "mongo.opcode"]
    rows = tshark(capture, fields, decode_as=f"tcp.port=={PORT},mongo", only="mongo")
    answers = {signed(row["mongo.response_to"][0]) for row in rows} - {"0"}
    theirs = Counter("reply" if int(row[fields[1]][0], 0) else row["mongo.element.name"][0] for row in rows)
    (said,) = overheard(capture, PORT)
    assert Counter(said.kinds) == theirs
    assert sum(theirs.values()) == len(turns)
    assert said.stream.malformed == said.stream.undecoded_bytes == 0
    assert {row.request.found.correlation for row in said.exchanges if row.response is not None} == answers
    assert all(row.response.found.correlation == row.request.found.correlation for row in said.exchanges)
    assert [row.request.found.kind for row in said.exchanges if row.response.found.failed] == ["nonsense"]
    assert {row.found.name for row in said.messages if row.found.kind == "insert"} == {"shop.t"}
