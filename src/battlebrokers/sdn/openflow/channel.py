"""One connection from one switch: greeting, what it knows, orders, barriers, and the end of it.

Made by the controller for every switch that calls. Whatever a switch sends, it is counted and survived.
"""

from __future__ import annotations

import asyncio
import itertools
import logging
import socket
import struct
from collections.abc import Iterable
from typing import Any, Final, cast

from os_ken.exception import OSKenException
from os_ken.ofproto import ofproto_v1_3 as of
from os_ken.ofproto import ofproto_v1_3_parser as parser

from battlebrokers.sdn.core.broker import Skills
from battlebrokers.sdn.core.instructions import Order, Send, Tables
from battlebrokers.sdn.openflow import wire
from battlebrokers.sdn.openflow.codec import DIALECT, message, read_match, read_message, sent
from battlebrokers.sdn.openflow.introduction import Counts, Introduction, serial_number
from battlebrokers.sdn.openflow.lengths import adds_up
from battlebrokers.sdn.openflow.listener import Listener
from battlebrokers.sdn.openflow.lobby import Lobby
from battlebrokers.sdn.openflow.questions import ANSWERS, Questions, Then
from battlebrokers.sdn.openflow.reading import read_tables

_LOG = logging.getLogger(__name__)
_OPEN_VSWITCH: Final = b"Nicira"
_LARGEST_PORT: Final = 0xFFFFFF00
_ANSWER_S: Final = 10.0
"""A switch that takes longer to answer a question is as good as gone."""
_OBEY_S: Final = 5.0
"""Everybody who subscribes waits for every switch: one that does not answer must not keep them for ever."""
PROBE_S: Final = 5.0
_MOST_PORTS: Final = 4096
_MOST_MALFORMED: Final = 1000
"""Whoever gets so much wrong is no switch."""
_CLOGGED_BYTES: Final = 4 << 20
"""So much unsent: frames are no longer sent to this switch until it has read them."""
_HOPELESS_BYTES: Final = 32 << 20
_UNSAID_BYTES: Final = 1 << 18
_PORTS_EVERY_S: Final = 0.05
"""A port that flutters is looked at no more often than this."""
_FRAGMENTS: Final = of.OFPC_FRAG_NORMAL
"""Fragments reach the tables, where a rule drops and counts them. Rewriting one would damage it."""


