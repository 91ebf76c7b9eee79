"""The CoAP link against a server whose every datagram is ours: losses, resets, refusals, blocks, nonsense."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator

import msgspec
import pytest
from aiocoap import CON
from aiocoap.numbers.codes import Code
from aiocoap.optiontypes import OpaqueOption

from battlebrokers.errors import LinkError
from battlebrokers.protocols.base import Endpoint, Failure, Held, Link, LinkOptions, Outgoing, Subscription
from battlebrokers.protocols.coap import talk
from battlebrokers.protocols.registry import make_link
from battlebrokers.protocols.script import Listening, Notification, Say, Script
from support.coap_peer import CoapPeer, coap_peer
from support.links import Ear, until

pytestmark = pytest.mark.slow


@pytest.fixture
async def peer() -> AsyncIterator[CoapPeer]:
    async with coap_peer() as serving:
        yield serving


@pytest.fixture
def make(peer: CoapPeer) -> Iterator[Callable[..., tuple[Link, Ear]]]:
    made: list[Link] = []

    def maker(path: str = "", **options: object) -> tuple[Link, Ear]:
        ear = Ear()
        link = make_link("coap", Endpoint("udp", "127.0.0.1", peer.port, path), LinkOptions("c", **options), ear)  # type: ignore[arg-type]
        made.append(link)
        return link, ear

    yield maker
    for link in made:
        link.abort()


@pytest.fixture
def hurried(monkeypatch: pytest.MonkeyPatch) -> None:
    """Repetitions after a fifth of a second, so that nobody waits for them."""
    monkeypatch.setattr(talk._tuning, "ACK_TIMEOUT", 0.2, raising=False)
    monkeypatch.setattr(talk._tuning, "ACK_RANDOM_FACTOR", 1.0, raising=False)


async def opened(make, path: str = "", **options: object) -> tuple[Link, Ear]:
    link, ear = make(path, **options)
    await link.open()
    return link, ear


def one(token: int = 0, payload: bytes = b"x", qos: int = 1) -> Outgoing:
    return Outgoing(b"a/b", [payload], qos, False, token)


@pytest.mark.parametrize(("qos", "kind"), [(0, "non"), (1, "con")])
async def test_a_publish_is_a_put_and_a_2xx_its_completion(make, peer: CoapPeer, qos: int, kind: str):
    link, ear = await opened(make, "/r/")
    written = link.publish(one(5, b"\x00\xff", qos))
    request = await peer.request()
    assert (request.code, request.opt.uri_path, request.payload) == (Code.PUT, ("r", "a", "b"), b"\x00\xff")
    assert request.mtype.name.lower() == kind
    assert written == peer.last_bytes
    assert link.unacknowledged == 1
    peer.answer(request, Code.CHANGED, kind="ack" if qos else "non", mid=None if qos else 1)
    await until(lambda: ear.acked)
    assert ear.acked == [5]
    assert link.unacknowledged == 0
    assert link.url_bytes == len(f"coap://127.0.0.1:{peer.port}/r/a/b")


@pytest.mark.parametrize(
    "code", [Code.NOT_FOUND, Code.UNAUTHORIZED, Code.INTERNAL_SERVER_ERROR, Code.REQUEST_ENTITY_TOO_LARGE]
)
async def test_an_error_is_a_refusal_with_the_servers_code(make, peer: CoapPeer, code: Code):
    link, ear = await opened(make)
    link.publish(one(1))
    peer.answer(await peer.request(), code, b"no")
    await until(lambda: ear.refused)
    assert ear.refused == [(1, int(code.class_) * 100 + (code & 31))]
    assert link.held is Held.NO


async def test_a_reset_is_a_failure_and_one_with_a_code_a_refusal(make, peer: CoapPeer):
    link, ear = await opened(make)
    link.publish(one(1))
    peer.reset(await peer.request())
    await until(lambda: ear.refused)
    link.publish(one(2))
    peer.answer(await peer.request(), Code.BAD_REQUEST, b"who are you", kind="rst")
    await until(lambda: len(ear.refused) == 2)
    assert ear.refused == [(1, Failure.CLOSED), (2, 400)]
    assert not ear.closings


@pytest.mark.usefixtures("hurried")
async def test_a_lost_datagram_is_repeated_until_it_is_acknowledged(make, peer: CoapPeer):
    link, ear = await opened(make)
    peer.deaf = 2
    link.publish(one(1))
    request = await peer.request()
    peer.acknowledge(request)
    await peer.silence(1.0)
    # The answer comes later, by itself, twice; each is acknowledged, it counts once.
    for _ in range(2):
        peer.answer(request, Code.CHANGED, kind="con", mid=77)
        assert (await peer.request()).mid == 77
    assert ear.acked == [1]


@pytest.mark.usefixtures("hurried")
async def test_silence_is_a_timeout_for_both_kinds(make, peer: CoapPeer):
    link, ear = await opened(make, answer_timeout_s=0.5)
    link.publish(one(1, qos=0))
    link.publish(one(2, qos=1))
    await until(lambda: len(ear.refused) == 2)
    assert sorted(ear.refused) == [(1, Failure.TIMEOUT), (2, Failure.TIMEOUT)]
    mids = [(await peer.request()).mid for _ in range(3)]
    assert len(set(mids)) == 2, "the confirmable one was repeated, the other not"
    assert link.unacknowledged == 0


async def test_nonsense_instead_of_an_answer_fails_the_request_and_nothing_else(make, peer: CoapPeer):
    link, ear = await opened(make)
    link.publish(one(1))
    request = await peer.request()
    peer.send(b"\x64\x44" + request.mid.to_bytes(2, "big") + request.token + b"\xd0")
    peer.send(b"\xff")
    await until(lambda: ear.refused and len(ear.faults) == 2)
    assert ear.refused == [(1, Failure.MALFORMED)]
    link.publish(one(2))
    request = await peer.request()
    peer.send(b"\x64\x44" + request.mid.to_bytes(2, "big") + b"evil")
    peer.answer(request, Code.CHANGED)
    await until(lambda: ear.acked)
    assert ear.acked == [2]
    assert len(ear.faults) == 3
    assert not ear.closings


async def test_the_window_holds_and_opens(make, peer: CoapPeer):
    link, ear = await opened(make, inflight=2)
    assert link.room(0) == link.room(1) == 2
    link.publish(Outgoing(b"a", [b"1", b"2"], 1, False, 0))
    assert link.held is Held.WINDOW
    assert link.room(0) == 0
    peer.answer(await peer.request(), Code.CREATED)
    await until(lambda: ear.writable_calls)
    assert link.room(1) == 1
    usual, _ = make()
    await usual.open()
    assert usual.room(1) == 8


async def test_nobody_there_is_said_when_opening_and_told_when_it_happens_later(make, peer: CoapPeer):
    link, ear = await opened(make)
    link.publish(one(1))
    await peer.request()
    peer.vanish()
    await asyncio.sleep(0)
    link.publish(one(2))
    await until(lambda: ear.closings)
    assert sorted(ear.refused) == [(1, Failure.CLOSED), (2, Failure.CLOSED)]
    assert link.held is Held.OFFLINE
    with pytest.raises(LinkError, match="nobody listens there"):
        await link.open()
    assert len(ear.closings) == 1


async def test_a_server_that_ignores_pings_is_waited_for_once(make, peer: CoapPeer):
    peer.pings = False
    for _ in range(2):
        link, ear = await opened(make)
        link.publish(one(1))
        peer.answer(await peer.request(), Code.CHANGED)
        await until(lambda ear=ear: ear.acked)
        link.abort()


# ── blocks ───────────────────────────────────────────────────────────────────────────────────────────────────────


async def test_a_long_payload_goes_in_blocks_of_the_size_the_server_wants(make, peer: CoapPeer):
    link, ear = await opened(make)
    payload = bytes(range(256)) * 10
    link.publish(Outgoing(b"a", [payload, payload], 1, False, 0))
    for _ in range(2):
        whole, number = b"", 0
        while True:
            request = await peer.request()
            block = request.opt.block1
            assert block.block_number * 256 == len(whole) or number == 0
            whole += request.payload[:256]
            if not block.more:
                break
            # The first block came with 1024 bytes; the server takes 256 of them.
            peer.answer(request, Code.CONTINUE, block1=(block.block_number, True, 4))
            number += 1
        assert whole == payload
        peer.answer(request, Code.CHANGED, block1=(block.block_number, False, 4))
    await until(lambda: len(ear.acked) == 2)
    await peer.silence()


async def test_a_server_that_takes_the_first_block_for_the_whole_is_no_success(make, peer: CoapPeer):
    link, ear = await opened(make)
    link.publish(one(1, b"x" * 5000))
    peer.answer(await peer.request(), Code.CHANGED)
    await until(lambda: ear.refused)
    assert ear.refused == [(1, Failure.UNEXPECTED)]
    await peer.silence()


async def test_a_refusal_in_the_middle_of_the_blocks_ends_them(make, peer: CoapPeer):
    link, ear = await opened(make)
    link.publish(one(1, b"x" * 5000))
    peer.answer(await peer.request(), Code.REQUEST_ENTITY_INCOMPLETE)
    await until(lambda: ear.refused)
    assert ear.refused == [(1, 408)]
    await peer.silence()


# ── observation ──────────────────────────────────────────────────────────────────────────────────────────────────


async def observing(link: Link, peer: CoapPeer, qos: int = 1, first: bytes = b"old"):
    asking = asyncio.create_task(link.subscribe([Subscription("a/b", qos)]))
    request = await peer.request()
    assert (request.code, request.opt.observe, request.opt.uri_path) == (Code.GET, 0, ("a", "b"))
    peer.answer(request, Code.CONTENT, first, observe=1)
    (granted,) = await asking
    assert granted.qos == qos
    return request


async def test_the_first_value_is_an_old_one_and_the_others_are_news(make, peer: CoapPeer):
    link, ear = await opened(make)
    request = await observing(link, peer)
    for number in range(2, 5):
        peer.answer(request, Code.CONTENT, b"%d" % number, kind="con", mid=number, observe=number)
        acknowledged = await peer.request()
        assert (acknowledged.mid, acknowledged.code) == (number, Code.EMPTY)
    peer.answer(request, Code.CONTENT, b"4", kind="con", mid=4, observe=4)
    assert (await peer.request()).mid == 4
    peer.answer(request, Code.CONTENT, b"loose", kind="non", mid=9, observe=5)
    await until(lambda: len(ear.messages) == 5)
    heard = [(message.payload, message.retain, message.qos) for message in ear.messages]
    assert heard == [(b"old", True, 1), (b"2", False, 1), (b"3", False, 1), (b"4", False, 1), (b"loose", False, 0)]
    assert {message.topic for message in ear.messages} == {b"a/b"}


async def test_what_does_not_exist_yet_is_asked_for_again_in_silence(make, peer: CoapPeer):
    link, ear = await opened(make)
    asking = asyncio.create_task(link.subscribe([Subscription("a/b", 1)]))
    peer.answer(await peer.request(), Code.NOT_FOUND)
    (granted,) = await asking
    assert granted.qos == 1
    for _ in range(2):
        peer.answer(await peer.request(), Code.NOT_FOUND)
    request = await peer.request()
    assert request.opt.observe == 0
    peer.answer(request, Code.CONTENT, b"born", observe=1)
    await until(lambda: ear.messages)
    assert [(message.payload, message.retain) for message in ear.messages] == [(b"born", False)]
    await peer.silence()
    assert not ear.faults


@pytest.mark.parametrize(("code", "reason"), [(Code.METHOD_NOT_ALLOWED, 405), (Code.CONTENT, 205)])
async def test_who_cannot_be_observed_is_a_refused_subscription(make, peer: CoapPeer, code: Code, reason: int):
    link, ear = await opened(make)
    asking = asyncio.create_task(link.subscribe([Subscription("a/b", 1)]))
    peer.answer(await peer.request(), code, b"x")
    (granted,) = await asking
    assert (granted.qos, granted.reason) == (-1, reason)
    assert not ear.messages


async def test_a_server_that_does_not_answer_a_subscription_is_a_link_error(make, peer: CoapPeer):
    link, _ = await opened(make, answer_timeout_s=0.3)
    with pytest.raises(LinkError, match="did not answer GET a/b"):
        await link.subscribe([Subscription("a/b")])


async def test_long_notifications_are_fetched_block_by_block(make, peer: CoapPeer):
    link, ear = await opened(make)
    request = await observing(link, peer)
    value = bytes(range(256)) * 5
    peer.answer(request, Code.CONTENT, value[:512], kind="non", mid=5, observe=2, etag=b"v", block2=(0, True, 5))
    for number in (1, 2):
        more = await peer.request()
        assert (more.opt.block2.block_number, more.opt.observe, more.opt.uri_path) == (number, None, ("a", "b"))
        part = value[number * 512 : number * 512 + 512]
        peer.answer(more, Code.CONTENT, part, etag=b"v", block2=(number, number < 2, 5))
    await until(lambda: len(ear.messages) == 2)
    assert ear.messages[1].payload == value


async def test_a_value_that_changes_between_its_blocks_is_not_told(make, peer: CoapPeer):
    link, ear = await opened(make)
    request = await observing(link, peer)
    peer.answer(request, Code.CONTENT, b"x" * 512, kind="non", mid=5, observe=2, etag=b"1", block2=(0, True, 5))
    peer.answer(await peer.request(), Code.CONTENT, b"y" * 9, etag=b"2", block2=(1, False, 5))
    peer.answer(request, Code.CONTENT, b"short", kind="non", mid=6, observe=3)
    await until(lambda: len(ear.messages) == 2)
    assert ear.payloads == [b"old", b"short"]


async def test_blocks_without_end_are_fetched_only_as_far_as_a_message_can_reach(make, peer: CoapPeer):
    link, ear = await opened(make, largest_bytes=1_000)
    request = await observing(link, peer)
    peer.answer(request, Code.CONTENT, b"x" * 512, kind="non", mid=5, observe=2, etag=b"1", block2=(0, True, 5))
    for number in (1, 2):
        more = await peer.request()
        peer.answer(more, Code.CONTENT, b"x" * 512, etag=b"1", block2=(number, True, 5))
    peer.answer(request, Code.CONTENT, b"short", kind="non", mid=6, observe=3)
    await until(lambda: len(ear.messages) == 2)
    assert ear.payloads == [b"old", b"short"]
    assert ear.faults == ["an answer in blocks of more than 1000 bytes"]


async def test_who_stops_observing_says_so_and_resets_what_still_comes(make, peer: CoapPeer):
    link, ear = await opened(make)
    request = await observing(link, peer)
    await link.unsubscribe([Subscription("a/b")])
    goodbye = await peer.request()
    assert (goodbye.opt.observe, goodbye.token) == (1, request.token)
    peer.answer(request, Code.CONTENT, b"late", kind="con", mid=50, observe=9)
    answer = await peer.request()
    assert (answer.mtype.name, answer.mid) == ("RST", 50)
    assert ear.payloads == [b"old"]


async def test_an_observation_that_ends_is_begun_again(make, peer: CoapPeer):
    link, ear = await opened(make)
    request = await observing(link, peer)
    peer.answer(request, Code.NOT_FOUND, kind="non", mid=8)
    again = await peer.request()
    assert again.opt.observe == 0
    peer.answer(again, Code.CONTENT, b"back", observe=1)
    await until(lambda: len(ear.messages) == 2)
    assert ear.messages[1].payload == b"back"


async def test_strangers_requests_are_reset(make, peer: CoapPeer):
    link, _ = await opened(make)
    link.publish(one(0, qos=0))
    await peer.request()
    peer.send(b"\x40\x01\x12\x34")
    answer = await peer.request()
    assert (answer.mtype.name, answer.mid) == ("RST", 0x1234)


# ── dialects ─────────────────────────────────────────────────────────────────────────────────────────────────────

REGISTER = Say(
    "post",
    "/cse",
    json={"m2m:ae": {"rn": "${name}"}},
    headers={"267": "2"},
    keep={"aei": "$.ae.aei", "rsc": "header:307"},
)
CREATE = Say(
    "post",
    "/cse/${aei}/${resource}",
    json={"m2m:cin": {"con": "${payload}"}},
    headers={"267": "4"},
    statuses=[201],
    success={"$.cin.ri": None},
)
LATEST = Say("get", "/cse/${resource}/la")
ONEM2M = Script(
    protocol="coap",
    headers={"279": "C${name}", "283": "${id}", "271": "4", "accept": "50"},
    login=[REGISTER],
    publish=CREATE,
    listening=Listening(way="observe", steps=[Say("post", "/sub", text="${topic}")], fetch=LATEST),
    notification=Notification(payload="$.cin.con", encoding="base64", when={"$.cin": None}),
)


def texts(request, number: int) -> list[bytes]:
    return [option.encode() for option in request.opt.get_option(number)]


async def logged_in(make, peer: CoapPeer) -> tuple[Link, Ear]:
    link, ear = make("", script=ONEM2M, known={"name": "d1"})
    opening = asyncio.create_task(link.open())
    request = await peer.request()
    assert (request.code, request.opt.uri_path) == (Code.POST, ("cse",))
    assert (texts(request, 279), texts(request, 271), texts(request, 267)) == ([b"Cd1"], [b"4"], [b"\x02"])
    assert (request.opt.content_format, request.opt.accept) == (50, 50)
    assert request.payload == b'{"m2m:ae":{"rn":"d1"}}'
    peer.answer(request, Code.CREATED, b'{"m2m:ae":{"aei":"C77"}}')
    with pytest.raises(LinkError, match="has no 'rsc'"):
        await opening
    opening = asyncio.create_task(link.open())
    request = await peer.request()
    answer = b"\x64\x41" + request.mid.to_bytes(2, "big") + request.token
    option = OpaqueOption(307, b"\x07\xd1").encode()
    peer.send(answer + b"\xe2\x00\x26" + option + b'\xff{"m2m:ae":{"aei":"C77"}}')
    await opening
    return link, ear


async def test_a_dialect_logs_in_publishes_and_judges_the_answer(make, peer: CoapPeer):
    link, ear = await logged_in(make, peer)
    written = link.publish(Outgoing(b"a/b", [b"\xff"], 1, False, 9))
    request = await peer.request()
    assert (request.code, request.opt.uri_path) == (Code.POST, ("cse", "C77", "a-b"))
    assert (texts(request, 267), request.payload) == ([b"\x04"], b'{"m2m:cin":{"con":"/w=="}}')
    url = f"coap://127.0.0.1:{peer.port}/cse/C77/a-b"
    assert (link.structured, link.structure_bytes, link.url_bytes) == (True, len(request.payload), len(url))
    assert written > link.structure_bytes
    peer.answer(request, Code.CREATED, b'{"m2m:cin":{"ri":"5"}}')
    await until(lambda: ear.acked)
    for token, (code, body) in enumerate(
        [(Code.CHANGED, b'{"m2m:cin":{"ri":"5"}}'), (Code.CREATED, b"{}"), (Code.CREATED, b"{")]
    ):
        link.publish(one(token))
        peer.answer(await peer.request(), code, body)
    await until(lambda: len(ear.refused) == 3)
    assert ear.refused == [(0, 204), (1, Failure.UNEXPECTED), (2, Failure.UNEXPECTED)]


async def test_a_dialect_subscribes_in_steps_and_reads_notifications(make, peer: CoapPeer):
    link, ear = await logged_in(make, peer)
    asking = asyncio.create_task(link.subscribe([Subscription("a/b", 1)]))
    step = await peer.request()
    assert (step.opt.uri_path, step.payload) == (("sub",), b"a/b")
    peer.answer(step, Code.CREATED)
    request = await peer.request()
    assert (request.opt.uri_path, request.opt.observe) == (("cse", "a-b", "la"), 0)
    peer.answer(request, Code.CONTENT, b'{"m2m:cin":{"con":"/w=="}}', observe=1)
    assert [granted.qos for granted in await asking] == [1]
    for number, body in enumerate([b'{"m2m:cin":{"con":"AAE="}}', b"nonsense", b'{"m2m:cin":{"con":"%"}}', b"[]"], 2):
        peer.answer(request, Code.CONTENT, body, kind="non", mid=number, observe=number)
    await until(lambda: len(ear.messages) == 2 and len(ear.faults) == 2)
    assert ear.payloads == [b"\xff", b"\x00\x01"]


async def test_a_quiet_server_grants_by_its_acknowledgement_and_its_first_word_is_news(make, peer: CoapPeer):
    listening = msgspec.structs.replace(ONEM2M.listening, steps=[], quiet=True)
    script = msgspec.structs.replace(ONEM2M, login=[], listening=listening)
    link, ear = make("", script=script, known={"name": "d1"}, answer_timeout_s=0.3)
    await link.open()
    asking = asyncio.create_task(link.subscribe([Subscription("a/b", 1)]))
    request = await peer.request()
    peer.acknowledge(request)
    assert [granted.qos for granted in await asking] == [1]
    # Longer than an answer may take: nobody asks again, for this one came.
    await peer.silence(0.6)
    peer.answer(request, Code.CONTENT, b'{"m2m:cin":{"con":"AAE="}}', kind="con", mid=7, observe=1)
    assert (await peer.request()).mid == 7
    await until(lambda: ear.messages)
    assert [(message.payload, message.retain) for message in ear.messages] == [(b"\x00\x01", False)]
    # Gone in the end: it is asked for again, and a refusal then is final.
    peer.answer(request, Code.NOT_FOUND, kind="non", mid=8)
    peer.answer(await peer.request(), Code.UNAUTHORIZED)
    await peer.silence()
    assert ear.faults == []


async def test_a_quiet_server_may_refuse_at_once_or_be_silent(make, peer: CoapPeer):
    listening = msgspec.structs.replace(ONEM2M.listening, steps=[], quiet=True)
    script = msgspec.structs.replace(ONEM2M, login=[], listening=listening)
    link, _ = make("", script=script, known={"name": "d1"}, answer_timeout_s=0.3)
    await link.open()
    asking = asyncio.create_task(link.subscribe([Subscription("a/b", 1)]))
    peer.answer(await peer.request(), Code.UNAUTHORIZED)
    assert [(granted.qos, granted.reason) for granted in await asking] == [(-1, 401)]
    with pytest.raises(LinkError, match="did not answer GET a/b"):
        await link.subscribe([Subscription("a/b")])


async def test_a_refused_login_is_a_link_error_with_the_code(make, peer: CoapPeer):
    link, _ = make("", script=ONEM2M, known={"name": "d1"})
    opening = asyncio.create_task(link.open())
    peer.answer(await peer.request(), Code.FORBIDDEN)
    with pytest.raises(LinkError, match=r"refused login: 4\.03") as caught:
        await opening
    assert caught.value.code == 403
    assert link.held is Held.OFFLINE


async def test_a_dialect_undoes_each_subscription_and_logs_out_when_it_leaves(make, peer: CoapPeer):
    script = Script(
        protocol="coap",
        listening=Listening(
            way="observe",
            steps=[Say("post", target="/subscriptions", text="${topic}", keep={"subscription": "$.id"})],
            fetch=Say("get", target="/told/${subscription}"),
            undo=[Say("delete", target="/subscriptions/${subscription}")],
        ),
        logout=[Say("post", target="/logout", json={"name": "${name}"})],
    )
    link, ear = await opened(make, script=script, known={"name": "n1"})
    asking = asyncio.create_task(link.subscribe([Subscription("a"), Subscription("b"), Subscription("c")]))
    for _ in range(6):
        request = await peer.request()
        if request.code == Code.POST:
            peer.answer(request, Code.CREATED, b'{"id": "s-%s"}' % request.payload)
        else:
            peer.answer(request, Code.CONTENT, b"", observe=1)
    assert [granted.qos for granted in await asking] == [0, 0, 0]
    leaving = asyncio.create_task(link.unsubscribe([Subscription("b")]))
    assert (await peer.request()).opt.observe == 1
    request = await peer.request()
    assert (request.code, request.opt.uri_path) == (Code.DELETE, ("subscriptions", "s-b"))
    peer.answer(request, Code.DELETED)
    await leaving
    closing = asyncio.create_task(link.close())
    last = []
    while not (last and last[-1].opt.uri_path == ("logout",)):
        last.append(await peer.request())
        if last[-1].mtype == CON:
            # A no to one does not keep the rest from being said.
            peer.answer(last[-1], Code.NOT_FOUND if last[-1].opt.uri_path[-1] == "s-a" else Code.DELETED)
    await closing
    assert [request.opt.uri_path for request in last if request.code == Code.DELETE] == [
        ("subscriptions", "s-a"), ("subscriptions", "s-c"),
    ]  # fmt: skip
    assert last[-1].payload == b'{"name":"n1"}'
    assert link.held is Held.OFFLINE
    assert not ear.closings


async def test_who_leaves_a_server_that_is_gone_is_not_kept_and_told_of_no_loss(make, peer: CoapPeer):
    script = Script(protocol="coap", logout=[Say("post", target="/logout", text="x")] * 3)
    link, ear = await opened(make, script=script)
    peer.vanish()
    await asyncio.sleep(0)
    await link.close()
    assert link.held is Held.OFFLINE
    assert not ear.closings
