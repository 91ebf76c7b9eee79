"""Servers that speak wrongly, in threads of the fault that needs them: for every protocol that `bb` speaks.

Each behaviour gets an accepted connection and may do with it what it likes; all end with the fault.
"""

from __future__ import annotations

import contextlib
import random
import socket
import struct
import threading
import time
from collections.abc import Callable, Iterator
from functools import partial
from typing import Final

Behaviour = Callable[[socket.socket], None]
_ENDLESS_BYTES: Final = 64 << 20
"""Nobody sends more than this to one connection: a fault must not take the machine."""
_DRIPS: Final = 600
_CONNACK: Final = b"\x20\x02\x00\x00"
_HTTP_OK: Final = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}"
_AMQP_HEADER: Final = b"AMQP\x00\x00\x09\x01"


def silent(one: socket.socket) -> None:
    """Accepts and says nothing."""
    with contextlib.suppress(OSError):
        while one.recv(65536):
            pass


def unread(one: socket.socket) -> None:
    """Accepts and reads nothing."""
    time.sleep(_DRIPS)
    one.close()


def closes(one: socket.socket, after_bytes: int = 0) -> None:
    """Hangs up after so many bytes."""
    left = after_bytes
    while left > 0 and (data := one.recv(left)):
        left -= len(data)
    one.close()


def resets(one: socket.socket) -> None:
    """Resets at once."""
    one.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    one.close()


def says(one: socket.socket, words: bytes, then: Behaviour = silent, first: int = 1) -> None:
    """Says this once something was heard, then behaves otherwise."""
    if first:
        one.recv(65536)
    one.sendall(words)
    then(one)


