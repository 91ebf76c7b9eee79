"""The WebSocket link against real sockets: dialogues, pushes, windows, and servers that misbehave."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import ssl
import struct
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from battlebrokers.errors import LinkError
from battlebrokers.protocols.base import Endpoint, Failure, Held, LinkOptions, Outgoing, Subscription, TlsFiles
from battlebrokers.protocols.registry import make_link
from battlebrokers.protocols.script import Listening, Notification, Say, Script
from battlebrokers.protocols.websocket.connection import Connection
from battlebrokers.protocols.websocket.link import WebSocketLink
from support.certificates import Authority
from support.links import Ear, Wire, until
from support.websocket_server import WebPeer, WebServer, frame, text

HIVE = Script(
    "websocket",
    ids="$.requestId",
    login=[
        Say(
            "send",
            json={"action": "authenticate", "token": "${token}", "requestId": "${id}"},
            answer={},
            success={"$.status": "success"},
            keep={"session": "$.session"},
        )
    ],
    publish=Say(
        "send",
        json={
            "action": "notification/insert",
            "requestId": "${id}",
            "deviceId": "${topic}",
            "notification": {"parameters": {"p": "${payload}"}},
        },
        answer={},
        success={"$.status": "success"},
    ),
    listening=Listening(
        steps=[
            Say(
                "send",
                json={"action": "notification/subscribe", "deviceId": "${resource}", "requestId": "${id}"},
                answer={},
                success={"$.status": "success"},
                keep={"subscription": "$.subscriptionId"},
                repeat=True,
            )
        ],
        undo=[
            Say(
                "send",
                json={"action": "notification/unsubscribe", "subscriptionId": "${subscription}", "requestId": "${id}"},
                answer={},
                repeat=True,
            )
        ],
    ),
    notification=Notification(
        when={"$.action": "notification/insert", "$.notification": None},
        payload="$.notification.parameters.p",
        encoding="base64",
        topic="$.notification.deviceId",
    ),
    logout=[Say("send", json={"action": "bye"})],
)
"""With ids, as DeviceHive has them."""

IN_ORDER = Script(
    "websocket",
    publish=Say("send", json=["put", {"p": "${payload}"}], answer={"$[0]": "done"}, success={"$[1].status": 200}),
    listening=Listening(wildcards=True),
    notification=Notification(when={"$[0]": "message"}, payload="$[1].payload", encoding="base64"),
)
"""Without ids: answers come in order."""

SILENT = Script(
    "websocket",
    login=[
        Say("send", json=["identity", {"uuid": "${uuid}"}], answer={"$[1].status": None}, success={"$[0]": "ready"})
    ],
    publish=Say("send", json=["message", {"devices": ["${listener.uuid}"], "payload": "${payload}"}]),
    listening=Listening(wildcards=True),
    notification=Notification(when={"$[0]": "message"}, payload="$[1].payload", encoding="base64"),
)
"""Nobody answers a publish, as with Meshblu."""

RAW = Script("websocket", publish=Say("send", text="${payload}"), listening=Listening(wildcards=True))
PUSH = {"action": "notification/insert", "subscriptionId": 5}


def pushed(payload: bytes, device: str = "d") -> dict[str, Any]:
    return {**PUSH, "notification": {"deviceId": device, "parameters": {"p": base64.b64encode(payload).decode()}}}


def outgoing(payloads: list[bytes], first_token: int = 0, topic: bytes = b"a/b", qos: int = 1) -> Outgoing:
    return Outgoing(topic, payloads, qos, False, first_token)


def made(server: WebServer, script: Script | None, ear: Ear | None = None, **options: Any) -> tuple[WebSocketLink, Ear]:
    ear = ear or Ear()
    options.setdefault("known", {"token": "t0k", "uuid": "u1"})
    transport = options.pop("transport", "ws")
    path = options.pop("path", "/ws")
    link = make_link(
        "websocket",
        Endpoint(transport, "127.0.0.1", server.port, path),
        LinkOptions("c1", script=script, **options),
        ear,
    )
    assert isinstance(link, WebSocketLink)
    return link, ear


@pytest.fixture
async def server() -> AsyncIterator[WebServer]:
    async with WebServer().serving() as running:
        yield running


async def logged_in(server: WebServer, script: Script, **options: Any) -> tuple[WebSocketLink, Ear, WebPeer]:
    """A link that is open, and its peer."""
    link, ear = made(server, script, **options)
    opening = asyncio.create_task(link.open())
    peer = await server.accept()
    for say in script.login:
        asked = await peer.read()
        if script.ids:
            peer.tell({"requestId": asked["requestId"], "status": "success", "session": "s"})
        elif say.answer is not None:
            peer.tell(["ready", {"status": 200}])
    await opening
    return link, ear, peer


# ── dialogues ────────────────────────────────────────────────────────────────────────────────────────────────────────


async def test_without_a_dialect_nothing_is_opened(server: WebServer) -> None:
    link, _ = made(server, None)
    assert link.held is Held.OFFLINE
    with pytest.raises(LinkError, match="does not say how to publish"):
        await link.open()


async def test_a_whole_life_with_ids(server: WebServer) -> None:
    link, ear = made(server, HIVE)
    opening = asyncio.create_task(link.open())
    peer = await server.accept()
    asked = await peer.read()
    assert asked == {"action": "authenticate", "token": "t0k", "requestId": asked["requestId"]}
    assert link.held is Held.OFFLINE
    peer.tell({"requestId": asked["requestId"], "status": "success", "session": 7})
    assert (await opening).received_ns
    assert (link.held, link.room(1) > 0) == (Held.NO, True)

    assert link.publish(outgoing([b"\0one", b"\xfftwo"], 40)) > 0
    first, second = await peer.read(), await peer.read()
    assert (first["deviceId"], base64.b64decode(first["notification"]["parameters"]["p"])) == ("a/b", b"\0one")
    assert link.structure_bytes == len(
        b'{"action":"notification/insert","requestId":"2","deviceId":"a/b","notification":{"parameters":{"p":"AG9uZQ=="}}}'
    )
    assert link.unacknowledged == 2
    # Answers come in any order; numbers are as good as texts.
    peer.tell({"requestId": int(second["requestId"]), "status": "success"})
    await until(lambda: ear.acked == [41])
    peer.tell({"requestId": first["requestId"], "status": "error", "code": 404, "error": "no such device"})
    await until(lambda: ear.refused == [(40, 404)])
    assert link.unacknowledged == 0

    subscribing = asyncio.create_task(link.subscribe([Subscription("d/1", 1)]))
    asked = await peer.read()
    assert asked["deviceId"] == "d-1"
    # A push may come before the answer.
    peer.tell(pushed(b"early"), {"requestId": asked["requestId"], "status": "success", "subscriptionId": 99})
    (granted,) = await subscribing
    assert granted.qos == 1
    peer.tell(pushed(b"late", "dev"))
    await until(lambda: len(ear.messages) == 2)
    assert [(heard.topic, heard.payload) for heard in ear.messages] == [(b"d", b"early"), (b"dev", b"late")]
    assert ear.messages[0].wire_size == len(text(pushed(b"early")))

    closing = asyncio.create_task(link.close())
    asked = await peer.read()
    assert (asked["action"], asked["subscriptionId"]) == ("notification/unsubscribe", "99")
    peer.tell({"requestId": asked["requestId"], "status": "success"})
    assert (await peer.read())["action"] == "bye"
    assert (await peer.frame()).opcode == 8
    peer.send(frame(b"\x03\xe8", 8))
    await closing
    assert link.held is Held.OFFLINE
    assert (ear.closings, ear.faults) == ([], [])


async def test_answers_without_ids_come_in_order(server: WebServer) -> None:
    link, ear, peer = await logged_in(server, IN_ORDER)
    link.publish(outgoing([b"a", b"b", b"c"], 10))
    for _ in range(3):
        await peer.read()
    peer.tell(["done", {"status": 200}], ["message", {"payload": "eA=="}], ["done", {"status": 413}])
    await until(lambda: ear.refused)
    assert (ear.acked, ear.refused, ear.payloads) == ([10], [(11, 413)], [b"x"])
    peer.tell(["done", {"status": "strange"}])
    await until(lambda: len(ear.refused) == 2)
    assert ear.refused[1] == (12, Failure.UNEXPECTED)
    link.abort()


async def test_where_nobody_answers_a_message_is_sent_and_that_is_all(server: WebServer) -> None:
    link, ear, peer = await logged_in(
        server, SILENT, known={"uuid": "u1"}, known_of_topics={"a/b": {"listener.uuid": ["x", "y"]}}
    )
    assert link.capabilities.acknowledges == frozenset()
    assert link.capabilities.qos == {0}
    assert set(link.capabilities.completion) == {0}
    assert WebSocketLink.capabilities.acknowledges == {0, 1}
    link.publish(outgoing([b"a"] * 100, qos=0))
    assert await peer.read() == ["message", {"devices": ["x", "y"], "payload": "YQ=="}]
    assert (link.unacknowledged, ear.acked, link.held) == (0, [], Held.NO)
    link.abort()


async def test_a_payload_alone_goes_as_it_is(server: WebServer) -> None:
    link, ear, peer = await logged_in(server, RAW)
    await link.subscribe([Subscription("#")])
    assert link.capabilities.wildcards
    payload = bytes(range(256)) * 3
    written = link.publish(outgoing([payload, b""], qos=0))
    got = await peer.frame()
    assert (got.opcode, bytes(got.data)) == (2, payload)
    assert written == 2 + 2 + 4 + len(payload) + 6
    peer.send(frame(payload, 2, False), frame(b"", 9), frame(b"end", 0))
    await until(lambda: ear.messages)
    assert ear.payloads == [payload + b"end"]
    assert (await peer.frame()).data == b""
    assert (await peer.frame()).opcode == 10
    link.abort()


async def test_matrices_are_sent_row_by_row(server: WebServer) -> None:
    link, _, peer = await logged_in(server, RAW)
    rows = np.arange(20 * 300, dtype=np.uint32).astype(np.uint8).reshape(20, 300)
    assert link.publish(Outgoing(b"t", rows, 0, False, 0)) == 20 * 308
    assert [bytes((await peer.frame()).data) for _ in range(20)] == [row.tobytes() for row in rows]
    link.abort()


async def test_the_handshake_carries_the_contenders_headers(tmp_path: Path) -> None:
    script = Script("websocket", headers={"X-Origin": "C${name}"}, subprotocol="oneM2M.json", publish=RAW.publish)
    async with WebServer("oneM2M.json").serving() as server:
        link, _ = made(server, script, known={"name": "n1", "token": "a b"}, path="/x?t=${token}")
        opening = asyncio.create_task(link.open())
        peer = await server.accept()
        await opening
        assert peer.request is not None
        assert peer.request.path == "/x?t=a%20b"
        assert (peer.request.headers["X-Origin"], peer.request.headers["Sec-WebSocket-Protocol"]) == (
            "Cn1",
            "oneM2M.json",
        )
        assert "Sec-WebSocket-Extensions" not in peer.request.headers
        link.abort()


@pytest.mark.parametrize(
    "script",
    [
        Script("websocket", headers={"X": "${nobody}"}),
        Script("websocket", login=[Say("send", json={"a": "${nobody}"})]),
        Script("websocket", headers={"X": "a\r\nb"}),
    ],
)
async def test_a_template_nobody_can_fill_is_told(server: WebServer, script: Script) -> None:
    link, _ = made(server, script)
    opening = asyncio.create_task(link.open())
    if script.login:
        await server.accept()
    with pytest.raises(LinkError, match=r"nobody|cannot be written"):
        await opening
    assert link.held is Held.OFFLINE


async def test_notifications_are_answered_and_lists_taken_apart(server: WebServer) -> None:
    script = Script(
        "websocket",
        listening=Listening(wildcards=True),
        notification=Notification(
            when={"$.op": 5},
            each="$.pc.list",
            payload="$.con",
            encoding="hex",
            answer=Say("send", json={"rsc": 2000, "rqi": "${rqi}", "by": "${client_id}"}, keep={"rqi": "$.rqi"}),
        ),
    )
    link, ear, peer = await logged_in(server, script)
    await link.subscribe([Subscription("#")])
    peer.tell({"op": 5, "rqi": "r1", "pc": {"list": [{"con": "00ff"}, {"con": "01"}]}})
    assert await peer.read() == {"rsc": 2000, "rqi": "r1", "by": "c1"}
    assert ear.payloads == [b"\0\xff", b"\1"]
    # A question whether somebody listens is answered, too, and is no message.
    peer.tell({"op": 5, "rqi": "r2", "pc": {"list": [{"vrq": True}]}})
    assert (await peer.read())["rqi"] == "r2"
    assert (len(ear.messages), ear.faults) == (2, [])
    peer.tell({"op": 5, "pc": {"list": []}}, {"op": 5, "rqi": "r3", "pc": {"list": [{"con": "0g"}]}})
    assert (await peer.read())["rqi"] == "r3"
    assert len(ear.faults) == 2
    link.abort()


async def test_a_subscription_is_said_for_every_topic_under_it(server: WebServer) -> None:
    topics: dict[str, Any] = {"a/1": {}, "a/2": {}, "b/1": {}}
    link, _, peer = await logged_in(server, HIVE, known_of_topics=topics)
    subscribing = asyncio.create_task(
        link.subscribe([Subscription("a/+"), Subscription("b/1"), Subscription("x", share="g")])
    )
    names = []
    for _ in range(3):
        asked = await peer.read()
        names.append(asked["deviceId"])
        status = "error" if asked["deviceId"] == "b-1" else "success"
        peer.tell({"requestId": asked["requestId"], "status": status, "subscriptionId": asked["deviceId"], "code": 403})
    granted = await subscribing
    assert names == ["a-1", "a-2", "b-1"]
    assert [(each.qos, each.reason) for each in granted] == [(0, 0), (-1, 403), (-1, Failure.UNEXPECTED)]
    leaving = asyncio.create_task(link.unsubscribe([Subscription("a/+"), Subscription("b/1")]))
    for name in ["a-1", "a-2"]:
        asked = await peer.read()
        assert asked["subscriptionId"] == name
        peer.tell({"requestId": asked["requestId"], "status": "success"})
    await leaving
    link.abort()


# ── windows ──────────────────────────────────────────────────────────────────────────────────────────────────────────


async def test_the_window_holds_and_opens_again(server: WebServer) -> None:
    script = Script("websocket", publish=IN_ORDER.publish, window=3)
    link, ear, peer = await logged_in(server, script)
    assert link.room(0) == link.room(1) == 3
    link.publish(outgoing([b"a"] * 3))
    assert (link.room(1), link.held) == (0, Held.WINDOW)
    peer.tell(["done", {"status": 200}], ["done", {"status": 200}])
    await until(lambda: ear.writable_calls)
    assert (ear.acked, ear.writable_calls, link.room(1), link.held) == ([0, 1], 1, 2, Held.NO)
    link.abort()
    assert ear.refused == [(2, Failure.CLOSED)]


async def test_a_server_that_does_not_read_holds_the_link(server: WebServer) -> None:
    link, ear, peer = await logged_in(server, RAW)
    payload = bytes(200_000)
    while link.held is Held.NO:
        assert link.room(0) >= 1
        link.publish(outgoing([payload], qos=0))
        await asyncio.sleep(0)
    assert (link.held, link.room(0)) == (Held.SOCKET, 0)
    reading = asyncio.create_task(peer.ended())
    await until(lambda: link.held is Held.NO)
    assert ear.writable_calls
    link.abort()
    await reading


async def test_a_slow_reader_hears_later(server: WebServer) -> None:
    link, ear, peer = await logged_in(server, RAW)
    await link.subscribe([Subscription("#")])
    link.pause_reading()
    peer.send(frame(b"x", 2))
    await asyncio.sleep(0.05)
    assert not ear.messages
    link.resume_reading()
    await until(lambda: ear.payloads == [b"x"])
    link.abort()


# ── what goes wrong ──────────────────────────────────────────────────────────────────────────────────────────────────


async def test_answers_that_never_come_are_timeouts(server: WebServer) -> None:
    link, ear, peer = await logged_in(server, HIVE, answer_timeout_s=1.0)
    link.publish(outgoing([b"a", b"b"], 5))
    await peer.read()
    second = await peer.read()
    peer.tell({"requestId": second["requestId"], "status": "success"})
    await until(lambda: ear.refused)
    assert (ear.acked, ear.refused) == ([6], [(5, Failure.TIMEOUT)])
    # With ids the link lives on, and a late answer is nobody's.
    peer.tell({"requestId": "2", "status": "success"})
    link.publish(outgoing([b"c"], 7))
    third = await peer.read()
    peer.tell({"requestId": third["requestId"], "status": "success"})
    await until(lambda: ear.acked == [6, 7])
    link.abort()


async def test_without_ids_a_missing_answer_ends_the_connection(server: WebServer) -> None:
    link, ear, _ = await logged_in(server, IN_ORDER, answer_timeout_s=1.0)
    link.publish(outgoing([b"a"], 1))
    await asyncio.sleep(0.4)
    link.publish(outgoing([b"b"], 2))
    await until(lambda: ear.closings)
    assert ear.refused == [(1, Failure.TIMEOUT), (2, Failure.TIMEOUT)]
    assert ear.closings[0][1] == Failure.TIMEOUT
    assert link.held is Held.OFFLINE


async def test_a_login_that_is_refused_or_forgotten(server: WebServer) -> None:
    for answer, code, words in [
        (["notReady", {"status": 401}], 401, "notReady"),
        (["hello"], Failure.TIMEOUT, "the latest other message was.*hello"),
        (None, Failure.MALFORMED, "no JSON"),
    ]:
        link, ear = made(server, SILENT, answer_timeout_s=1.0 if code == Failure.TIMEOUT else 60)
        opening = asyncio.create_task(link.open())
        peer = await server.accept()
        await peer.read()
        peer.send(text(answer) if answer else frame(b"{oh"))
        with pytest.raises(LinkError, match=words) as caught:
            await opening
        assert caught.value.code == code
        assert (ear.closings, link.held) == ([], Held.OFFLINE)
    # It can be tried again.
    link, _, _ = await logged_in(server, SILENT)
    link.abort()


DEEP = b"[" * 200_000
NONSENSE = {
    "no JSON": frame(b"{oh no"),
    "deep JSON": frame(DEEP),
    "deep objects": frame(b'{"a":' * 100_000),
    "a huge number": frame(b"9" * 100_000),
    "no JSON in binary": frame(b"\xff\xfe\0", 2),
    "an empty text": frame(b""),
    "a half payload": text(pushed(b"") | {"notification": {"deviceId": "d", "parameters": {"p": "abc"}}}),
    "a missing payload": text({**PUSH, "notification": {}}),
}


@pytest.mark.parametrize("name", NONSENSE)
async def test_nonsense_is_counted_and_the_link_lives_on(server: WebServer, name: str) -> None:
    link, ear, peer = await logged_in(server, HIVE, known_of_topics={"d": {}})
    subscribing = asyncio.create_task(link.subscribe([Subscription("d")]))
    asked = await peer.read()
    peer.tell({"requestId": asked["requestId"], "status": "success", "subscriptionId": 1})
    await subscribing
    peer.send(NONSENSE[name], text(pushed(b"after")))
    await until(lambda: ear.payloads == [b"after"])
    assert len(ear.faults) == 1
    assert ear.closings == []
    link.abort()


@pytest.mark.parametrize("name", ["no JSON", "deep JSON", "an empty text"])
@pytest.mark.parametrize("script", [HIVE, IN_ORDER])
async def test_an_answer_that_is_no_json_fails_its_message(server: WebServer, name: str, script: Script) -> None:
    link, ear, peer = await logged_in(server, script)
    link.publish(outgoing([b"a"], 3))
    await peer.read()
    peer.send(NONSENSE[name])
    await until(lambda: ear.refused)
    assert (ear.refused, ear.faults, link.unacknowledged) == ([(3, Failure.MALFORMED)], [], 0)
    link.abort()


@pytest.mark.parametrize(
    "document",
    [
        None,
        1,
        [],
        {},
        "x",
        {"requestId": None},
        {"requestId": "9" * 30},
        {"requestId": True},
        {"requestId": [1]},
        {"requestId": "²"},
    ],
)
async def test_answers_to_nothing_are_ignored(server: WebServer, document: Any) -> None:
    link, ear, peer = await logged_in(server, HIVE)
    link.publish(outgoing([b"a"], 3))
    asked = await peer.read()
    peer.tell(document, {"requestId": asked["requestId"], "status": "success"})
    await until(lambda: ear.acked == [3])
    assert (ear.faults, ear.messages) == ([], [])
    link.abort()


BROKEN = {
    "reserved bit": (b"\xc1\x00", 1002),
    "opcode 3": (b"\x83\x00", 1002),
    "opcode 15": (b"\x8f\x00", 1002),
    "masked": (b"\x81\x81\0\0\0\0x", 1002),
    "oversized": (b"\x81\x7f" + struct.pack(">Q", 1 << 40), 1009),
    "invalid UTF-8": (frame(b"\xff"), 1007),
    "continuation of nothing": (frame(b"x", 0), 1002),
    "close with code 1": (b"\x88\x02\x00\x01", 1002),
}


@pytest.mark.parametrize("name", BROKEN)
async def test_broken_frames_end_the_connection_once(server: WebServer, name: str) -> None:
    link, ear, peer = await logged_in(server, IN_ORDER)
    link.publish(outgoing([b"a", b"b"], 3))
    raw, code = BROKEN[name]
    peer.send(text(["done", {"status": 200}]), raw, text(["done", {"status": 200}]))
    await until(lambda: ear.closings)
    last = (await peer.ended())[-1]
    assert (last.opcode, int.from_bytes(last.data[:2], "big")) == (8, code)
    assert (ear.acked, ear.refused) == ([3], [(4, Failure.MALFORMED)])
    assert (len(ear.faults), len(ear.closings), ear.closings[0][1]) == (1, 1, Failure.MALFORMED)
    assert link.held is Held.OFFLINE


@pytest.mark.parametrize(
    ("last", "reason", "told"),
    [
        (b"", Failure.CLOSED, Failure.CLOSED),
        (frame(b"whole")[:4], Failure.TRUNCATED, Failure.TRUNCATED),
        (frame(b"part", 1, False), Failure.TRUNCATED, Failure.TRUNCATED),
        (frame(struct.pack(">H", 1011) + b"sorry", 8), Failure.CLOSED, 1011),
        (frame(b"", 8), Failure.CLOSED, 1005),
    ],
)
async def test_a_connection_that_ends_fails_what_was_in_flight(
    server: WebServer, last: bytes, reason: int, told: int
) -> None:
    link, ear, peer = await logged_in(server, HIVE)
    link.publish(outgoing([b"a", b"b"], 8))
    subscribing = asyncio.create_task(link.subscribe([Subscription("d")]))
    for _ in range(3):
        await peer.read()
    peer.send(last)
    peer.close()
    with pytest.raises(LinkError):
        await subscribing
    assert ear.refused == [(8, reason), (9, reason)]
    assert [code for _, code in ear.closings] == [told]
    with pytest.raises(LinkError):
        link.publish(outgoing([b"x"]))
    link.abort()
    assert len(ear.closings) == 1


@pytest.mark.parametrize(
    ("answer", "code", "words"),
    [
        (b"HTTP/1.1 401 Unauthorized\r\n\r\n", 401, "401"),
        (b"HTTP/1.1 101 Yes\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\r\n", Failure.MALFORMED, "does not match"),
        (b"SSH-2.0-OpenSSH\r\n", Failure.MALFORMED, "does not speak HTTP"),
        (b"HTTP/1.1 101", Failure.CLOSED, "instead of upgrading"),
        (b"", Failure.CLOSED, "instead of upgrading"),
    ],
)  # fmt: skip
async def test_upgrades_that_fail_are_told(server: WebServer, answer: bytes, code: int, words: str) -> None:
    link, ear = made(server, HIVE)
    opening = asyncio.create_task(link.open())
    peer = await server.peer()
    peer.send(answer)
    peer.close()
    with pytest.raises(LinkError, match=words) as caught:
        await opening
    assert caught.value.code == code
    assert (ear.closings, link.held) == ([], Held.OFFLINE)


async def test_a_stalled_upgrade_times_out(server: WebServer) -> None:
    link, _ = made(server, HIVE, connect_timeout_s=0.2)
    with pytest.raises(LinkError, match="timeout"):
        await link.open()
    link, _ = made(server, HIVE)
    link.endpoint = Endpoint("ws", "127.0.0.1", 1)
    with pytest.raises(LinkError, match="nobody listens"):
        await link.open()


async def test_messages_right_behind_the_upgrade_are_heard(server: WebServer) -> None:
    answering = Notification(
        when={"$.n": None}, payload="$.p", answer=Say("send", json={"got": "${n}"}, keep={"n": "$.n"})
    )
    link, ear = made(server, Script("websocket", notification=answering, listening=Listening()))
    opening = asyncio.create_task(link.open())
    peer = await server.accept(text({"n": 1, "p": "x"}))
    await opening
    assert await peer.read() == {"got": "1"}
    assert ear.payloads == [b"x"]
    link.abort()


async def test_answers_to_a_server_that_never_reads_do_not_pile_up(server: WebServer) -> None:
    big = "y" * 10_000
    answering = Notification(when={"$.n": None}, payload="$.n", answer=Say("send", json={"got": big}))
    _, ear, peer = await logged_in(server, Script("websocket", notification=answering, listening=Listening()))
    for _ in range(200):
        if ear.closings:
            break
        peer.send(text({"n": "1"}) * 100)
        with contextlib.suppress(ConnectionError):
            await peer.writer.drain()
        await asyncio.sleep(0)
    await until(lambda: ear.closings)
    assert "does not read" in ear.closings[0][0]


# ── TLS ──────────────────────────────────────────────────────────────────────────────────────────────────────────────


async def test_wss_and_what_can_go_wrong_with_it(tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(*authority.sign("server", server=True))
    async with WebServer(tls=context).serving() as server:
        link, ear, peer = await logged_in(server, RAW, transport="wss", tls=TlsFiles(ca=authority.path))
        await link.subscribe([Subscription("#")])
        peer.send(frame(b"secret", 2))
        await until(lambda: ear.payloads == [b"secret"])
        link.abort()
        strange = Authority(tmp_path, "other")
        link, _ = made(server, RAW, transport="wss", tls=TlsFiles(ca=strange.path))
        with pytest.raises(LinkError, match="not trusted"):
            await link.open()
    async with WebServer().serving() as server:
        link, _ = made(server, RAW, transport="wss", tls=TlsFiles(ca=authority.path))
        opening = asyncio.create_task(link.open())
        peer = await server.peer()
        peer.send(b"HTTP/1.1 400 Bad Request\r\n\r\n")
        with pytest.raises(LinkError, match="TLS"):
            await opening


# ── any split of the bytes ───────────────────────────────────────────────────────────────────────────────────────────

PIECES = st.one_of(
    st.integers(1, 6).map(lambda number: text({"requestId": number, "status": "success"})),
    st.integers(1, 6).map(lambda number: text({"requestId": str(number), "status": "error", "code": 404})),
    st.sampled_from([200, 200, 413, "strange"]).map(lambda status: text(["done", {"status": status}])),
    st.binary(max_size=40).map(lambda payload: text(pushed(payload))),
    st.binary(max_size=40).map(lambda payload: text(["message", {"payload": base64.b64encode(payload).decode()}])),
    st.binary(max_size=40).map(lambda payload: frame(payload, 2)),
    st.binary(max_size=9).map(lambda payload: frame(payload, 9)),
    st.sampled_from([frame(b"{oh"), frame(b"\x03\xe8", 8), b"\x83\x00", b"\x81\x7e\x00\x01", frame(b"\xff")]),
    st.binary(max_size=6),
)


def replayed(script: Script, listens: bool, stream: bytes, cuts: list[int]) -> Ear:
    """What a link with five messages in flight tells of these bytes, cut like that."""
    ear = Ear()

    async def run() -> None:
        link = WebSocketLink(Endpoint("ws", "nowhere", 1), LinkOptions("c", script=script), ear)
        connection = Connection(link, b"", None, asyncio.get_running_loop().create_future())  # type: ignore[arg-type]
        connection.connection_made(Wire())
        connection._agreed(0)
        link.ready, link.listens = True, listens
        link.publish(outgoing([b"x"] * 5, 100))
        for begin, end in zip([0, *cuts], [*cuts, len(stream)], strict=True):
            connection.data_received(stream[begin:end])
        connection.connection_lost(None)
        link.abort()

    asyncio.run(run())
    return ear


@settings(suppress_health_check=[HealthCheck.too_slow])
@given(st.sampled_from([HIVE, IN_ORDER]), st.booleans(), st.lists(PIECES, max_size=8), st.data())
def test_however_the_bytes_are_cut_the_same_is_told(
    script: Script, listens: bool, pieces: list[bytes], data: st.DataObject
) -> None:
    stream = b"".join(pieces)
    whole = replayed(script, listens, stream, [])
    cut = replayed(script, listens, stream, sorted(data.draw(st.lists(st.integers(0, len(stream)), max_size=10))))
    assert cut.messages == whole.messages
    assert cut.acked == whole.acked
    assert cut.refused == whole.refused
    assert cut.faults == whole.faults
    assert cut.closings == whole.closings
    assert sorted([*cut.acked, *(token for token, _ in cut.refused)]) == list(range(100, 105))
    assert len(cut.closings) == 1


async def test_a_message_larger_than_anything_expected_ends_the_connection_with_its_reason(server: WebServer):
    link, ear, peer = await logged_in(server, HIVE, largest_bytes=1_000)
    peer.send(frame(b"x" * 1_001))
    await until(lambda: ear.closings)
    assert "larger than 1000" in ear.closings[0][0]
    assert int.from_bytes((await peer.ended())[-1].data[:2], "big") == 1009
    assert ear.fault_kinds == [Failure.MALFORMED]
    link.abort()
