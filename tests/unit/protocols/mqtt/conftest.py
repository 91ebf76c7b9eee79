"""Random valid MQTT packets and properties for every test here."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import strategies as st

from battlebrokers.protocols.mqtt.packets import (
    Auth,
    ConnAck,
    Connect,
    Disconnect,
    FilterRequest,
    Packet,
    PacketType,
    PingReq,
    PingResp,
    PubAck,
    PubComp,
    Publish,
    PubRec,
    PubRel,
    SubAck,
    Subscribe,
    UnsubAck,
    Unsubscribe,
    WillMessage,
)
from battlebrokers.protocols.mqtt.properties import EMPTY, Properties
from battlebrokers.protocols.mqtt.property_codec import KINDS, Carrier
from battlebrokers.protocols.mqtt.reasons import allowed_reasons

MAX_VARINT = 268_435_455

texts = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=20)
words = st.text("abcäß日😀$ ", min_size=1, max_size=8)
topics = st.lists(words, min_size=1, max_size=4).map("/".join)
packet_ids = st.integers(1, 65_535)
qualities = st.integers(0, 2)
u16s = st.integers(0, 65_535)
u32s = st.integers(0, 0xFFFF_FFFF)


@st.composite
def filters(draw: st.DrawFn) -> str:
    levels = draw(st.lists(words | st.just("+"), min_size=1, max_size=4))
    tail = draw(st.sampled_from(["", "/", "/#"]))
    share = draw(st.sampled_from(["", "", "$share/group/"]))
    return draw(st.just("#") | st.just(share + "/".join(levels) + tail))


def _value(form: str, nonzero: bool) -> st.SearchStrategy[object]:
    least = 1 if nonzero else 0
    return {
        "flag": st.booleans(),
        "bit": st.integers(0, 1),
        "u16": st.integers(least, 65_535),
        "u32": st.integers(least, 0xFFFF_FFFF),
        "varint": st.integers(1, MAX_VARINT),
        "text": texts,
        "topic": topics,
        "binary": st.binary(max_size=20),
        "pair": st.tuples(texts, texts),
    }[form]


@st.composite
def properties(draw: st.DrawFn, carrier: Carrier) -> Properties:
    chosen = {}
    allowed = [kind for kind in KINDS if carrier in kind.carriers]
    for kind in draw(st.lists(st.sampled_from(allowed), max_size=6, unique=True)):
        value = _value(kind.form, kind.nonzero)
        if kind.name in {"user_properties", "subscription_identifiers"}:
            most = 3 if carrier in kind.many else 1
            value = st.lists(value, min_size=1, max_size=most).map(tuple)
        chosen[kind.name] = draw(value)
    if carrier == PacketType.CONNECT and "authentication_method" not in chosen:
        chosen.pop("authentication_data", None)
    return Properties(**chosen)


@st.composite
def _connect(draw: st.DrawFn, version: int, extra: Callable[[Carrier], st.SearchStrategy[Properties]]) -> Connect:
    username = draw(st.none() | texts)
    will = st.builds(WillMessage, topics, st.binary(max_size=50), qualities, st.booleans(), extra("will"))
    client_id, clean = draw(texts), draw(st.booleans())
    return Connect(
        client_id,
        version,
        clean or (version == 4 and not client_id),
        draw(u16s),
        username,
        draw(st.none() | st.binary(max_size=30)) if version == 5 or username is not None else None,
        draw(st.none() | will),
        draw(extra(PacketType.CONNECT)),
    )


@st.composite
def _publish(draw: st.DrawFn, version: int, extra: Callable[[Carrier], st.SearchStrategy[Properties]]) -> Publish:
    qos = draw(qualities)
    carried = draw(extra(PacketType.PUBLISH))
    topic = draw(st.just("") | topics) if carried.topic_alias is not None else draw(topics)
    dup = bool(qos) and draw(st.booleans())
    payload, retain = draw(st.binary(max_size=300)), draw(st.booleans())
    return Publish(topic, payload, qos, retain, dup, draw(packet_ids) if qos else None, carried)


@st.composite
def _connack(draw: st.DrawFn, version: int, extra: Callable[[Carrier], st.SearchStrategy[Properties]]) -> ConnAck:
    reason = draw(st.sampled_from(sorted(allowed_reasons(PacketType.CONNACK, version))))
    return ConnAck(reason == 0 and draw(st.booleans()), reason, draw(extra(PacketType.CONNACK)))


@st.composite
def _auth(draw: st.DrawFn, extra: Callable[[Carrier], st.SearchStrategy[Properties]]) -> Auth:
    carried = draw(extra(PacketType.AUTH))
    return Auth() if carried.authentication_method is None else Auth(draw(st.sampled_from([0, 0x18, 0x19])), carried)


@st.composite
def _request(draw: st.DrawFn, version: int) -> FilterRequest:
    topic_filter, qos = draw(filters()), draw(qualities)
    if version == 4:
        return FilterRequest(topic_filter, qos)
    no_local = draw(st.booleans()) and not topic_filter.startswith("$share/")
    return FilterRequest(topic_filter, qos, no_local, draw(st.booleans()), draw(qualities))


def packets_of(packet_type: PacketType, version: int) -> st.SearchStrategy[Packet]:
    """Every valid packet of one type; 3.1.1 has no AUTH, so that is a PINGREQ there."""

    def extra(carrier: Carrier) -> st.SearchStrategy[Properties]:
        return properties(carrier) if version == 5 else st.just(EMPTY)

    carried = extra(packet_type)
    reason = st.sampled_from(sorted(allowed_reasons(packet_type, version)) or [0])
    reasons = st.lists(reason, min_size=1, max_size=4).map(tuple)
    match packet_type:
        case PacketType.CONNECT:
            return _connect(version, extra)
        case PacketType.CONNACK:
            return _connack(version, extra)
        case PacketType.PUBLISH:
            return _publish(version, extra)
        case PacketType.PUBACK | PacketType.PUBREC | PacketType.PUBREL | PacketType.PUBCOMP:
            kind = {4: PubAck, 5: PubRec, 6: PubRel, 7: PubComp}[packet_type]
            return st.builds(kind, packet_ids, reason, carried)
        case PacketType.SUBSCRIBE:
            requests = st.lists(_request(version), min_size=1, max_size=4).map(tuple)
            return st.builds(Subscribe, packet_ids, requests, carried)
        case PacketType.SUBACK:
            return st.builds(SubAck, packet_ids, reasons, carried)
        case PacketType.UNSUBSCRIBE:
            return st.builds(Unsubscribe, packet_ids, st.lists(filters(), min_size=1, max_size=4).map(tuple), carried)
        case PacketType.UNSUBACK:
            return st.builds(UnsubAck, packet_ids, reasons if version == 5 else st.just(()), carried)
        case PacketType.PINGREQ:
            return st.just(PingReq())
        case PacketType.PINGRESP:
            return st.just(PingResp())
        case PacketType.DISCONNECT:
            return st.builds(Disconnect, reason, carried)
        case PacketType.AUTH:
            return _auth(extra) if version == 5 else st.just(PingReq())


@pytest.fixture(scope="session")
def valid_packets() -> Callable[[PacketType, int], st.SearchStrategy[Packet]]:
    """A function (packet type, version) → strategy."""
    return packets_of


@pytest.fixture(scope="session")
def valid_properties() -> Callable[[Carrier], st.SearchStrategy[Properties]]:
    """A function carrier → strategy."""
    return properties
