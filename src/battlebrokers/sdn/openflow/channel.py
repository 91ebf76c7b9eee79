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
from dataclasses import dataclass, field
from typing import Any, Final, Protocol, cast

from os_ken.exception import OSKenException
from os_ken.ofproto import ofproto_parser
from os_ken.ofproto import ofproto_v1_3 as of
from os_ken.ofproto import ofproto_v1_3_parser as parser

from battlebrokers.sdn.core.broker import Skills
from battlebrokers.sdn.core.instructions import Group, Meter, Order, Rule, Send, Tables
from battlebrokers.sdn.openflow import wire
from battlebrokers.sdn.openflow.codec import (
    DIALECT,
    Foreign,
    message,
    read_groups,
    read_meters,
    read_rule,
    removal,
    sent,
)

_LOG = logging.getLogger(__name__)
_OPEN_VSWITCH: Final = b"Nicira"
_LARGEST_PORT: Final = 0xFFFFFF00
_ANSWER_S: Final = 10.0
"""A switch that takes longer to answer a question is as good as gone."""
PROBE_S: Final = 5.0
_FRAGMENTS: Final = of.OFPC_FRAG_NORMAL
"""Fragments reach the tables, where a rule drops and counts them. Rewriting one would damage it."""


@dataclass(frozen=True, slots=True)
class Introduction:
    """What a switch says of itself when it comes."""

    switch: int
    ports: frozenset[int]
    names: dict[int, str]
    tables: Tables
    skills: Skills
    description: str


class Listener(Protocol):
    """Whom a channel tells; the controller."""

    def joined(self, channel: Channel, introduction: Introduction) -> None:
        """A switch introduced itself."""

    def left(self, channel: Channel) -> None:
        """A switch that had joined is gone."""

    def ports_changed(self, channel: Channel, up: frozenset[int]) -> None:
        """Ports came or went."""

    def packet_came(self, channel: Channel, in_port: int, frame: bytes) -> None:
        """A switch asks what to do with a frame."""


@dataclass(slots=True)
class Counts:
    """What one channel has seen."""

    packet_ins: int = 0
    packet_outs: int = 0
    errors: int = 0
    malformed: int = 0
    reasons: list[str] = field(default_factory=list)
    """The first errors, as the switch put them."""


