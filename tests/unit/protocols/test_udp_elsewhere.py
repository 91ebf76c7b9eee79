"""Datagrams in other networks and subscriptions over HTTP: real namespaces where there is root, else skipped."""

from __future__ import annotations

import asyncio
import os
import socket

import pytest

from battlebrokers.errors import LinkError
from battlebrokers.namespaces import in_namespace
from battlebrokers.protocols.base import Endpoint, Failure, LinkOptions, Subscription
from battlebrokers.protocols.script import Listening, Say, Script
from battlebrokers.protocols.udp.scripted import ScriptedUdpLink
from support.links import Ear, until
from support.namespaces import network_namespace
from support.web import Web

TOPICS: dict[str, dict[str, str | list[str]]] = {"a/b": {"address": "127.0.0.1", "port": "0"}}
SCRIPT = Script(
    "udp",
    publish=Say("send", text="${payload}"),
    to="${address}:${port}",
    listening=Listening(
        at=":${port}",
        steps=[Say("post", "/r/${address}", json={"who": "${mac}"}, statuses=[201], keep={"handle": "$.handle"})],
        undo=[Say("delete", "/r/${address}/${handle}")],
    ),
)


def link_of(script: Script, web: Web | None = None, **options: object) -> tuple[ScriptedUdpLink, Ear]:
    ear = Ear()
    settings = LinkOptions(
        "u", script=script, known={"mac": "00:01", "namespace": "nowhere"}, known_of_topics=TOPICS,
        requests_at=f"http://127.0.0.1:{web.port}" if web else "", **options,  # type: ignore[arg-type]
    )  # fmt: skip
    return ScriptedUdpLink(Endpoint("udp", "127.0.0.1", 9, ""), settings, ear), ear


async def test_a_subscription_lasts_until_it_is_answered_and_its_datagrams_are_of_its_topic() -> None:
    async with Web().serving() as web:
        link, ear = link_of(SCRIPT, web)
        await link.open()
        asking = asyncio.create_task(link.subscribe([Subscription("a/b")]))
        asked = await web.asked()
        assert (asked.method, asked.target, asked.json) == ("POST", "/r/127.0.0.1", {"who": "00:01"})
        assert not asking.done()
        (bound, _) = link._bound["a/b"]
        assert bound is not None, "it listens before it is answered"
        asked.answer(201, {"handle": "h7"})
        assert [granted.qos for granted in await asking] == [0]
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as other:
            other.sendto(b"hello", ("127.0.0.1", bound.address[1]))
        await until(lambda: ear.messages)
        assert [(each.topic, each.payload) for each in ear.messages] == [(b"a/b", b"hello")]
        leaving = asyncio.create_task(link.close())
        asked = await web.asked()
        assert (asked.method, asked.target) == ("DELETE", "/r/127.0.0.1/h7")
        asked.answer(204)
        await leaving


async def test_a_refusal_is_an_answer_and_silence_an_error() -> None:
    async with Web().serving() as web:
        link, _ = link_of(SCRIPT, web, answer_timeout_s=0.5)
        await link.open()
        asking = asyncio.create_task(link.subscribe([Subscription("a/b"), Subscription("a/b", share="s")]))
        (await web.asked()).answer(404, {"message": "no such resource"})
        refused, shared = await asking
        assert (refused.qos, refused.reason) == (-1, 404)
        assert shared.qos == -1
        assert link.addresses == []
        with pytest.raises(LinkError) as caught:
            await link.subscribe([Subscription("a/b")])
        assert caught.value.code == Failure.TIMEOUT
        link.abort()


async def test_a_topic_has_its_own_address_and_plain_payloads_are_sent_as_they_are() -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as peer:
        peer.bind(("127.0.0.1", 0))
        peer.settimeout(60)
        TOPICS["c/d"] = {"address": "127.0.0.1", "port": str(peer.getsockname()[1])}
        link, _ = link_of(SCRIPT)
        await link.open()
        assert link.publish_one(b"c/d", b"\x00payload", 0, False, 1) == 8
        assert peer.recv(100) == b"\x00payload"
        assert link.structure_bytes == 8
        with pytest.raises(LinkError, match="is not known"):
            link.publish_one(b"never/registered", b"x", 0, False, 2)
        link.abort()


async def test_a_network_that_is_gone_is_told_with_what_to_look_at() -> None:
    link, _ = link_of(Script("udp", publish=SCRIPT.publish, namespace="${namespace}"))
    with pytest.raises(LinkError, match="nowhere cannot be used") as caught:
        await link.open()
    assert "ip netns list" in caught.value.hint


@pytest.mark.root
@pytest.mark.skipif(os.geteuid() != 0, reason="network namespaces need root rights")
async def test_sockets_live_in_the_network_they_are_told_and_the_caller_does_not() -> None:
    with network_namespace() as (name, address, ours):
        names_here = {each for _, each in socket.if_nameindex()}
        assert ours in names_here
        assert {each for _, each in in_namespace(name, socket.if_nameindex)} == {"lo", "eth0"}
        assert {each for _, each in socket.if_nameindex()} == names_here
        listening = Listening(at=":${port}", steps=[])
        script = Script("udp", publish=SCRIPT.publish, to=f"{address}:${{port}}", namespace=name, listening=listening)
        TOPICS["e/f"] = {"port": "20001"}
        hearing, ear = link_of(script)
        speaking, _ = link_of(script)
        await hearing.open()
        await speaking.open()
        assert [each.qos for each in await hearing.subscribe([Subscription("e/f")])] == [0]
        # The same port is free out here: it is taken in there only.
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as here:
            here.bind(("", 20001))
        speaking.publish_one(b"e/f", b"from inside", 0, False, 1)
        await until(lambda: ear.messages)
        assert ear.messages[0].payload == b"from inside"
        await hearing.close()
        await speaking.close()
