"""Notifications in answers to repeated requests."""

from __future__ import annotations

import asyncio
import base64
import json
from typing import Any

import pytest

from battlebrokers.protocols.base import Subscription
from battlebrokers.protocols.http.scripted import ScriptedHttpLink
from battlebrokers.protocols.script import Listening, Notification, Say, Script
from support.links import Ear, until
from support.web import Asked, Web, scripted_link

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("quiet_loop")]

POLL = Script(
    "http",
    headers={"Authorization": "Bearer ${token}"},
    login=[Say("post", "/token", statuses=[201], keep={"token": "$.accessToken"})],
    listening=Listening(
        way="poll",
        fetch=Say("get", "/poll?names=${resource}&timestamp=${timestamp}", keep={"timestamp": "$[-1].timestamp"}),
    ),
    notification=Notification(each="$", payload="$.parameters.p", encoding="base64", topic="$.deviceId"),
)


def news(number: int) -> list[dict[str, Any]]:
    payload = base64.b64encode(b"%d" % number).decode()
    return [{"deviceId": "d", "timestamp": f"t {number}", "parameters": {"p": payload}}]


async def polling(web: Web, ear: Ear, **options: object) -> tuple[ScriptedHttpLink, Asked]:
    link = scripted_link(web, ear, POLL, **options)
    opening = asyncio.ensure_future(link.open())
    (await web.asked()).answer(201, {"accessToken": "tok"})
    await opening
    subscribing = asyncio.ensure_future(link.subscribe([Subscription("a/1")]))
    asked = await web.asked()
    assert asked.target == "/poll?names=a-1&timestamp="
    assert asked.headers["authorization"] == "Bearer tok"
    assert [granted.qos for granted in await subscribing] == [0]
    return link, asked


async def test_each_poll_says_what_the_last_answer_left_behind(web: Web):
    ear = Ear()
    link, asked = await polling(web, ear)
    for number in range(5):
        asked.answer(200, news(number))
        asked = await web.asked()
        assert asked.target == f"/poll?names=a-1&timestamp=t%20{number}"
    asked.answer(200, [])
    asked = await web.asked()
    assert asked.target.endswith("timestamp=t%204")
    assert ear.payloads == [b"%d" % number for number in range(5)]
    assert {each.topic for each in ear.messages} == {b"d"}
    assert ear.faults == []
    link.abort()


async def test_the_bytes_of_an_answer_are_those_of_its_messages(web: Web):
    ear = Ear()
    link, asked = await polling(web, ear)
    body = json.dumps(news(1) + news(2) + news(3)).encode()
    answer = b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%b" % (len(body), body)
    asked.send(answer)
    await until(lambda: len(ear.messages) == 3)
    assert sum(each.wire_size for each in ear.messages) == len(answer)
    link.abort()


async def test_errors_slow_polling_down_and_too_many_of_them_end_it(web: Web):
    ear = Ear()
    _, asked = await polling(web, ear)
    for misbehave in ("500", "closed", "nonsense", "half"):
        if misbehave == "500":
            asked.answer(500)
        elif misbehave == "closed":
            asked.close()
        elif misbehave == "nonsense":
            asked.send(b"nonsense\r\n")
        else:
            asked.send(b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nha")
            asked.close()
        asked = await web.asked()
    # A proper answer, and everything is forgiven.
    asked.answer(200, news(1))
    asked = await web.asked()
    assert ear.payloads == [b"1"]
    assert ear.closings == []
    for place in range(5):
        asked.answer(502)
        if place < 4:
            asked = await web.asked()
    await until(lambda: ear.closings)
    assert ear.closings[0][1] == 502
    assert len(ear.faults) == 1


async def test_a_refused_poll_is_a_refused_subscription(web: Web):
    link = scripted_link(web, Ear(), Script("http", listening=POLL.listening))
    await link.open()
    subscribing = asyncio.ensure_future(link.subscribe([Subscription("a/1")]))
    (await web.asked()).answer(401)
    [granted] = await subscribing
    assert (granted.qos, granted.reason) == (-1, 401)
    link.abort()


async def test_wrong_json_in_a_poll_is_told_and_polling_goes_on(web: Web):
    ear = Ear()
    link, asked = await polling(web, ear)
    for body in ("{", "[1, 2]", '{"a": 1}'):
        asked.answer(200, body)
        asked = await web.asked()
    assert len(ear.faults) == 3
    asked.answer(200, news(7))
    await until(lambda: ear.payloads == [b"7"])
    link.abort()


async def test_a_paused_client_does_not_poll(web: Web):
    ear = Ear()
    link, asked = await polling(web, ear)
    link.pause_reading()
    asked.answer(200, news(1))
    await asyncio.sleep(0.1)
    assert ear.messages == []
    link.resume_reading()
    await until(lambda: ear.payloads == [b"1"])
    asked = await web.asked()
    asked.answer(200, news(2))
    await until(lambda: ear.payloads == [b"1", b"2"])
    link.abort()


async def test_unsubscribing_ends_the_poll(web: Web):
    link, asked = await polling(web, Ear())
    await link.unsubscribe([Subscription("a/1")])
    await asked.ended()
    await link.close()


async def test_many_topics_are_subscribed_to_side_by_side_after_what_is_said_once(web: Web):
    listening = Listening(
        way="poll",
        steps=[Say("get", "/info", keep={"since": "$.now"}), Say("post", "/${resource}/${since}")],
        fetch=Say("get", "/poll/${resource}"),
    )
    ear = Ear()
    link = scripted_link(web, ear, Script("http", listening=listening, window=4))
    await link.open()
    topics = [Subscription(f"t/{number}") for number in range(9)]
    subscribing = asyncio.ensure_future(link.subscribe(topics))
    (await web.asked()).answer(200, {"now": 5})
    first = await web.asked()
    assert (first.method, first.target) == ("POST", "/t-0/5")
    first.answer()
    assert (await web.asked()).target == "/poll/t-0"
    posted = await web.many(4)
    assert {asked.target for asked in posted} == {f"/t-{number}/5" for number in range(1, 5)}
    posted.pop().answer(409)
    for asked in posted:
        asked.answer()
    polled = 0
    while polled < 7:
        asked = await web.asked()
        if asked.method == "POST":
            asked.answer()
        else:
            polled += 1
    granted = await subscribing
    assert sorted(each.reason for each in granted) == [0] * 8 + [409]
    assert web.waiting == 0
    link.abort()
