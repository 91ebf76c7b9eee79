"""A dialect over MQTT: a real Mosquitto, and behind it a small middleware that is an MQTT client itself."""

from __future__ import annotations

import asyncio
import base64
import json
import subprocess
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from battlebrokers.errors import LinkError
from battlebrokers.protocols.base import Endpoint, Failure, Held, LinkOptions, Outgoing, Subscription
from battlebrokers.protocols.mqtt.link import MqttLink
from battlebrokers.protocols.mqtt.scripted import ScriptedMqttLink
from battlebrokers.protocols.registry import capabilities_of, link_class, make_link
from battlebrokers.protocols.script import Listening, Notification, Say, Script
from support.links import Ear, mosquitto, until

pytestmark = pytest.mark.broker


def asking(action: str, **more: Any) -> Any:
    return {"action": action, "requestId": "${id}", "from": "${client_id}", **more}


HUB = Script(
    "mqtt",
    ids="$.requestId",
    username="${uuid}",
    password="${token}",
    replies="hub/response/${client_id}",
    login=[
        Say("publish", "hub/request", json=asking("login"), answer={}, success={"$.rsc": 200}, keep={"key": "$.key"})
    ],
    publish=Say(
        "publish", "hub/request", json=asking("put", topic="${topic}", key="${key}", payload="${payload}"),
        answer={}, success={"$.rsc": 200},
    ),
    listening=Listening(
        steps=[
            Say("subscribe", "hub/notify/${client_id}"),
            Say(
                "publish", "hub/request", json=asking("listen", topic="${topic}"), answer={}, success={"$.rsc": 200},
                keep={"number": "$.number"}, repeat=True,
            ),
        ],
        undo=[Say("publish", "hub/request", json=asking("ignore", number="${number}"), answer={}, repeat=True)],
    ),
    notification=Notification(
        when={"$.op": 5}, payload="$.payload", encoding="base64", topic="$.topic",
        answer=Say("publish", "hub/received", json={"rsc": 2000, "rqi": "${rqi}"}, keep={"rqi": "$.rqi"}),
    ),
    logout=[Say("publish", "hub/request", json=asking("logout"))],
    window=50,
)  # fmt: skip
"""Everything is a request with an id and an answer, as with oneM2M and DeviceHive."""

MAIL = Script(
    "mqtt",
    publish=Say("publish", "message/${resource}", json={"devices": ["${listener.uuid}"], "payload": "${payload}"}),
    listening=Listening(wildcards=True, steps=[Say("subscribe", "mail/${uuid}")]),
    notification=Notification(payload="$.data.payload", encoding="base64"),
)
"""Nobody answers a publish, as with Meshblu: MQTT's own acknowledgement counts."""


class Middleware(Ear):
    """Listens to requests and answers them through the same broker."""

    def __init__(self, port: int) -> None:
        super().__init__()
        self.link = MqttLink(
            Endpoint("tcp", "127.0.0.1", port), LinkOptions("middleware", username="m", password="m"), self
        )
        self.requests: list[dict[str, Any]] = []
        self.received: list[Any] = []
        self.listening: dict[int, tuple[str, str]] = {}
        self.refuse: Callable[[dict[str, Any]], int] = lambda _: 0
        self.silent = False

    async def start(self) -> None:
        await self.link.open()
        await self.link.subscribe(
            [Subscription("hub/request", 1), Subscription("hub/received", 1), Subscription("message/#", 1)]
        )

    def arrived(self, link, at_ns, flags, topic, payload, wire_size) -> None:
        document = json.loads(payload)
        if topic == b"hub/request":
            self.request(document)
        elif topic == b"hub/received":
            self.received.append(document)
        else:
            for name in document["devices"]:
                self.tell(f"mail/{name}", {"topic": "message", "data": {"payload": document["payload"]}})

    def arrived_many(self, link, at_ns, arrivals) -> None:
        before = len(self.messages)
        super().arrived_many(link, at_ns, arrivals)
        for heard in self.messages[before:]:
            self.arrived(link, at_ns, 0, heard.topic, heard.payload, 0)

    def tell(self, topic: str, document: Any) -> None:
        body = document if isinstance(document, bytes) else json.dumps(document).encode()
        self.link.publish(Outgoing(topic.encode(), [body], 1, False, 0))

    def request(self, asked: dict[str, Any]) -> None:
        self.requests.append(asked)
        if self.silent or asked["action"] == "logout":
            return
        answer = {"requestId": asked["requestId"], "rsc": self.refuse(asked) or 200, "key": "k"}
        if asked["action"] == "listen":
            number = len(self.listening)
            self.listening[number] = (asked["from"], asked["topic"])
            answer["number"] = number
        if asked["action"] == "put":
            for number, (who, topic) in self.listening.items():
                if topic == asked["topic"]:
                    note = {"op": 5, "rqi": f"n{number}", "topic": topic, "payload": asked["payload"]}
                    self.tell(f"hub/notify/{who}", note)
        self.tell(f"hub/response/{asked['from']}", answer)


