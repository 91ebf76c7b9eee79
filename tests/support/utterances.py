"""Short true words in every protocol, per side: what fuzzing begins with. A protocol without any gets random bytes."""

from __future__ import annotations

import gzip
from struct import pack

_CLIENT_HELLO = bytes.fromhex("160301002f0100002b0303") + b"r" * 32 + bytes.fromhex("000002130101000000")
_OPENFLOW_HELLO = bytes.fromhex("0400000800000001")
_MONGO_BODY = bytes.fromhex("00000000 00 13000000 1070696e6700 01000000 027800 0000")


def _kafka_batch(codec: int, more: int = 0) -> bytes:
    """Two records; 1: packed with gzip, 2: said to be packed with snappy. So many `more` bytes are to follow it."""
    records = bytes.fromhex("12 00 00 00 01 06 6f6e65 00 12 00 00 02 01 06 74776f 00")
    content = gzip.compress(records, mtime=0) if codec == 1 else records
    rest = pack(">ibIhiqqqhii", 0, 2, 0, codec, 1, 0, 0, -1, -1, -1, 2 + more) + content
    return pack(">qi", 0, len(rest) + more) + rest


def _kafka_produce(records: bytes, more: int = 0) -> bytes:
    inside = bytes.fromhex("0000 0003 00000003 0001 63 ffff 0001 00000bb8 00000001 0001 74 00000001 00000000")
    inside += pack(">i", len(records) + more) + records
    return pack(">i", len(inside) + more) + inside


def _kafka_fetched(records: bytes) -> bytes:
    """The answer to a Fetch of version 3, with the number 4."""
    inside = bytes.fromhex("00000004 00000000 00000001 0001 74 00000001 00000000 0000 0000000000000009")
    inside += pack(">i", len(records)) + records
    return pack(">i", len(inside)) + inside


