"""An MQTT-aware proxy that drops, delays, duplicates and reorders known messages on their way to the subscriber.

It runs in a thread with its own loop, between our engine and a real broker. Faults hit PUBLISH packets that the broker
sends to clients, chosen by the sequence number in our header, so a test knows exactly which messages were hit.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
import struct
import threading
from dataclasses import dataclass, field

HEADER = struct.Struct(">IIQ")
PUBLISH, PUBACK, PUBREC, PUBREL, PUBCOMP, SUBSCRIBE = 3, 4, 5, 6, 7, 8
_INJECTED_IDS = range(60_000, 65_000)
_Delayed = tuple[float, float, bytes, tuple[int, int]]
"""When it came, when it is due, its bytes, and which message it is."""


@dataclass(frozen=True)
class Faults:
    """What to do to which sequence numbers."""

    drop: frozenset[int] = frozenset()
    duplicate: frozenset[int] = frozenset()
    duplicate_flagged: frozenset[int] = frozenset()
    swap_with_next: frozenset[int] = frozenset()
    astray: frozenset[int] = frozenset()
    """Delivered on the topic `astray_to` instead of their own."""
    astray_to: bytes = b""
    delay_s: float = 0.0
    jitter_s: float = 0.0
    spare: bytes = b""
    """A filter; whoever subscribes to it is not delayed."""


@dataclass
class Done:
    """What was really done, message by message."""

    dropped: list[int] = field(default_factory=list)
    duplicated: list[int] = field(default_factory=list)
    swapped: list[int] = field(default_factory=list)
    astray: list[int] = field(default_factory=list)
    delays_s: dict[tuple[int, int], float] = field(default_factory=dict)
    """How long each message (device, sequence number) was really kept back: timers are not exact."""


class MqttProxy:
    """Listens on `port`, speaks to `broker_port`; both on loopback."""

    def __init__(self, broker_port: int, faults: Faults) -> None:
        self._broker_port = broker_port
        self._faults = faults
        self._ready = threading.Event()
        self._loop = asyncio.new_event_loop()
        self._tasks: set[asyncio.Task[None]] = set()
        self.done = Done()
        self.port = 0
        self._thread = threading.Thread(target=self._serve, daemon=True)

    def __enter__(self) -> MqttProxy:
        self._thread.start()
        assert self._ready.wait(60)
        return self

    def __exit__(self, *_: object) -> None:
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(60)

    def _serve(self) -> None:
        asyncio.set_event_loop(self._loop)
        server = self._loop.run_until_complete(asyncio.start_server(self._accept, "127.0.0.1", 0))
        self.port = server.sockets[0].getsockname()[1]
        self._ready.set()
        self._loop.run_forever()
        server.close()
        for task in asyncio.all_tasks(self._loop):
            task.cancel()
        self._loop.run_until_complete(asyncio.sleep(0.05))
        self._loop.close()

    async def _accept(self, from_client: asyncio.StreamReader, to_client: asyncio.StreamWriter) -> None:
        from_broker, to_broker = await asyncio.open_connection("127.0.0.1", self._broker_port)
        connection = _Connection(self._faults, self.done, to_client, to_broker)
        with contextlib.suppress(ConnectionError, asyncio.IncompleteReadError):
            await asyncio.gather(
                _pump(from_client, connection.from_client, to_broker),
                _pump(from_broker, connection.from_broker, to_client),
            )


async def _pump(reader: asyncio.StreamReader, handle, far_side: asyncio.StreamWriter) -> None:
    try:
        while True:
            first = await reader.readexactly(1)
            length, shift, raw = 0, 0, first
            while True:
                byte = await reader.readexactly(1)
                raw += byte
                length |= (byte[0] & 0x7F) << shift
                shift += 7
                if byte[0] < 0x80:
                    break
            await handle(first[0], raw, await reader.readexactly(length))
    finally:
        far_side.close()


class _Connection:
    def __init__(
        self, faults: Faults, done: Done, to_client: asyncio.StreamWriter, to_broker: asyncio.StreamWriter
    ) -> None:
        self._faults = faults
        self._done = done
        self._to_client = to_client
        self._to_broker = to_broker
        self._kept_back: tuple[bytes, tuple[int, int]] | None = None
        self._injected: set[int] = set()
        self._next_id = iter(_INJECTED_IDS)
        self._random = random.Random(5)
        self._spared = False
        self._line: asyncio.Queue[_Delayed] | None = None

    async def from_client(self, first: int, head: bytes, body: bytes) -> None:
        kind = first >> 4
        if kind == SUBSCRIBE and self._faults.spare and self._faults.spare in body:
            self._spared = True
        if kind in (PUBACK, PUBREC, PUBCOMP):
            (packet_id,) = struct.unpack_from(">H", body)
            if packet_id in self._injected:
                # The broker knows nothing of the copies we made: their handshake ends here.
                if kind == PUBREC:
                    self._to_client.write(bytes([PUBREL << 4 | 2, 2]) + body[:2])
                return
        self._to_broker.write(head + body)

    async def from_broker(self, first: int, head: bytes, body: bytes) -> None:
        message = _message_in(first, body)
        if message is None:
            self._to_client.write(head + body)
            return
        seq = message[1]
        faults = self._faults
        if seq in faults.drop:
            self._done.dropped.append(seq)
            self._swallow(first, body)
            return
        if seq in faults.astray:
            self._done.astray.append(seq)
            body = struct.pack(">H", len(faults.astray_to)) + faults.astray_to + body[2 + int.from_bytes(body[:2]) :]
            assert len(body) < 128, "one byte tells the length"
            head = bytes([first, len(body)])
        if seq in faults.swap_with_next:
            self._kept_back = (head + body, message)
            return
        await self._pass(head + body, message)
        if seq in faults.duplicate or seq in faults.duplicate_flagged:
            self._done.duplicated.append(seq)
            await self._pass(self._copy(first, head, body, flagged=seq in faults.duplicate_flagged), message)
        if self._kept_back is not None:
            raw, kept = self._kept_back
            self._kept_back = None
            self._done.swapped.append(kept[1])
            await self._pass(raw, kept)

    def _copy(self, first: int, head: bytes, body: bytes, *, flagged: bool) -> bytes:
        # DUP is not allowed at QoS 0.
        mark = 0x08 if flagged and first & 0x06 else 0
        if not first & 0x06:
            return bytes([first | mark]) + head[1:] + body
        topic_size = struct.unpack_from(">H", body)[0]
        packet_id = next(self._next_id)
        self._injected.add(packet_id)
        place = 2 + topic_size
        changed = body[:place] + struct.pack(">H", packet_id) + body[place + 2 :]
        return bytes([first | mark]) + head[1:] + changed

    def _swallow(self, first: int, body: bytes) -> None:
        """Tell the broker that a message we dropped has arrived, so that it never sends it again."""
        qos = first >> 1 & 3
        if not qos:
            return
        topic_size = struct.unpack_from(">H", body)[0]
        packet_id = body[2 + topic_size : 4 + topic_size]
        if qos == 1:
            self._to_broker.write(bytes([PUBACK << 4, 2]) + packet_id)
        else:
            self._to_broker.write(bytes([PUBREC << 4, 2]) + packet_id)
            # Its PUBREL will reach our client, which answers PUBCOMP for an id it does not know: as the standard wants.

    async def _pass(self, raw: bytes, message: tuple[int, int]) -> None:
        if not self._faults.delay_s or self._spared:
            self._to_client.write(raw)
            return
        if self._line is None:
            self._line = asyncio.Queue()
            asyncio.get_running_loop().create_task(self._delayed(self._line))
        loop = asyncio.get_running_loop()
        jitter = self._random.uniform(-self._faults.jitter_s, self._faults.jitter_s)
        now = loop.time()
        self._line.put_nowait((now, now + self._faults.delay_s + jitter, raw, message))

    async def _delayed(self, line: asyncio.Queue[_Delayed]) -> None:
        loop = asyncio.get_running_loop()
        while True:
            came, due, raw, message = await line.get()
            await asyncio.sleep(max(0.0, due - loop.time()))
            self._to_client.write(raw)
            self._done.delays_s.setdefault(message, loop.time() - came)


def _message_in(first: int, body: bytes) -> tuple[int, int] | None:
    """(device, sequence number) of a PUBLISH with our header."""
    if first >> 4 != PUBLISH:
        return None
    topic_size = struct.unpack_from(">H", body)[0]
    place = 2 + topic_size + (2 if first & 0x06 else 0)
    payload = body[place:]
    if len(payload) < HEADER.size or payload[0] != 0xB1:
        return None
    marked_device, seq, _ = HEADER.unpack_from(payload)
    return marked_device & 0xFFFFFF, seq