@pytest.fixture(scope="module")
def port(tmp_path_factory: pytest.TempPathFactory) -> Iterator[int]:
    folder: Path = tmp_path_factory.mktemp("broker")
    secrets = folder / "passwords"
    secrets.write_text("m:m\nu1:t1\nu2:t2\n")
    subprocess.run(["mosquitto_passwd", "-U", str(secrets)], check=True)
    secrets.chmod(0o644)
    with mosquitto(folder, "allow_anonymous false", f"password_file {secrets}", "user root") as ports:
        yield ports[0]


@pytest.fixture
async def hub(port: int) -> AsyncIterator[Middleware]:
    middleware = Middleware(port)
    await middleware.start()
    yield middleware
    await middleware.link.close()


@pytest.fixture
async def make(port: int) -> AsyncIterator[Callable[..., tuple[ScriptedMqttLink, Ear]]]:
    made: list[ScriptedMqttLink] = []

    def maker(script: Script, number: int = 1, **options: Any) -> tuple[ScriptedMqttLink, Ear]:
        ear = Ear()
        options.setdefault("known", {"uuid": f"u{number}", "token": f"t{number}"})
        if not script.username:
            options |= {"username": f"u{number}", "password": f"t{number}"}
        settings = LinkOptions(f"c{number}", script=script, **options)
        link = make_link("mqtt", Endpoint("tcp", "127.0.0.1", port), settings, ear)
        assert isinstance(link, ScriptedMqttLink)
        made.append(link)
        return link, ear

    yield maker
    for link in made:
        await link.close()


def outgoing(payloads: list[bytes], first_token: int = 0, topic: bytes = b"a/b", qos: int = 1) -> Outgoing:
    return Outgoing(topic, payloads, qos, False, first_token)


def test_a_dialect_makes_it_another_link() -> None:
    assert link_class("mqtt", scripted=True) is ScriptedMqttLink
    assert link_class("mqtt") is MqttLink
    able = ScriptedMqttLink.capabilities
    assert able.protocol == "mqtt"
    assert set(able.completion) == able.qos
    assert capabilities_of("mqtt").will
    assert not able.will


async def test_a_whole_life(hub: Middleware, make) -> None:
    device, told = make(HUB)
    client, heard = make(HUB, 2)
    assert (device.held, device.room(1)) == (Held.OFFLINE, 0)
    assert (await device.open()).reason == 0
    await client.open()
    assert device.capabilities.acknowledges == {0, 1, 2}
    assert [asked["action"] for asked in hub.requests] == ["login", "login"]
    (granted,) = await client.subscribe([Subscription("a/b", 1)])
    assert granted.qos == 1

    payloads = [bytes([index]) * 40 for index in range(3)]
    written = device.publish(outgoing(payloads, 10))
    assert device.unacknowledged == 3
    await until(lambda: len(told.acked) == 3 and len(heard.messages) == 3)
    assert sorted(told.acked) == [10, 11, 12]
    assert [(each.topic, each.payload) for each in heard.messages] == [(b"a/b", payload) for payload in payloads]
    put = hub.requests[-1]
    assert (put["key"], put["topic"], base64.b64decode(put["payload"])) == ("k", "a/b", payloads[2])
    assert device.structure_bytes == len(json.dumps(put, separators=(",", ":")))
    assert device.url_bytes == len("hub/request")
    assert written >= 3 * (device.structure_bytes + device.url_bytes)
    await until(lambda: len(hub.received) == 3)
    assert hub.received[0] == {"rsc": 2000, "rqi": "n0"}

    await client.unsubscribe([Subscription("a/b", 1)])
    assert hub.requests[-1]["action"] == "ignore"
    assert hub.requests[-1]["number"] == "0"
    await client.close()
    await until(lambda: hub.requests[-1]["action"] == "logout")
    assert (told.faults, told.closings, heard.faults, heard.closings) == ([], [], [], [])


async def test_the_middlewares_no_is_a_refusal(hub: Middleware, make) -> None:
    device, told = make(HUB)
    await device.open()
    hub.refuse = lambda asked: 4105 if asked["action"] == "put" else 0
    for qos in (0, 1, 2):
        device.publish(outgoing([b"x"], qos, qos=qos))
    await until(lambda: len(told.refused) == 3)
    assert sorted(told.refused) == [(0, 4105), (1, 4105), (2, 4105)]
    assert told.acked == []
    hub.refuse = lambda asked: 403
    (granted,) = await device.subscribe([Subscription("a/b")])
    assert (granted.qos, granted.reason) == (-1, 403)
    await device.close()
    with pytest.raises(LinkError, match="said no") as caught:
        await device.open()
    assert caught.value.code == 403
    assert device.held is Held.OFFLINE
    hub.refuse = lambda asked: 0
    await device.open()
    assert device.held is Held.NO