def endless(one: socket.socket, words: bytes) -> None:
    """Says this again and again."""
    one.recv(65536)
    block, sent = words * max(1, 65536 // len(words)), 0
    while sent < _ENDLESS_BYTES:
        one.sendall(block)
        sent += len(block)


def drips(one: socket.socket, words: bytes) -> None:
    """Says this one byte at a time, then waits."""
    one.recv(65536)
    for at in range(min(len(words), _DRIPS)):
        one.sendall(words[at : at + 1])
        time.sleep(0.2)
    silent(one)


def at_random(one: socket.socket, seed: int) -> None:
    """Random bytes for everything it hears."""
    draw = random.Random(seed)
    while one.recv(65536):
        one.sendall(draw.randbytes(draw.randrange(1, 4000)))


def answers(one: socket.socket, words: bytes) -> None:
    """The same answer for everything it hears."""
    while one.recv(65536):
        one.sendall(words)


def answers_slowly(one: socket.socket, words: bytes = _HTTP_OK, after_s: float = 2.0) -> None:
    """The right answer, late."""
    while one.recv(65536):
        time.sleep(after_s)
        one.sendall(words)


def mqtt(one: socket.socket, instead: dict[int, bytes]) -> None:
    """A broker that does what it should, but for some kinds of packets it hears."""
    right = {1: _CONNACK, 8: b"\x90\x03%b\x01", 3: b"\x40\x02%b", 12: b"\xd0\x00"}
    data = b""
    while more := one.recv(65536):
        data += more
        while len(data) >= 2:
            size, at, shift = 0, 1, 0
            while at < len(data):
                size |= (data[at] & 127) << shift
                at, shift = at + 1, shift + 7
                if data[at - 1] < 128:
                    break
            if len(data) < at + size:
                break
            kind, body, data = data[0] >> 4, data[at : at + size], data[at + size :]
            packet_id = body[:2] if kind == 8 else body[2 + int.from_bytes(body[:2], "big") :][:2]
            words = instead.get(kind, right.get(kind, b""))
            one.sendall(words.replace(b"%b", packet_id))


_PACKETS: Final = {
    f"a packet of kind {kind}": bytes((kind << 4 | (2 if kind in (6, 8, 10) else 0), 2, 0, 1)) for kind in range(16)
}
_MQTT: Final[dict[str, Behaviour]] = {
    "is silent": silent,
    "reads nothing": unread,
    "hangs up at once": closes,
    "resets at once": resets,
    "answers random bytes": partial(at_random, seed=1),
    "answers other random bytes": partial(at_random, seed=2),
    "speaks first": partial(says, words=_CONNACK, first=0),
    "speaks HTTP": partial(says, words=b"HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\n\r\n"),
    "speaks SSH": partial(says, words=b"SSH-2.0-OpenSSH_9.2\r\n", first=0),
    "speaks TLS": partial(says, words=b"\x15\x03\x03\x00\x02\x02\x28"),
    "sends zeros without end": partial(endless, words=bytes(1024)),
    "sends CONNACK without end": partial(endless, words=_CONNACK),
    "sends PUBLISH without end": partial(endless, words=_CONNACK + b"\x30\x06\x00\x01ahey"),
    "sends PINGRESP without end": partial(endless, words=b"\xd0\x00"),
    "drips its CONNACK": partial(drips, words=_CONNACK),
    "announces 256 MiB": partial(says, words=_CONNACK + b"\x30\xff\xff\xff\x7f\x00\x01a"),
    "announces a length without end": partial(says, words=_CONNACK + b"\x30\xff\xff\xff\xff\xff\xff"),
    "announces a large CONNACK": partial(says, words=b"\x20\xff\xff\xff\x7f"),
    "sends half a CONNACK": partial(says, words=b"\x20\x02\x00"),
    "sends two CONNACK": partial(says, words=_CONNACK * 2),
    "never grants": partial(mqtt, instead={8: b""}),
    "refuses the subscription": partial(mqtt, instead={8: b"\x90\x03%b\x80"}),
    "grants another subscription": partial(mqtt, instead={8: b"\x90\x03\x77\x77\x01"}),
    "never acknowledges": partial(mqtt, instead={3: b""}),
    "acknowledges what was not sent": partial(mqtt, instead={3: b"\x40\x02\xff\xfe"}),
    "acknowledges twice": partial(mqtt, instead={3: b"\x40\x02%b\x40\x02%b"}),
    "acknowledges wrongly": partial(mqtt, instead={3: b"\x70\x02%b"}),
    "sends nonsense while it acknowledges": partial(mqtt, instead={3: b"\x40\x02%b\xf5\x00"}),
    "publishes with QoS 3": partial(mqtt, instead={3: b"\x36\x05\x00\x01a\x00\x01\x40\x02%b"}),
    "publishes a topic without end": partial(mqtt, instead={3: b"\x30\x04\xff\xffaa"}),
    "publishes a topic that is no text": partial(mqtt, instead={3: b"\x30\x06\x00\x02\xff\xfehi\x40\x02%b"}),
    **{f"refuses with {code}": partial(says, words=bytes((0x20, 2, 0, code)), then=closes) for code in (1, 3, 5, 99)},
    **{f"hangs up after {size} bytes": partial(closes, after_bytes=size) for size in (1, 2, 8, 20)},
    **{f"begins with {name}": partial(says, words=words) for name, words in _PACKETS.items() if words[0] >> 4 != 2},
    **{
        f"sends {name} behind its CONNACK": partial(says, words=_CONNACK + words)
        for name, words in _PACKETS.items() if words[0] >> 4 in (0, 1, 2, 8, 15)
    },
}  # fmt: skip
_HTTP: Final[dict[str, Behaviour]] = {
    "is silent": silent,
    "hangs up at once": closes,
    "resets at once": resets,
    "answers random bytes": partial(at_random, seed=3),
    "speaks MQTT": partial(answers, words=_CONNACK),
    "answers 500": partial(answers, words=b"HTTP/1.1 500 No\r\nContent-Length: 0\r\n\r\n"),
    "answers without a length": partial(says, words=b"HTTP/1.1 200 OK\r\n\r\nand", then=closes),
    "answers half a head": partial(says, words=b"HTTP/1.1 200"),
    "answers a head without end": partial(endless, words=b"X-Header: more\r\n"),
    "answers 16 TiB": partial(says, words=b"HTTP/1.1 200 OK\r\nContent-Length: 17592186044416\r\n\r\n{"),
    "answers a length below zero": partial(answers, words=b"HTTP/1.1 200 OK\r\nContent-Length: -5\r\n\r\n"),
    "answers two lengths": partial(
        answers, words=b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nContent-Length: 9\r\n\r\n{}"
    ),
    "answers a broken chunk": partial(answers, words=b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n"),
    "answers twice": partial(answers, words=_HTTP_OK * 2),
    "drips its answer": partial(drips, words=_HTTP_OK),
    "sends 100 Continue without end": partial(endless, words=b"HTTP/1.1 100 Continue\r\n\r\n"),
    "sends elsewhere": partial(answers, words=b"HTTP/1.1 302 Found\r\nLocation: /\r\nContent-Length: 0\r\n\r\n"),
}  # fmt: skip
_UPGRADE: Final = b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
_WEBSOCKET: Final[dict[str, Behaviour]] = {
    "is silent": silent,
    "hangs up at once": closes,
    "answers 404": partial(answers, words=b"HTTP/1.1 404 No\r\nContent-Length: 0\r\n\r\n"),
    "upgrades without a key": partial(says, words=_UPGRADE + b"\r\n"),
    "upgrades with a wrong key": partial(says, words=_UPGRADE + b"Sec-WebSocket-Accept: bm8=\r\n\r\n"),
    "upgrades with half a head": partial(says, words=_UPGRADE),
    "upgrades with a head without end": partial(endless, words=_UPGRADE),
    "answers random bytes": partial(at_random, seed=4),
    "speaks MQTT": partial(answers, words=_CONNACK),
}
_AMQP: Final[dict[str, Behaviour]] = {
    "is silent": silent,
    "hangs up at once": closes,
    "resets at once": resets,
    "answers random bytes": partial(at_random, seed=5),
    "speaks HTTP": partial(answers, words=_HTTP_OK),
    "wants another version": partial(says, words=b"AMQP\x00\x01\x00\x00", then=closes),
    "echoes the header without end": partial(endless, words=_AMQP_HEADER),
    "announces 4 GiB": partial(says, words=b"\x01\x00\x00\xff\xff\xff\xff\x00"),
    "sends an unknown method": partial(says, words=b"\x01\x00\x00\x00\x00\x00\x04\xff\xff\xff\xff\xce"),
    "sends a frame without its end": partial(says, words=b"\x01\x00\x00\x00\x00\x00\x04\x00\x0a\x00\x0a\x00"),
    "drips a frame": partial(drips, words=b"\x01\x00\x00\x00\x00\x00\x04\x00\x0a\x00\x0a\xce"),
}
_TLS: Final[dict[str, Behaviour]] = {
    "speaks plain MQTT": partial(answers, words=_CONNACK),
    "is silent": silent,
    "hangs up at once": closes,
    "sends an alert": partial(says, words=b"\x15\x03\x03\x00\x02\x02\x28", then=closes),
    "answers random bytes": partial(at_random, seed=6),
    "announces a record without end": partial(says, words=b"\x16\x03\x03\xff\xff" + bytes(100)),
}
TCP_BEHAVIOURS: Final = {"mqtt": _MQTT, "http": _HTTP, "ws": _WEBSOCKET, "amqp": _AMQP, "mqtts": _TLS}
COAP_ANSWERS: Final[dict[str, Callable[[bytes], list[bytes]]]] = {
    "is silent": lambda _: [],
    "answers random bytes": lambda said: [random.Random(said).randbytes(30)],
    "echoes": lambda said: [said],
    "resets": lambda said: [b"\x70\x00" + said[2:4]],
    "acknowledges and never answers": lambda said: [b"\x60\x00" + said[2:4]],
    "answers with an option cut off": lambda said: [b"\x60\x45" + said[2:4] + b"\xd1"],
    "answers with a wrong token": lambda said: [b"\x64\x45" + said[2:4] + b"none"],
    "answers 5.00": lambda said: [bytes((0x60 | said[0] & 15, 0xA0)) + said[2 : 4 + (said[0] & 15)]],
    "answers a hundred times": lambda said: [bytes((0x60 | said[0] & 15, 0x45)) + said[2 : 4 + (said[0] & 15)]] * 100,
}


@contextlib.contextmanager
def tcp_server(behaviour: Behaviour) -> Iterator[int]:
    """Listens; yields the port."""
    with socket.create_server(("127.0.0.1", 0), backlog=64) as door:
        threading.Thread(target=_accept, args=(door, behaviour), daemon=True).start()
        yield door.getsockname()[1]


@contextlib.contextmanager
def full_backlog() -> Iterator[int]:
    """Listens and accepts nobody; its queue is full already."""
    with contextlib.ExitStack() as stack:
        door = stack.enter_context(socket.socket())
        door.bind(("127.0.0.1", 0))
        door.listen(0)
        for _ in range(3):
            one = stack.enter_context(socket.socket())
            one.setblocking(False)
            one.connect_ex(door.getsockname())
        yield door.getsockname()[1]


@contextlib.contextmanager
def udp_server(answer: Callable[[bytes], list[bytes]]) -> Iterator[int]:
    """Answers datagrams; yields the port."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as door:
        door.bind(("127.0.0.1", 0))
        threading.Thread(target=_answer, args=(door, answer), daemon=True).start()
        yield door.getsockname()[1]


def _accept(door: socket.socket, behaviour: Behaviour) -> None:
    with contextlib.suppress(OSError):
        while True:
            one, _ = door.accept()
            threading.Thread(target=_behave, args=(one, behaviour), daemon=True).start()


def _behave(one: socket.socket, behaviour: Behaviour) -> None:
    with contextlib.suppress(OSError), one:
        behaviour(one)


def _answer(door: socket.socket, answer: Callable[[bytes], list[bytes]]) -> None:
    with contextlib.suppress(OSError, IndexError):
        while True:
            said, address = door.recvfrom(65536)
            for words in answer(said):
                door.sendto(words, address)
