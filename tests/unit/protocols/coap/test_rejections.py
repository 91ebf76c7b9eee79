"""What a CoAP endpoint must reject or must not take twice: unknown critical options, format errors, old news."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator

import pytest
from aiocoap.numbers.codes import Code
from hypothesis import given
from hypothesis import strategies as st

from battlebrokers.protocols.base import Endpoint, Failure, Link, LinkOptions, Outgoing, Subscription
from battlebrokers.protocols.coap import observing
from battlebrokers.protocols.coap.message import ACK, CON, NON, MalformedMessage, encoded_options, head, read
from battlebrokers.protocols.coap.observing import HALF, is_fresher
from battlebrokers.protocols.coap.repetitions import REMEMBERED, Repetitions
from battlebrokers.protocols.registry import make_link
from support.coap_peer import CoapPeer, coap_peer
from support.examples import examples
from support.links import Ear, until

UNKNOWN_CRITICAL, UNKNOWN_ELECTIVE = 65_001, 65_002
CONTENT = 69


@pytest.fixture
async def peer() -> AsyncIterator[CoapPeer]:
    async with coap_peer() as serving:
        yield serving


@pytest.fixture
def ear() -> Ear:
    return Ear()


@pytest.fixture
def link(peer: CoapPeer, ear: Ear) -> Iterator[Link]:
    made = make_link("coap", Endpoint("udp", "127.0.0.1", peer.port, ""), LinkOptions("c"), ear)
    yield made
    made.abort()


async def observed(link: Link, peer: CoapPeer, number: int = 1) -> bytes:
    """The token of an observation whose first value came with that number."""
    await link.open()
    asking = asyncio.create_task(link.subscribe([Subscription("a/b", 1)]))
    request = await peer.request()
    peer.answer(request, Code.CONTENT, b"first", observe=number)
    await asking
    token: bytes = request.token
    return token


def notification(token: bytes, message_id: int, number: int, payload: bytes, kind: int = NON) -> bytes:
    value = number.to_bytes(3, "big").lstrip(b"\0")
    return head(kind, CONTENT, message_id, token) + encoded_options([(6, value)]) + b"\xff" + payload


# ── unknown options (RFC 7252 §5.4.1) ────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("kind", [ACK, CON, NON], ids=["piggybacked", "separate", "non-confirmable"])
async def test_an_answer_with_an_unknown_critical_option_is_rejected(link: Link, peer: CoapPeer, ear: Ear, kind: int):
    await link.open()
    link.publish(Outgoing(b"a/b", [b"x"], 1, False, 7))
    request = await peer.request()
    message_id = request.mid if kind == ACK else 77
    peer.send(head(kind, 68, message_id, request.token) + encoded_options([(UNKNOWN_CRITICAL, b"?")]))
    await until(lambda: ear.refused)
    assert ear.refused == [(7, Failure.MALFORMED)]
    assert ear.faults == [f"option {UNKNOWN_CRITICAL} is critical and nobody here understands it"]
    if kind == CON:
        reset = await peer.request()
        assert (reset.mtype.name, reset.mid) == ("RST", 77)
    else:
        await peer.silence(0.05)


async def test_an_unknown_elective_option_is_ignored(link: Link, peer: CoapPeer, ear: Ear):
    await link.open()
    link.publish(Outgoing(b"a/b", [b"x"], 1, False, 7))
    request = await peer.request()
    peer.send(head(ACK, 68, request.mid, request.token) + encoded_options([(UNKNOWN_ELECTIVE, b"?")]))
    await until(lambda: ear.acked)
    assert not ear.faults


async def test_a_notification_with_an_unknown_critical_option_is_not_delivered(link: Link, peer: CoapPeer, ear: Ear):
    token = await observed(link, peer)
    options = encoded_options([(6, b"\x05"), (UNKNOWN_CRITICAL, b"")])
    peer.send(head(CON, CONTENT, 50, token) + options + b"\xffnews")
    reset = await peer.request()
    assert (reset.mtype.name, reset.mid) == ("RST", 50)
    assert ear.payloads == [b"first"]
    assert len(ear.faults) == 1


async def test_a_request_with_an_unknown_critical_option_is_answered_with_bad_option(link: Link, peer: CoapPeer):
    await observed(link, peer)
    peer.send(head(CON, 1, 60, b"abc") + encoded_options([(UNKNOWN_CRITICAL, b"")]))
    answer = await peer.request()
    assert (answer.mtype.name, answer.mid, answer.token, answer.code) == ("ACK", 60, b"abc", Code.BAD_OPTION)


# ── message format errors (RFC 7252 §3, §4.2) ────────────────────────────────────────────────────────────────────


@given(
    st.lists(st.tuples(st.sampled_from([4, 268, 5000]), st.binary(max_size=20)), max_size=5),
    st.binary(max_size=4),
)
@examples(200)
def test_a_payload_marker_without_a_payload_is_an_error_and_a_value_that_ends_like_one_is_none(
    options: list[tuple[int, bytes]], payload: bytes
):
    whole = head(CON, CONTENT, 1, b"tok") + encoded_options([*options, (65_000, b"\xff")])
    assert read(whole).payload == b""
    for number in (268, 524):
        # The number's own last byte, with no value behind it.
        ending = head(CON, CONTENT, 1) + encoded_options([(number, b"")])
        assert ending[-1] == 0xFF
        assert list(read(ending).options) == [number]
    with pytest.raises(MalformedMessage, match="a payload marker is followed by no payload"):
        read(whole + b"\xff")
    assert read(whole + b"\xff" + payload + b"\xff").payload == payload + b"\xff"
    with pytest.raises(MalformedMessage, match="a payload marker is followed by no payload"):
        read(head(CON, CONTENT, 1) + b"\xff")


async def test_a_marker_without_a_payload_is_counted_and_reset_and_the_answer_is_none(
    link: Link, peer: CoapPeer, ear: Ear
):
    await link.open()
    link.publish(Outgoing(b"a/b", [b"x"], 1, False, 7))
    request = await peer.request()
    peer.acknowledge(request)
    peer.send(head(CON, 68, 90, request.token) + b"\xff")
    reset = await peer.request()
    assert (reset.mtype.name, reset.mid) == ("RST", 90)
    assert ear.refused == [(7, Failure.MALFORMED)]
    assert ear.faults == ["a payload marker is followed by no payload"]


# ── repetitions (RFC 7252 §4.5) ──────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("kind", [CON, NON], ids=["confirmable", "non-confirmable"])
async def test_a_notification_that_comes_twice_is_delivered_once(link: Link, peer: CoapPeer, ear: Ear, kind: int):
    token = await observed(link, peer)
    twice = notification(token, 40, 2, b"twice", kind)
    peer.send(twice)
    peer.send(notification(token, 41, 3, b"between", kind))
    peer.send(twice)
    peer.send(notification(token, 42, 4, b"last", kind))
    await until(lambda: b"last" in ear.payloads)
    assert ear.payloads == [b"first", b"twice", b"between", b"last"]
    if kind == CON:
        answers = [await peer.request() for _ in range(4)]
        assert [(answer.mtype.name, answer.mid) for answer in answers] == [("ACK", mid) for mid in (40, 41, 40, 42)]


async def test_a_repetition_is_delivered_once_although_its_number_is_news(
    link: Link, peer: CoapPeer, ear: Ear, monkeypatch: pytest.MonkeyPatch
):
    # Behind 128 s every notification is fresh: only its message id tells that it came before.
    monkeypatch.setattr(observing, "FRESH_AFTER_NS", -1)
    token = await observed(link, peer)
    peer.send(notification(token, 40, 2, b"twice"))
    peer.send(notification(token, 40, 2, b"twice"))
    peer.send(notification(token, 41, 1, b"last"))
    await until(lambda: b"last" in ear.payloads)
    assert ear.payloads == [b"first", b"twice", b"last"]


async def test_what_nobody_wants_is_reset_each_time_it_comes(link: Link, peer: CoapPeer):
    await observed(link, peer)
    for _ in range(2):
        peer.send(notification(b"????", 70, 2, b"for somebody else", CON))
        answer = await peer.request()
        assert (answer.mtype.name, answer.mid) == ("RST", 70)


def test_the_memory_of_what_came_is_bounded_and_an_id_may_be_used_for_another_message():
    known = Repetitions()
    for message_id in range(3 * REMEMBERED):
        assert known.answer_given(message_id, b"x") is None
        known.remember(message_id, b"x", wanted=True)
    assert len(known._known) == REMEMBERED
    assert known.answer_given(3 * REMEMBERED - 1, b"x") is True
    assert known.answer_given(3 * REMEMBERED - 1, b"y") is None
    assert known.answer_given(0, b"x") is None


# ── old news (RFC 7641 §3.4) ─────────────────────────────────────────────────────────────────────────────────────


async def test_a_notification_that_was_overtaken_is_not_delivered(link: Link, peer: CoapPeer, ear: Ear):
    token = await observed(link, peer, 10)
    for message_id, (number, payload) in enumerate(
        [(12, b"newer"), (11, b"overtaken"), (12, b"the same again"), (13, b"newest")], 40
    ):
        peer.send(notification(token, message_id, number, payload, CON))
    await until(lambda: b"newest" in ear.payloads)
    assert ear.payloads == [b"first", b"newer", b"newest"]
    # It came all the same, and is acknowledged.
    answers = [await peer.request() for _ in range(4)]
    assert {answer.mtype.name for answer in answers} == {"ACK"}


async def test_numbers_begin_anew_behind_the_largest_and_with_each_registration(link: Link, peer: CoapPeer, ear: Ear):
    token = await observed(link, peer, 2 * HALF - 1)
    peer.send(notification(token, 40, 0, b"wrapped"))
    peer.send(notification(token, 41, 2 * HALF - 1, b"before"))
    peer.send(head(NON, 132, 42, token))
    again = await peer.request()
    peer.answer(again, Code.CONTENT, b"back", observe=2 * HALF - 5)
    await until(lambda: b"back" in ear.payloads)
    peer.send(notification(again.token, 43, 2 * HALF - 4, b"on"))
    await until(lambda: b"on" in ear.payloads)
    assert ear.payloads == [b"first", b"wrapped", b"back", b"on"]


@pytest.mark.parametrize(
    ("last", "number", "later_s", "fresher"),
    [
        (1, 2, 0, True), (2, 1, 0, False), (2, 2, 0, False), (0, HALF - 1, 0, True), (0, HALF, 0, False),
        (2 * HALF - 1, 0, 0, True), (HALF, 0, 0, False), (HALF + 1, 0, 0, True), (2, 1, 128, False), (2, 1, 129, True),
    ],
)  # fmt: skip
def test_which_of_two_is_fresher_is_decided_as_the_rfc_says(last: int, number: int, later_s: int, fresher: bool):
    assert is_fresher(last, 5, number, 5 + later_s * 1_000_000_000) is fresher
