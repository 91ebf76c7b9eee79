"""The half of an MQTT link that speaks: room, publishing in bulk, acknowledgements, sending again.

Base class of `MqttLink`, which adds opening, closing and subscribing. Nothing here waits; what the broker's limits
forbid is refused with the reason, never dropped in silence.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Sequence

import numpy as np

from battlebrokers.errors import LinkError
from battlebrokers.protocols.base import Bytes2D, Completion, Failure, Held, Link, LinkOptions, Listener, Outgoing
from battlebrokers.protocols.mqtt.connection import WRITE_HIGH_BYTES, Connection
from battlebrokers.protocols.mqtt.malformed import PACKET_TOO_LARGE, TOPIC_INVALID
from battlebrokers.protocols.mqtt.packets import V5
from battlebrokers.protocols.mqtt.publishing import (
    DUP,
    FEW,
    NO_PROPERTIES_5,
    NO_PROPERTIES_311,
    PUBLISH,
    alias_properties,
    frame_bytes,
    head,
    joined_frames,
    matrix_frames,
)
from battlebrokers.protocols.mqtt.receiving import PUBREL, acknowledgements
from battlebrokers.protocols.mqtt.session import LAST_ID, Flight, Session
from battlebrokers.protocols.mqtt.welcome import ALIASES_ACCEPTED, DEFAULT_LIMITS, Limits, protocol_version

RETAIN_NOT_SUPPORTED = 0x9A
QOS_NOT_SUPPORTED = 0x9B
LONGEST_TOPIC_BYTES = 65_535

_MOST_OVERHEAD_BYTES = 16
"""More than fixed header, topic length, packet id and our properties ever take."""


class Sender(Link):
    """What an MQTT link needs to publish."""

    __slots__ = (
        "accepts_aliases",
        "aliases",
        "backlog",
        "connection",
        "full",
        "limits",
        "listener",
        "options",
        "resend_flags",
        "session",
        "typical_bytes",
        "usual_bytes",
        "usual_head",
        "usual_topic",
        "version",
        "window",
    )

    def __init__(self, options: LinkOptions, listener: Listener) -> None:
        super().__init__()
        self.options = options
        self.listener = listener
        self.version = protocol_version(options)
        self.accepts_aliases = ALIASES_ACCEPTED if options.topic_alias and self.version == V5 else 0
        self.session = Session()
        self.connection: Connection | None = None
        self.limits: Limits = DEFAULT_LIMITS
        self.window = min(options.inflight, LAST_ID)
        self.full = False
        """The window was hit, and the listener has not been told of room since."""
        self.aliases: dict[bytes, bytes] | None = None
        """Topics the broker knows by number on this connection, and the properties that say that number."""
        self.backlog: deque[int] | None = None
        """Packet ids a new connection still has to send again."""
        self.resend_flags = 0
        self.typical_bytes = 1024
        """The size of the latest frames: turns room in bytes into room in messages."""
        self.usual_topic: bytes | None = None
        """The topic of the first plain message on this connection (QoS 0, not retained, no alias). Most that follow
        are alike: with `usual_bytes` of payload they begin with `usual_head`, and need no further look."""
        self.usual_bytes = 0
        self.usual_head = b""

    # ── room ─────────────────────────────────────────────────────────────────────────────────────────────────────

    @property
    def held(self) -> Held:
        """Whether, and why, a message handed over now would have to wait."""
        connection = self.connection
        if connection is None:
            return Held.OFFLINE
        if connection.paused:
            return Held.SOCKET
        if self.backlog or self.session.in_flight >= self.window:
            self.full = True
            return Held.WINDOW
        return Held.NO

    def room(self, qos: int) -> int:
        """How many messages of that QoS `publish` takes now; 0 when held."""
        connection = self.connection
        if connection is None or connection.paused:
            return 0
        # While the transport is not paused, one message is always welcome, however large.
        fitting = (WRITE_HIGH_BYTES - connection.transport.get_write_buffer_size()) // self.typical_bytes
        if fitting < 1:
            fitting = 1
        if not qos:
            return fitting
        left = 0 if self.backlog else self._left()
        if left <= 0:
            self.full = True
            return 0
        return min(fitting, left)

    def _left(self) -> int:
        """How many more messages may wait for acknowledgement; the window is never larger than the packet ids."""
        session = self.session
        left = self.window - len(session.unacked) - len(session.released)
        return min(left, session.free_ids()) if session.requests or session.retired else left

    @property
    def unacknowledged(self) -> int:
        """Messages whose completion contract is still open."""
        return self.session.in_flight

    # ── publishing ───────────────────────────────────────────────────────────────────────────────────────────────

    def publish(self, outgoing: Outgoing) -> int:
        """Hand over a batch of at most `room` messages; returns the bytes written to the transport."""
        payloads = outgoing.payloads
        topic = outgoing.topic
        qos = outgoing.qos
        if topic is self.usual_topic and not (qos or outgoing.retain) and not isinstance(payloads, np.ndarray):
            connection = self.connection
            size = self.usual_bytes
            alike = len(payloads[0]) == size if len(payloads) == 1 else set(map(len, payloads)) == {size}
            if alike and connection is not None:
                start = self.usual_head
                return self._write(connection, start + start.join(payloads), len(payloads))
        if not len(payloads):
            return 0
        limits = self.limits
        largest = payloads.shape[1] if isinstance(payloads, np.ndarray) else max(map(len, payloads))
        if (
            largest + len(topic) + _MOST_OVERHEAD_BYTES > limits.maximum_packet_bytes
            or qos > limits.maximum_qos
            or (outgoing.retain and not limits.retain_available)
            or not 0 < len(topic) <= LONGEST_TOPIC_BYTES
        ):
            return self._publish_allowed(outgoing)
        return self._send(topic, qos, outgoing.retain, payloads, outgoing.first_token)

    def publish_one(self, topic: bytes, payload: bytes, qos: int, retain: bool, token: int) -> int:
        """The same for a single message, without a batch around it where that is not needed."""
        if topic is self.usual_topic and len(payload) == self.usual_bytes and not (qos or retain):
            connection = self.connection
            if connection is not None:
                return self._write(connection, self.usual_head + payload, 1)
        return self.publish(Outgoing(topic, (payload,), qos, retain, token))

    def _send(self, topic: bytes, qos: int, retain: bool, payloads: Bytes2D | Sequence[bytes], first_token: int) -> int:
        connection = self.connection
        if connection is None:
            raise LinkError("the link is not open")
        count = len(payloads)
        name = topic
        properties = NO_PROPERTIES_311
        if self.version == V5:
            properties = NO_PROPERTIES_5
            if self.aliases is not None:
                name, properties = self._named(topic)
        first_byte = PUBLISH | qos << 1 | retain
        if count < FEW and isinstance(payloads, np.ndarray):
            payloads = (payloads.tobytes(),) if count == 1 else [row.tobytes() for row in payloads]
        if qos:
            data = self._launch(topic, name, first_byte, properties, payloads, first_token)
        elif isinstance(payloads, np.ndarray):
            data = matrix_frames(name, first_byte, properties, payloads, 0).tobytes()
        else:
            data = joined_frames(name, first_byte, properties, payloads, 0)
            if self.usual_topic is None and self.aliases is None and not retain:
                self.usual_topic, self.usual_bytes = topic, len(payloads[0])
                self.usual_head = head(name, first_byte, properties, self.usual_bytes)
        return self._write(connection, data, count)

    def _write(self, connection: Connection, data: bytes, count: int) -> int:
        self.typical_bytes = len(data) // count
        connection.sent_tick = connection.wheel.tick
        # A layer below that adds bytes of its own returns how many there are in all; a plain transport returns None.
        written = connection.write(data)
        return len(data) if written is None else written

    def _launch(
        self,
        topic: bytes,
        name: bytes,
        first_byte: int,
        properties: bytes,
        payloads: Bytes2D | Sequence[bytes],
        first_token: int,
    ) -> bytes:
        """The frames of a batch that wants acknowledgement, remembered until it comes."""
        session = self.session
        count = len(payloads)
        left = self._left()
        if count > left:
            raise ValueError(f"a batch of {count} messages was handed over where {left} have room")
        if count == left:
            self.full = True
        qos = first_byte >> 1 & 3
        retain = bool(first_byte & 1)
        if count == 1 and not isinstance(payloads, np.ndarray):
            packet_id = session.take_id()
            session.launch_one(Flight(packet_id, first_token, topic, qos, retain, payloads))
            return joined_frames(name, first_byte, properties, payloads, packet_id)
        parts = []
        at = 0
        for ids in session.take_ids(count):
            piece = payloads if len(ids) == count else payloads[at : at + len(ids)]
            kept: Bytes2D | Sequence[bytes]
            # What is kept must be ours: the caller may fill its buffers anew.
            if isinstance(piece, np.ndarray):
                frames = matrix_frames(name, first_byte, properties, piece, ids.start)
                kept = frames[:, frames.shape[1] - piece.shape[1] :]
                parts.append(frames.tobytes())
            else:
                kept = tuple(piece)
                parts.append(joined_frames(name, first_byte, properties, kept, ids.start))
            session.launch(Flight(ids.start, first_token + at, topic, qos, retain, kept), ids)
            at += len(ids)
        return parts[0] if len(parts) == 1 else b"".join(parts)

    def _named(self, topic: bytes) -> tuple[bytes, bytes]:
        """How a message names its topic: in full the first time, by number afterwards, while numbers last."""
        aliases = self.aliases
        assert aliases is not None
        known = aliases.get(topic)
        if known is not None:
            return b"", known
        if len(aliases) >= self.limits.topic_aliases:
            return topic, NO_PROPERTIES_5
        aliases[topic] = alias_properties(len(aliases) + 1)
        return topic, aliases[topic]

    def _publish_allowed(self, outgoing: Outgoing) -> int:
        """Some of the batch may be more than the broker takes: send what it takes, refuse the rest."""
        payloads = outgoing.payloads
        written = 0
        begin = 0
        reasons = [self._refusal(outgoing, len(payload)) for payload in payloads]
        while begin < len(reasons):
            end = begin + 1
            while end < len(reasons) and reasons[end] == reasons[begin]:
                end += 1
            token = outgoing.first_token + begin
            if reasons[begin]:
                self._refuse(range(token, token + end - begin), reasons[begin])
            else:
                written += self._send(outgoing.topic, outgoing.qos, outgoing.retain, payloads[begin:end], token)
            begin = end
        return written

    def _refusal(self, outgoing: Outgoing, payload_bytes: int) -> int:
        limits = self.limits
        if not 0 < len(outgoing.topic) <= LONGEST_TOPIC_BYTES:
            return TOPIC_INVALID
        if outgoing.qos > limits.maximum_qos:
            return QOS_NOT_SUPPORTED
        if outgoing.retain and not limits.retain_available:
            return RETAIN_NOT_SUPPORTED
        # An alias takes three bytes more than no properties; the full topic is the longest form.
        properties = NO_PROPERTIES_311 if self.version != V5 else b"\x00" * (4 if self.aliases is not None else 1)
        size = frame_bytes(outgoing.topic, outgoing.qos, properties, payload_bytes)
        return PACKET_TOO_LARGE if size > limits.maximum_packet_bytes else 0

    def _refuse(self, tokens: range, reason: int) -> None:
        # Told after `publish` returned, like every other acknowledgement.
        def tell() -> None:
            self.listener.acknowledged(self, tokens, self.listener.now_ns(), Completion.REFUSED, reason)

        asyncio.get_running_loop().call_soon(tell)

    # ── what comes back ──────────────────────────────────────────────────────────────────────────────────────────

    def acknowledged(self, tokens: Sequence[int], at_ns: int, completion: Completion, reason: int) -> None:
        """Acknowledgements came in: tell, and use the room they made."""
        if tokens:
            self.listener.acknowledged(self, tokens, at_ns, completion, reason)
        if self.full:
            self._use_room()

    def drained(self) -> None:
        """The transport takes bytes again."""
        self.full = True
        self._use_room()

    def _use_room(self) -> None:
        if self.backlog:
            self._resend()
        if self.held is Held.NO:
            self.full = False
            self.listener.writable(self)

    # ── sending again ────────────────────────────────────────────────────────────────────────────────────────────

    def settle(self, session_present: bool) -> None:
        """A new connection is there: send again what the session still owes."""
        session = self.session
        connection = self.connection
        assert connection is not None
        # What this broker allows may be less than what the last one did.
        self.usual_topic = None
        if not session_present:
            session.forget()
        if session.released:
            connection.send(acknowledgements(PUBREL, list(session.released)))
        self.backlog = None
        if session.unacked:
            # A broker that lost the session gets a new message, not a repetition.
            self.resend_flags = DUP if session_present else 0
            self.backlog = deque(session.unacked)
            self.full = True
            self._resend()

    def _forbidden(self, flight: Flight, packet_id: int) -> bool:
        """Whether this broker takes less than the one the message was first sent to.

        [MQTT-3.2.2-11] (QoS), [MQTT-3.2.2-14] (retain), [MQTT-3.2.2-15] (packet size).
        """
        limits = self.limits
        if limits is DEFAULT_LIMITS:
            return False
        properties = NO_PROPERTIES_5 if self.version == V5 else NO_PROPERTIES_311
        size = frame_bytes(flight.topic, flight.qos, properties, len(flight.payload(packet_id)))
        return (
            flight.qos > limits.maximum_qos
            or (flight.retain and not limits.retain_available)
            or size > limits.maximum_packet_bytes
        )

    def _resend(self) -> None:
        """As much of the backlog as the broker's receive maximum and the transport take."""
        connection, backlog, session = self.connection, self.backlog, self.session
        properties = NO_PROPERTIES_5 if self.version == V5 else NO_PROPERTIES_311
        while connection is not None and backlog and not connection.paused:
            room = self.limits.receive_maximum - (session.in_flight - len(backlog))
            frames: list[bytes] = []
            tokens: list[int] = []
            given_up: list[int] = []
            size = 0
            while backlog and room > len(frames) and size < WRITE_HIGH_BYTES:
                packet_id = backlog.popleft()
                flight = session.unacked.get(packet_id)
                if flight is None:
                    continue
                if self._forbidden(flight, packet_id):
                    given_up.append(session.give_up(packet_id))
                    continue
                first_byte = PUBLISH | self.resend_flags | flight.qos << 1 | flight.retain
                payloads = (flight.payload(packet_id),)
                frames.append(joined_frames(flight.topic, first_byte, properties, payloads, packet_id))
                tokens.append(flight.token_shift + packet_id)
                size += len(frames[-1])
            if given_up:
                # It was sent once: what became of it nobody can say.
                at_ns = self.listener.now_ns()
                self.listener.acknowledged(self, given_up, at_ns, Completion.FAILED, Failure.NOT_RESENT)
            if not frames:
                break
            connection.send(b"".join(frames))
            self.listener.resent(self, tokens)
        if not backlog:
            self.backlog = None