class Channel(asyncio.Protocol):
    """The controller's end of one connection."""

    def __init__(self, listener: Listener) -> None:
        self._listener = listener
        self._framing = wire.Framing()
        self._xids = itertools.count(1)
        self._waiting: dict[int, tuple[asyncio.Future[list[Any]], list[Any]]] = {}
        self._transport: asyncio.Transport | None = None
        self._greeting: asyncio.Task[None] | None = None
        self._heard = False
        self._up: dict[int, bool] = {}
        self.switch = 0
        """Its number; 0 until it introduced itself."""
        self.is_joined = False
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
        self._send(parser.OFPHello(DIALECT, elements=[parser.OFPHelloElemVersionBitmap([of.OFP_VERSION])]))

    def connection_lost(self, exc: Exception | None) -> None:
        """It is gone: nobody waits for its answers any longer."""
        self._transport = None
        if self._greeting is not None:
            self._greeting.cancel()
        for answer, _ in self._waiting.values():
            if not answer.done():
                answer.set_exception(ConnectionError(f"switch {self.switch} is gone: {exc or 'it closed'}"))
        self._waiting.clear()
        if self.is_joined:
            self.is_joined = False
            self._listener.left(self)

    def data_received(self, data: bytes) -> None:
        """Bytes came."""
        self._heard = True
        try:
            for raw in self._framing.messages(data):
                self._take(raw)
        except ValueError as fault:
            self._malformed(str(fault))
            self.close()

    def close(self) -> None:
        """Hang up."""
        if self._transport is not None:
            self._transport.abort()

    def tell(self, orders: Iterable[Order]) -> None:
        """Orders, in this order; nothing is awaited."""
        raw = bytearray()
        for order in orders:
            if isinstance(order, Send):
                raw += sent(order)
                self.counts.packet_outs += 1
            else:
                raw += self._numbered(message(order))
        if raw and self._transport is not None:
            self._transport.write(bytes(raw))

    def send_frame(self, actions: bytes, frame: bytes, in_port: int) -> None:
        """The fast way of a frame whose actions are bytes already."""
        if self._transport is not None:
            self._transport.write(wire.packet_out(actions, frame, in_port))
            self.counts.packet_outs += 1

    async def barrier(self) -> None:
        """Returns once everything told so far is done."""
        await self._ask(parser.OFPBarrierRequest(DIALECT))

    async def flow_stats(self) -> list[Any]:
        """Every rule with its counters."""
        return await self._ask(parser.OFPFlowStatsRequest(DIALECT, 0, of.OFPTT_ALL, of.OFPP_ANY, of.OFPG_ANY, 0, 0))

    async def group_stats(self) -> list[Any]:
        """Every group with the counters of its buckets."""
        return await self._ask(parser.OFPGroupStatsRequest(DIALECT, 0, of.OFPG_ALL))

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
                self._write(wire.HEADER.pack(wire.VERSION, wire.ECHO_REPLY, length, xid) + raw[wire.HEADER.size :])
            else:
                self._answered(kind, xid, ofproto_parser.msg(DIALECT, version, kind, length, xid, raw))
        except (
            OSKenException,
            struct.error,
            AssertionError,
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

    def _answered(self, kind: int, xid: int, answer: Any) -> None:
        if kind == wire.ERROR:
            self._erred(xid, answer)
        elif kind == wire.PORT_STATUS:
            self._port_changed(answer)
        elif xid in self._waiting:
            future, pieces = self._waiting[xid]
            if kind == wire.MULTIPART_REPLY:
                pieces.extend(answer.body if isinstance(answer.body, list) else [answer.body])
                if answer.flags & of.OFPMPF_REPLY_MORE:
                    return
            else:
                pieces.append(answer)
            del self._waiting[xid]
            if not future.done():
                future.set_result(pieces)

    def _erred(self, xid: int, error: Any) -> None:
        reason = f"type {error.type}, code {error.code}"
        if xid in self._waiting:
            future, _ = self._waiting.pop(xid)
            if not future.done():
                future.set_exception(ConnectionError(f"switch {self.switch} refused: {reason}"))
            return
        self.counts.errors += 1
        if len(self.counts.reasons) < 20:
            self.counts.reasons.append(reason)
        _LOG.warning("switch %s refused an order: %s", self.switch, reason)

    def _port_changed(self, status: Any) -> None:
        port = status.desc
        if port.port_no > _LARGEST_PORT:
            return
        if status.reason == of.OFPPR_DELETE:
            self._up.pop(port.port_no, None)
        else:
            self._up[port.port_no] = _is_up(port)
        if self.is_joined:
            self._listener.ports_changed(self, self._ports_up())

    async def _introduce(self) -> None:
        try:
            (features,) = await self._ask(parser.OFPFeaturesRequest(DIALECT))
            self._send(parser.OFPSetConfig(DIALECT, _FRAGMENTS, of.OFPCML_NO_BUFFER))
            (described,) = await self._ask(parser.OFPDescStatsRequest(DIALECT, 0))
            ports = await self._ask(parser.OFPPortDescStatsRequest(DIALECT, 0))
            is_ovs = described.mfr_desc.startswith(_OPEN_VSWITCH)
            tables = await self._read_tables()
        except (ConnectionError, TimeoutError, ValueError, AttributeError) as fault:
            _LOG.warning("a switch did not introduce itself: %s", fault)
            self.close()
            return
        self.switch = features.datapath_id
        self._up = {port.port_no: _is_up(port) for port in ports if port.port_no <= _LARGEST_PORT} | self._up
        names = {port.port_no: port.name.decode("utf-8", "replace") for port in ports if port.port_no <= _LARGEST_PORT}
        self.is_joined = True
        description = b" ".join((described.mfr_desc, described.hw_desc, described.sw_desc)).decode("utf-8", "replace")
        skills = Skills(answers_arp=is_ovs, meters=is_ovs)
        self._listener.joined(
            self, Introduction(self.switch, self._ports_up(), names, tables, skills, description.strip())
        )

    async def _read_tables(self) -> Tables:
        """What it already knows of us; what is somebody else's is removed."""
        rules: dict[Any, Rule] = {}
        for rule in map(read_rule, await self.flow_stats()):
            if isinstance(rule, Foreign):
                self._send(removal(rule))
            else:
                rules[rule.key] = rule
        groups: dict[int, Group] = {}
        for group in read_groups(await self._ask(parser.OFPGroupDescStatsRequest(DIALECT, 0))):
            if isinstance(group, int):
                self._send(parser.OFPGroupMod(DIALECT, of.OFPGC_DELETE, of.OFPGT_ALL, group, []))
            else:
                groups[group.id] = group
        meters: dict[int, Meter] = {}
        try:
            found = await self._ask(parser.OFPMeterConfigStatsRequest(DIALECT, 0, of.OFPM_ALL))
        except ConnectionError:
            found = []
        for meter in read_meters(found):
            if isinstance(meter, int):
                self._send(parser.OFPMeterMod(DIALECT, of.OFPMC_DELETE, 0, meter, []))
            else:
                meters[meter.id] = meter
        return Tables(rules, groups, meters)

    def _ports_up(self) -> frozenset[int]:
        return frozenset(number for number, up in self._up.items() if up)

    async def _ask(self, question: Any) -> list[Any]:
        if not self.is_open:
            raise ConnectionError(f"switch {self.switch} is gone")
        answer: asyncio.Future[list[Any]] = asyncio.get_running_loop().create_future()
        raw = self._numbered(question)
        self._waiting[question.xid] = (answer, [])
        self._write(raw)
        try:
            return await asyncio.wait_for(answer, _ANSWER_S)
        finally:
            self._waiting.pop(question.xid, None)

    def _send(self, said: Any) -> None:
        self._write(self._numbered(said))

    def _numbered(self, said: Any) -> bytes:
        said.set_xid(next(self._xids) & 0xFFFFFFFF)
        said.serialize()
        return bytes(said.buf)

    def _write(self, raw: bytes) -> None:
        if self._transport is not None:
            self._transport.write(raw)

    def _malformed(self, what: str) -> None:
        self.counts.malformed += 1
        if self.counts.malformed <= 20:
            _LOG.warning("switch %s sent something wrong: %s", self.switch, what)


def _is_up(port: Any) -> bool:
    return not port.state & of.OFPPS_LINK_DOWN and not port.config & of.OFPPC_PORT_DOWN