async def test_the_brokers_no_is_told(hub: Middleware, make) -> None:
    device, _ = make(HUB, known={"uuid": "u1", "token": "wrong"})
    with pytest.raises(LinkError) as caught:
        await device.open()
    assert caught.value.code > 0
    device, _ = make(HUB, known={"uuid": "u1"})
    with pytest.raises(LinkError, match="token"):
        await device.open()


async def test_without_answers_mqtts_own_contract_holds(hub: Middleware, make) -> None:
    device, told = make(MAIL, known_of_topics={"a/b": {"listener.uuid": ["u2"]}})
    client, heard = make(MAIL, 2)
    await device.open()
    await client.open()
    assert device.capabilities.acknowledges == {1, 2}
    await client.subscribe([Subscription("#", 1)])
    for qos in (0, 1, 2):
        device.publish(outgoing([b"\0" * 20 + bytes([qos, index]) for index in range(100)], qos * 100, qos=qos))
    await until(lambda: len(heard.messages) == 300 and len(told.acked) == 200)
    assert sorted(told.acked) == list(range(100, 300))
    assert {each.payload[-2] for each in heard.messages} == {0, 1, 2}
    assert heard.messages[0].topic == b"mail/u2"
    assert device.url_bytes == len("message/a-b")
    with pytest.raises(LinkError, match=r"listener\.uuid"):
        device.publish(outgoing([b"x"], topic=b"unknown"))


async def test_many_at_once_within_the_window(hub: Middleware, make) -> None:
    device, told = make(HUB)
    await device.open()
    sent = 0
    while sent < 2000:
        count = min(device.room(1), 2000 - sent)
        if count:
            device.publish(outgoing([b"p%06d" % (sent + index) for index in range(count)], sent))
            sent += count
            assert device.unacknowledged <= 50
        else:
            assert device.held is Held.WINDOW
            await asyncio.sleep(0.001)
    await until(lambda: len(told.acked) == 2000)
    assert sorted(told.acked) == list(range(2000))
    assert told.writable_calls
    assert told.refused == []


async def test_silence_is_a_timeout(hub: Middleware, make) -> None:
    device, told = make(HUB, answer_timeout_s=0.3)
    await device.open()
    hub.silent = True
    device.publish(outgoing([b"x", b"y"], 5))
    await until(lambda: len(told.refused) == 2)
    assert told.refused == [(5, Failure.TIMEOUT), (6, Failure.TIMEOUT)]
    with pytest.raises(LinkError, match="no answer within"):
        await device.subscribe([Subscription("a/b")])
    assert (device.held, told.closings) == (Held.NO, [])


async def test_nonsense_is_counted_and_the_link_lives_on(hub: Middleware, make) -> None:
    device, told = make(HUB, 2)
    await device.open()
    await device.subscribe([Subscription("a/b", 1)])
    for nonsense in (b"{oh", b"[" * 50_000, b"\xff\xfe", b""):
        hub.tell("hub/notify/c2", nonsense)
    hub.tell("hub/notify/c2", {"op": 5, "rqi": "r", "topic": "a/b", "payload": "abc"})
    hub.tell("hub/notify/c2", {"op": 5, "rqi": "r", "topic": "a/b", "payload": "AAAA"})
    # An answer nobody waits for is no notification.
    hub.tell("hub/response/c2", {"requestId": "77", "rsc": 200})
    await until(lambda: told.messages)
    assert [each.payload for each in told.messages] == [bytes(3)]
    assert len(told.faults) == 5
    device.publish(outgoing([b"x"], 1))
    await until(lambda: told.acked == [1])
    hub.silent = True
    device.publish(outgoing([b"x"], 2))
    hub.tell("hub/response/c2", b"{no")
    await until(lambda: told.refused == [(2, Failure.MALFORMED)])
    assert told.closings == []


async def test_a_lost_connection_fails_what_was_in_flight_once(tmp_path: Path) -> None:
    ear = Ear()
    with mosquitto(tmp_path) as (port,):
        middleware = Middleware(port)
        await middleware.start()
        known: Any = {"uuid": "u", "token": "t"}
        link = ScriptedMqttLink(Endpoint("tcp", "127.0.0.1", port), LinkOptions("c", script=HUB, known=known), ear)
        await link.open()
        middleware.silent = True
        link.publish(outgoing([b"x", b"y"], 3))
        subscribing = asyncio.create_task(link.subscribe([Subscription("a/b")]))
        await until(lambda: len(middleware.requests) == 4)
    with pytest.raises(LinkError):
        await subscribing
    await until(lambda: ear.closings)
    assert ear.refused == [(3, Failure.CLOSED), (4, Failure.CLOSED)]
    assert (len(ear.closings), link.held, link.unacknowledged) == (1, Held.OFFLINE, 0)
    with pytest.raises(LinkError):
        await link.open()
    link.abort()
    await link.close()
    middleware.link.abort()
