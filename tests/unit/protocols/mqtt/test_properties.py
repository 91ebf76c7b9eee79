"""Properties, compared with an independent implementation: paho's tables, packer and unpacker."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from paho.mqtt.packettypes import PacketTypes
from paho.mqtt.properties import Properties as PahoProperties

from battlebrokers.protocols.mqtt.malformed import MalformedPacket
from battlebrokers.protocols.mqtt.packets import PacketType
from battlebrokers.protocols.mqtt.properties import EMPTY, Properties
from battlebrokers.protocols.mqtt.property_codec import KINDS, Carrier, read_properties, write_properties
from battlebrokers.protocols.mqtt.wire import Reader
from support.examples import examples

CARRIERS: list[Carrier] = [
    *(kind for kind in PacketType if kind not in {PacketType.PINGREQ, PacketType.PINGRESP}),
    "will",
]
FORMS = {
    "Byte": {"flag", "bit"},
    "Two Byte Integer": {"u16"},
    "Four Byte Integer": {"u32"},
    "Variable Byte Integer": {"varint"},
    "Binary Data": {"binary"},
    "UTF-8 Encoded String": {"text", "topic"},
    "UTF-8 String Pair": {"pair"},
}
SMALLEST = {
    "flag": b"\1",
    "bit": b"\1",
    "u16": b"\0\1",
    "u32": b"\0\0\0\1",
    "varint": b"\1",
    "text": b"\0\1a",
    "topic": b"\0\1a",
    "binary": b"\0\1a",
    "pair": b"\0\1a\0\1a",
}
PAHO = PahoProperties(PacketTypes.CONNECT)
PAHO_NAMES = {number: name.replace(" ", "") for name, number in PAHO.names.items()}


def paho_type(carrier: Carrier) -> int:
    """The same carrier in paho's words."""
    return PacketTypes.WILLMESSAGE if isinstance(carrier, str) else int(carrier)


def as_paho(properties: Properties, carrier: Carrier) -> PahoProperties:
    """The same properties as paho's object; skips what paho wrongly refuses."""
    theirs = PahoProperties(paho_type(carrier))
    assume("\ufeff" not in repr(properties))
    assume((properties.maximum_packet_bytes or 1) <= 268_435_455)
    for kind in KINDS:
        value = getattr(properties, kind.name)
        if value is None:
            continue
        for item in value if kind.name in {"user_properties", "subscription_identifiers"} else (value,):
            setattr(theirs, PAHO_NAMES[kind.number], int(item) if isinstance(item, bool) else item)
    return theirs


def test_the_table_agrees_with_pahos() -> None:
    assert {kind.number for kind in KINDS} == set(PAHO.properties)
    for kind in KINDS:
        form, carriers = PAHO.properties[kind.number]
        assert kind.form in FORMS[PAHO.types[form]]
        assert {paho_type(carrier) for carrier in kind.carriers} == set(carriers), kind.name


@pytest.mark.parametrize("carrier", CARRIERS)
@examples(40)
@given(data=st.data())
def test_we_write_what_paho_writes_and_paho_reads_what_we_write(
    valid_properties: Callable[[Carrier], st.SearchStrategy[Properties]], carrier: Carrier, data: st.DataObject
) -> None:
    ours = data.draw(valid_properties(carrier))
    theirs = as_paho(ours, carrier)
    written = write_properties(ours, carrier)
    assert written == theirs.pack()
    assert read_properties(Reader(written), carrier) == ours
    reread, used = PahoProperties(paho_type(carrier)).unpack(written)
    assert used == len(written)
    assert reread.json() == theirs.json()


@pytest.mark.parametrize("carrier", CARRIERS, ids=str)
def test_each_property_is_refused_where_it_does_not_belong(carrier: Carrier) -> None:
    refused: dict[tuple[str, int], int] = {}
    for kind in KINDS:
        one = bytes((kind.number,)) + SMALLEST[kind.form]
        for times in (1, 2):
            raw = bytes((len(one) * times,)) + one * times
            try:
                found = read_properties(Reader(raw), carrier)
            except MalformedPacket as error:
                refused[kind.name, times] = error.reason
            else:
                assert write_properties(found, carrier) == raw, (kind.name, times)
    once = {(kind.name, 1): 0x82 for kind in KINDS if carrier not in kind.carriers}
    assert refused == once | {(kind.name, 2): 0x82 for kind in KINDS if carrier not in kind.many}


@examples(300)
@given(st.binary(max_size=60), st.sampled_from(CARRIERS))
def test_random_bytes_are_properties_or_malformed(raw: bytes, carrier: Carrier) -> None:
    try:
        found = read_properties(Reader(raw), carrier)
    except MalformedPacket:
        return
    assert read_properties(Reader(write_properties(found, carrier)), carrier) == found


def test_absent_is_not_zero() -> None:
    zero = Properties(session_expiry_s=0)
    assert zero != EMPTY
    assert write_properties(zero, PacketType.CONNECT) == bytes.fromhex("05 11 00000000")
    assert write_properties(Properties(), PacketType.CONNECT) == b"\0"


def test_the_name_of_an_absent_property_is_not_shown() -> None:
    assert repr(EMPTY) == "Properties()"
    assert repr(Properties(topic_alias=1, maximum_qos=0)) == "Properties(topic_alias=1, maximum_qos=0)"
