"""TLS on the wire: records are counted, the open part of the handshake is read."""

from __future__ import annotations

import ssl

import pytest
from hypothesis import given
from hypothesis import strategies as st

from battlebrokers.dissect.registry import recognised
from support.conversation import CLIENT, SERVER, Lost, heard, summary
from support.examples import examples


def record(kind: int, content: bytes) -> bytes:
    return bytes((kind, 3, 3)) + len(content).to_bytes(2, "big") + content


def client_hello(name="broker.example") -> bytes:
    """A real one."""
    outgoing = ssl.MemoryBIO()
    tls = ssl.create_default_context().wrap_bio(ssl.MemoryBIO(), outgoing, server_hostname=name)
    with pytest.raises(ssl.SSLWantReadError):
        tls.do_handshake()
    return outgoing.read()


SERVER_HELLO = record(22, b"\x02\x00\x00\x26\x03\x03" + b"r" * 32 + b"\x00\x13\x01\x00")
APPLICATION = record(23, b"secret bytes")


def test_a_session_is_counted_record_by_record():
    turns = [
        (CLIENT, client_hello()), (SERVER, SERVER_HELLO + record(20, b"\x01") + record(22, b"encrypted")),
        (CLIENT, record(20, b"\x01") + APPLICATION), (SERVER, APPLICATION * 2 + record(21, b"\x01\x00")),
    ]  # fmt: skip
    said = heard(turns, 8883, protocol="tls")
    assert [told.found.kind for told in said.messages if told.found.sender == CLIENT] == [
        "ClientHello", "ChangeCipherSpec", "ApplicationData",
    ]  # fmt: skip
    assert [told.found.kind for told in said.messages if told.found.sender == SERVER] == [
        "ServerHello", "ChangeCipherSpec", "Handshake", "ApplicationData", "ApplicationData", "Alert",
    ]  # fmt: skip
    assert said.pairs == [("ClientHello", "ServerHello")]
    assert said.messages[0].found.name == "broker.example"
    assert said.stream.undecoded_bytes == 3 * 12
    assert not any(told.found.failed for told in said.messages)


def test_a_refused_handshake_is_a_failure():
    said = heard([(CLIENT, client_hello()), (SERVER, record(21, b"\x02\x46"))], 443)
    assert said.pairs == [("ClientHello", "Alert")]
    assert said.messages[1].found.failed


def test_it_is_recognised_from_the_middle_and_found_again_after_a_gap():
    assert recognised("tcp", 9, 9, APPLICATION * 3, b"")[0].name == "tls"
    turns = [(CLIENT, client_hello()), (SERVER, SERVER_HELLO), (SERVER, APPLICATION[:9]), (SERVER, Lost(8))]
    said = heard([*turns, (SERVER, APPLICATION * 2)], 443)
    assert said.kinds.count("ApplicationData") == 2
    said = heard([*turns[:2], (SERVER, b"garbage!" + APPLICATION * 2)], 443)
    assert said.kinds.count("ApplicationData") == 2
    assert said.stream.malformed == 1


@examples(40)
@given(
    st.lists(st.tuples(st.sampled_from((CLIENT, SERVER)), st.binary(min_size=1, max_size=300)), max_size=8),
    st.lists(st.integers(1, 60), min_size=1, max_size=5),
)
def test_any_segmentation_tells_the_same(contents, cuts):
    turns = [(CLIENT, client_hello()), (SERVER, SERVER_HELLO)]
    turns += [(sender, record(23, content)) for sender, content in contents]
    whole = heard(turns, 443, protocol="tls")
    assert whole.stream.malformed == 0
    assert summary(heard(turns, 443, cut=cuts)) == summary(whole)