class Channel(asyncio.Protocol):
    """The controller's end of one connection."""

    def __init__(self, listener: Listener, lobby: Lobby) -> None:
        self._listener = listener
        self._lobby = lobby
        self._framing = wire.Framing()
        self._xids = itertools.count(1)
        self._questions = Questions()
        self._transport: asyncio.Transport | None = None
        self._greeting: asyncio.Task[None] | None = None
        self._heard = self._is_clogged = False
        self._unsaid: list[bytes] = []
        self._unsaid_bytes = 0
        self._up: dict[int, bool] = {}
        self._ports_told: asyncio.TimerHandle | None = None
        self.switch = 0
        """Its number; 0 until it introduced itself."""
        self.is_joined = False
        self.refused = ""
        """Why it turned down an order; until somebody has read its tables and told it anew."""
        self.counts = Counts()

    @property
    def is_open(self) -> bool:
        """Whether something can be said."""
        return self._transport is not None and not self._transport.is_closing()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """A switch called."""
        self._transport = cast("asyncio.Transport", transport)
        raw = self._transport.get_extra_info("socket")
        if raw is not None:
            raw.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._transport.set_write_buffer_limits(high=_CLOGGED_BYTES)
        self._lobby.enter(self)
        self._send(parser.OFPHello(DIALECT, elements=[parser.OFPHelloElemVersionBitmap([of.OFP_VERSION])]))

    def connection_lost(self, exc: Exception | None) -> None:
        """It is gone: nobody waits for its answers any longer."""
        self._transport = None
        self._lobby.leave(self)
        if self._greeting is not None:
            self._greeting.cancel()
        if self._ports_told is not None:
            self._ports_told.cancel()
        self._questions.end(f"switch {self.switch} is gone: {exc or 'it closed'}")
        if self.is_joined:
            self.is_joined = False
            self._listener.left(self)
        self._listener.hung_up(self)

    def pause_writing(self) -> None:
        """It does not read what it is sent."""
        self._is_clogged = True

    def resume_writing(self) -> None:
        """It reads again."""
        self._is_clogged = False

    def data_received(self, data: bytes) -> None:
        """Bytes came."""
        self._heard = True
        try:
            for raw in self._framing.messages(data):
                self._take(raw)
                if not self.is_open:
                    return
        except ValueError as fault:
            self._malformed(str(fault))
            self.close()
        finally:
            self._listener.caught_up()

    def close(self) -> None:
        """Hang up."""
        if self._transport is not None:
            self._transport.abort()

    def tell(self, orders: Iterable[Order]) -> None:
        """Orders, in this order; nothing is awaited."""
        raw = bytearray()
        for order in orders:
            if not isinstance(order, Send):
                raw += self._numbered(message(order))
            elif self._is_clogged:
                self.counts.unsent += 1
            else:
                raw += sent(order)
                self.counts.packet_outs += 1
        self._write(bytes(raw))

    def send_frame(self, heads: tuple[bytes, ...], frame: bytes) -> bool:
        """The fast way: the frame behind each head, the last of which is empty; False when it is not sent.

        It goes with the next `flush`, or before anything else that is said.
        """
        count = len(heads) - 1
        if self._is_clogged or self._transport is None:
            self.counts.unsent += count
            return False
        said = frame.join(heads)
        self._unsaid.append(said)
        self._unsaid_bytes += len(said)
        self.counts.packet_outs += count
        if self._unsaid_bytes > _UNSAID_BYTES:
            self.flush()
        return True

    def flush(self) -> None:
        """Let frames go that wait to be sent together: one call of the kernel for each would cost more than they."""
        if self._unsaid:
            self._write(b"")

    async def barrier(self) -> None:
        """Returns once everything told so far is done; whoever does not do it in time is gone."""
        try:
            await self._ask(parser.OFPBarrierRequest(DIALECT), within_s=_OBEY_S)
        except TimeoutError:
            _LOG.warning("switch %s did not do what it was told within %s s: hung up", self.switch, _OBEY_S)
            self.close()
            raise
        if self.refused:
            raise ConnectionError(self.refused)

    async def read_tables(self) -> Tables:
        """What it knows of us; what is somebody else's is removed."""
        return await read_tables(self._ask, self._send)

    async def flow_stats(self, then: Then | None = None) -> list[Any]:
        """Every rule with its counters."""
        every = parser.OFPFlowStatsRequest(DIALECT, 0, of.OFPTT_ALL, of.OFPP_ANY, of.OFPG_ANY, 0, 0)
        return await self._ask(every, then)

    async def group_stats(self, then: Then | None = None) -> list[Any]:
        """Every group with the counters of its buckets."""
        return await self._ask(parser.OFPGroupStatsRequest(DIALECT, 0, of.OFPG_ALL), then)

    def last_words(self, group: int, then: Then) -> None:
        """What a group has counted until the order that is told next; nothing is awaited."""
        if self.is_open:
            question = parser.OFPGroupStatsRequest(DIALECT, 0, group)
            raw = self._numbered(question)
            self._questions.asked(question, then)
            asyncio.get_running_loop().call_later(_ANSWER_S, self._questions.forget, question.xid)
            self._write(raw)

    async def meter_stats(self) -> list[Any]:
        """Every meter with what it held back."""
        return await self._ask(parser.OFPMeterStatsRequest(DIALECT, 0, of.OFPM_ALL))

    async def port_stats(self) -> list[Any]:
        """Every port with its counters."""
        return await self._ask(parser.OFPPortStatsRequest(DIALECT, 0, of.OFPP_ANY))

    async def watch(self) -> None:
        """Hang up on a switch that is silent even when asked; runs as long as the connection."""
        while self.is_open:
            self._heard = False
            await asyncio.sleep(PROBE_S)
            if not self._heard and self.is_open:
                self._send(parser.OFPEchoRequest(DIALECT, data=b"alive?"))
                await asyncio.sleep(PROBE_S)
                if not self._heard:
                    self.close()

    def _take(self, raw: bytes) -> None:
        version, kind, length, xid = wire.HEADER.unpack_from(raw)
        try:
            if kind == wire.PACKET_IN and version == wire.VERSION:
                self._packet_in(raw)
            elif kind == wire.HELLO:
                self._hello(version)
            elif version != wire.VERSION:
                self._malformed(f"a message of version {version}")
            elif kind == wire.ECHO_REQUEST:
                self._echo(length, xid, raw)
            elif kind in ANSWERS:
                self._questions.answered(raw)
            elif kind == wire.ERROR:
                self._erred(xid, *struct.unpack_from("!HH", raw, wire.HEADER.size))
            elif kind in (wire.PORT_STATUS, wire.FLOW_REMOVED) and adds_up(raw):
                self._happened(kind, read_message(raw))
            elif kind != wire.ECHO_REPLY:
                self._malformed(f"a message of type {kind} and {length} bytes")
        except (
            OSKenException,
            struct.error,
            AssertionError,
            ArithmeticError,
            LookupError,
            TypeError,
            ValueError,
            AttributeError,
        ) as fault:
            # os-ken's parsers fail in all of these ways on bytes that are wrong.
            self._malformed(f"{type(fault).__name__}: {fault}")

    def _packet_in(self, raw: bytes) -> None:
        read = wire.read_packet_in(raw)
        if read is None:
            self._malformed("a packet-in that does not add up")
        elif self.is_joined:
            self.counts.packet_ins += 1
            self._listener.packet_came(self, *read)

    def _hello(self, version: int) -> None:
        if version < wire.VERSION:
            self._malformed(f"it speaks OpenFlow of version {version} only, not 1.3")
            self._write(wire.HEADER.pack(wire.VERSION, wire.ERROR, 12, 0) + struct.pack("!HH", 0, 0))
            self.close()
        elif self._greeting is None:
            self._greeting = asyncio.create_task(self._introduce())

    def _echo(self, length: int, xid: int, raw: bytes) -> None:
        if not self._is_clogged:
            self._write(wire.HEADER.pack(wire.VERSION, wire.ECHO_REPLY, length, xid) + raw[wire.HEADER.size :])

    def _erred(self, xid: int, kind: int, code: int) -> None:
        reason = f"type {kind}, code {code}"
        if self._questions.refused(xid, f"switch {self.switch} refused: {reason}"):
            return
        self.counts.errors += 1
        if len(self.counts.reasons) < 20:
            self.counts.reasons.append(reason)
            _LOG.warning("switch %s refused an order: %s", self.switch, reason)
        # Frames to send have no number: one that could not be sent says nothing of the tables.
        if xid and self.is_joined:
            self.refused = f"it refused an order: {reason}"
            self._listener.order_refused(self)

    def _happened(self, kind: int, told: Any) -> None:
        if kind == wire.PORT_STATUS:
            self._port_changed(told)
        elif self.is_joined:
            match = read_match(told.match)
            if match is not None:
                self._listener.rule_removed(self, (told.table_id, told.priority, match), told.packet_count)

    def _port_changed(self, status: Any) -> None:
        port = status.desc
        if port.port_no > _LARGEST_PORT:
            return
        before = self._ports_up()
        if status.reason == of.OFPPR_DELETE:
            self._up.pop(port.port_no, None)
        elif port.port_no in self._up or len(self._up) < _MOST_PORTS:
            self._up[port.port_no] = _is_up(port)
        else:
            self._malformed(f"more than {_MOST_PORTS} ports")
        if self.is_joined and self._ports_told is None and before != self._ports_up():
            self._listener.ports_changed(self, self._ports_up())
            now = self._ports_up()
            self._ports_told = asyncio.get_running_loop().call_later(_PORTS_EVERY_S, self._look_at_ports_again, now)

    def _look_at_ports_again(self, told: frozenset[int]) -> None:
        self._ports_told = None
        if self.is_joined and told != self._ports_up():
            self._listener.ports_changed(self, self._ports_up())

    async def _introduce(self) -> None:
        try:
            (features,) = await self._ask(parser.OFPFeaturesRequest(DIALECT))
            self._send(parser.OFPSetConfig(DIALECT, _FRAGMENTS, of.OFPCML_NO_BUFFER))
            (described,) = await self._ask(parser.OFPDescStatsRequest(DIALECT, 0))
            ports = await self._ask(parser.OFPPortDescStatsRequest(DIALECT, 0))
            is_ovs = described.mfr_desc.startswith(_OPEN_VSWITCH)
            tables = await self.read_tables()
            if len(ports) > _MOST_PORTS:
                raise ValueError(f"it has {len(ports)} ports")  # noqa: TRY301 (one way out for all that is wrong)
        except (ConnectionError, TimeoutError, ValueError, AttributeError) as fault:
            _LOG.warning("a switch did not introduce itself: %s", fault)
            self.close()
            return
        self.switch = features.datapath_id
        self._up = {port.port_no: _is_up(port) for port in ports if port.port_no <= _LARGEST_PORT} | self._up
        names = {port.port_no: port.name.decode("utf-8", "replace") for port in ports if port.port_no <= _LARGEST_PORT}
        self.is_joined = True
        self._lobby.leave(self)
        description = b" ".join((described.mfr_desc, described.hw_desc, described.sw_desc)).decode("utf-8", "replace")
        skills, serial = Skills(answers_arp=is_ovs, meters=is_ovs), serial_number(described.serial_num)
        self._listener.joined(
            self, Introduction(self.switch, self._ports_up(), names, tables, skills, description.strip(), serial)
        )

    def _ports_up(self) -> frozenset[int]:
        return frozenset(number for number, up in self._up.items() if up)

    async def _ask(self, question: Any, then: Then | None = None, within_s: float | None = None) -> list[Any]:
        if not self.is_open:
            raise ConnectionError(f"switch {self.switch} is gone")
        raw = self._numbered(question)
        answer = self._questions.asked(question, then)
        self._write(raw)
        try:
            return await asyncio.wait_for(answer, within_s or _ANSWER_S)
        finally:
            self._questions.forget(question.xid)

    def _send(self, said: Any) -> None:
        self._write(self._numbered(said))

    def _numbered(self, said: Any) -> bytes:
        said.set_xid(next(self._xids) & 0xFFFFFFFF)
        said.serialize()
        return bytes(said.buf)

    def _write(self, raw: bytes) -> None:
        if self._unsaid:
            raw = b"".join((*self._unsaid, raw))
            self._unsaid.clear()
            self._unsaid_bytes = 0
        if raw and self._transport is not None:
            self._transport.write(raw)
            if self._is_clogged and self._transport.get_write_buffer_size() > _HOPELESS_BYTES:
                _LOG.warning("switch %s does not read what it is told", self.switch)
                self.close()

    def _malformed(self, what: str) -> None:
        self.counts.malformed += 1
        if self.counts.malformed <= 20:
            _LOG.warning("switch %s sent something wrong: %s", self.switch, what)
        if self.counts.malformed >= _MOST_MALFORMED:
            self.close()


def _is_up(port: Any) -> bool:
    return not port.state & of.OFPPS_LINK_DOWN and not port.config & of.OFPPC_PORT_DOWN