UTTERANCES: dict[str, tuple[list[bytes], list[bytes]]] = {
    "amqp": (
        [
            b"AMQP\x00\x00\x09\x01",
            bytes.fromhex("01 0000 00000004 000a 000b ce"),
            bytes.fromhex("08 0000 00000000 ce"),
            bytes.fromhex(
                "01 0001 0000000a 003c 0028 0000 0178 0161 ce 02 0001 0000000e 003c 0000 0000000000000003 0000 ce"
            )
            + b"\x03\x00\x01\x00\x00\x00\x03abc\xce",
        ],
        [
            bytes.fromhex("01 0000 0000000b 000a 000a 00 09 0000000000 ce"),
            bytes.fromhex("01 0001 00000004 0014 000b ce"),
        ],
    ),
    "coap": (
        [bytes.fromhex("44011234aabbccddb474657374ff") + b"x"],
        [bytes.fromhex("64451234aabbccddc0ff") + b"hello"],
    ),
    "dns": (
        [bytes.fromhex("1234010000010000000000000162026262000001 0001")],
        [bytes.fromhex("1234818000010001000000000162026262000001 0001 c00c000100010000003c000401020304")],
    ),
    "dns-tcp": (
        [bytes.fromhex("0016 1234010000010000000000000162026262000001 0001")],
        [bytes.fromhex("0016 1234818000010000000000000162026262000001 0001")],
    ),
    "http": (
        [
            b"GET /a HTTP/1.1\r\nHost: x\r\n\r\n",
            b"POST /b HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n",
            b"GET /ws HTTP/1.1\r\nUpgrade: websocket\r\nConnection: upgrade\r\n\r\n",
            b"CONNECT h:1 HTTP/1.1\r\n\r\n",
        ],
        [
            b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello",
            b"HTTP/1.1 100 Continue\r\n\r\n",
            b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\nA: b\r\n\r\n",
            b"HTTP/1.0 404 No\r\n\r\nwhy",
            b"HTTP/1.1 101 Go\r\nUpgrade: websocket\r\nSec-WebSocket-Extensions: permessage-deflate\r\n\r\n",
        ],
    ),
    "kafka": (
        [
            bytes.fromhex("00000010 0003 0001 00000001 0002 6162 00000000"),
            bytes.fromhex("0000000a 0012 0000 00000002 ffff"),
            bytes.fromhex(
                "00000031 0000 0003 00000003 0001 63 ffff 0001 00000bb8 00000001 0001 74 00000001 00000000 00000009"
            )
            + b"recordset",
            bytes.fromhex("00000010 0001 0003 00000004 0002 6162 00000000"),
            _kafka_produce(_kafka_batch(0)),
            _kafka_produce(_kafka_batch(1) + _kafka_batch(0) + _kafka_batch(2)),
            _kafka_produce(_kafka_batch(0, more=400_000), more=400_000),
        ],
        [
            bytes.fromhex("0000000c 00000001 00000000 00000000"),
            bytes.fromhex("0000000a 00000002 0000 00000000"),
            _kafka_fetched(_kafka_batch(0) + _kafka_batch(1)),
        ],
    ),
    "mongodb": (
        [(16 + len(_MONGO_BODY)).to_bytes(4, "little") + bytes.fromhex("01000000 00000000 dd070000") + _MONGO_BODY],
        [(16 + len(_MONGO_BODY)).to_bytes(4, "little") + bytes.fromhex("02000000 01000000 dd070000") + _MONGO_BODY],
    ),
    "mqtt": (
        [
            bytes.fromhex("100f00044d51545405020 03c000002 6162".replace(" ", "")),
            b"\x32\x0a\x00\x03a/b\x00\x01\x00hi",
            b"\x34\x0d\x00\x00\x00\x02\x03\x23\x00\x01hello",
            b"\x82\x07\x00\x03\x00\x00\x01#\x01",
            b"\x62\x02\x00\x02",
            b"\xc0\x00",
            b"\x30\x80\x80\x80\x40\x00\x01t",
        ],
        [
            b"\x20\x03\x00\x00\x00",
            b"\x40\x02\x00\x01",
            b"\x50\x03\x00\x02\x10",
            b"\x90\x04\x00\x03\x00\x01",
            b"\xd0\x00",
            b"\x32\x0b\x00\x03a/b\x00\x01\x00abc",
            b"\x70\x02\x00\x02",
            b"\xe0\x02\x8e\x00",
        ],
    ),
    "nats": (
        [
            b'CONNECT {"verbose":true}\r\n',
            b"PUB a.b _INBOX.1 5\r\nhello\r\n",
            b"SUB a.* q 1\r\n",
            b"PING\r\n",
            b"HPUB a 12 14\r\nNATS/1.0\r\n\r\nhi\r\n",
        ],
        [
            b'INFO {"a":1}\r\n',
            b"MSG _INBOX.1 1 2\r\nok\r\n",
            b"PONG\r\n",
            b"+OK\r\n",
            b"-ERR 'no'\r\n",
            b"HMSG a 1 r 16 16\r\nNATS/1.0 503\r\n\r\n\r\n",
        ],
    ),
    "openflow": (
        [_OPENFLOW_HELLO, bytes.fromhex("0402000800000002"), bytes.fromhex("040a002a00000003") + bytes(34)],
        [
            _OPENFLOW_HELLO,
            bytes.fromhex("0405000800000004"),
            bytes.fromhex("0403000800000002"),
            bytes.fromhex("0412001000000005") + bytes(8),
        ],
    ),
    "postgresql": (
        [
            bytes.fromhex("00000011 00030000") + b"user\x00me\x00\x00",
            b"Q\x00\x00\x00\x0dSELECT 1\x00",
            b"P\x00\x00\x00\x10s\x00SELECT 1\x00\x00\x00",
            b"B\x00\x00\x00\x0d\x00s\x00\x00\x00\x00\x00\x00\x00",
            b"S\x00\x00\x00\x04",
        ],
        [
            b"R\x00\x00\x00\x08\x00\x00\x00\x00",
            b"Z\x00\x00\x00\x05I",
            b"C\x00\x00\x00\x0dSELECT 1\x00",
            b"E\x00\x00\x00\x10SERROR\x00C42\x00\x00",
            b"1\x00\x00\x00\x04",
            b"2\x00\x00\x00\x04",
        ],
    ),
    "redis": (
        [
            b"*3\r\n$7\r\nPUBLISH\r\n$1\r\na\r\n$5\r\nhello\r\n",
            b"PING\r\n",
            b"*2\r\n$9\r\nSUBSCRIBE\r\n$1\r\na\r\n",
            b"*3\r\n$6\r\nCLIENT\r\n$5\r\nREPLY\r\n$4\r\nSKIP\r\n",
            b"*3\r\n$5\r\nPSYNC\r\n$1\r\n?\r\n$2\r\n-1\r\n",
        ],
        [
            b"+OK\r\n",
            b":1\r\n",
            b"$5\r\nhello\r\n",
            b"*3\r\n$7\r\nmessage\r\n$1\r\na\r\n$2\r\nhi\r\n",
            b"-ERR no\r\n",
            b"%1\r\n+a\r\n*2\r\n:1\r\n_\r\n",
            b"$EOF:" + b"e" * 40 + b"\r\n",
            b"|1\r\n+a\r\n:1\r\n$-1\r\n",
        ],
    ),
    "tls": (
        [_CLIENT_HELLO, bytes.fromhex("1403030001 01"), bytes.fromhex("1703030005") + b"abcde"],
        [bytes.fromhex("16030300040e000000"), bytes.fromhex("1503030002 0228"), bytes.fromhex("1703030005") + b"abcde"],
    ),
    "websocket": (
        [
            b"\x81\x85\x01\x02\x03\x04igomn",
            b"\x01\x81\x01\x02\x03\x04`",
            b"\x80\x81\x01\x02\x03\x04`",
            b"\x89\x80\x01\x02\x03\x04",
            b"\xc1\x87\x00\x00\x00\x00\xcaH\xcd\xc9\xc9\x07\x00",
            b"\x82\xfe\x00\x80\x00\x00\x00\x00" + b"m" * 128,
        ],
        [
            b'\x81\x0f{"id":1,"a":22}',
            b"\x8a\x00",
            b"\x88\x02\x03\xe8",
            b"\xc1\x07\xcaH\xcd\xc9\xc9\x07\x00",
            b"\x82\x04\x20\x02\x00\x00",
        ],
    ),
}
