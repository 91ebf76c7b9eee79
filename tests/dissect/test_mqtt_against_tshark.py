"""MQTT spoken by Mosquitto, RabbitMQ and paho, over TCP and WebSocket: kinds, topics, pairs and times are tshark's.

Deviations, with their reasons:

- tshark pairs nothing in MQTT: pairs and times are worked out from its fields (stream, sender, packet id).
- tshark 4.0 leaves what is inside WebSocket as data: packets are cut from the unmasked payloads that it shows.
"""

from __future__ import annotations

import json
import threading
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

from support.conversation import CLIENT, SERVER, Heard
from support.mqtt_by_tshark import KINDS, acknowledged_after_ns
from support.ports import free_port
from support.wiretap import (
    found,
    listens,
    needs,
    overheard,
    running,
    tshark,
    until,
    wiretap,
    written,
)

paho = pytest.importorskip("paho.mqtt.client", reason="paho-mqtt is not installed")
pytestmark = [
    pytest.mark.slow,
    pytest.mark.broker,
    pytest.mark.xdist_group("rabbitmq"),
    needs("tshark", "dumpcap", why="(apt install tshark)"),
]

ANSWERS = {"CONNECT": "CONNACK", "SUBSCRIBE": "SUBACK", "UNSUBSCRIBE": "UNSUBACK", "PUBREL": "PUBCOMP"}
MESSAGES = 30


@dataclass(frozen=True)
class Broker:
    name: str
    urls: dict[str, str]
    versions: tuple[int, ...]
    """MQTT 3.1.1 is 4, as on the wire."""
    qos: int
    """The best it knows. In 3.1.1 it is sent QoS 2 all the same, and answers what it likes (RabbitMQ a PUBACK)."""


@pytest.fixture(scope="module", params=["mosquitto", "rabbitmq"])
def broker(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    if request.param == "rabbitmq":
        started = request.getfixturevalue("rabbitmq")
        urls = {"tcp": started.endpoints["tcp"], "websockets": started.endpoints["ws"]}
        versions = (4, 5) if "5" in started.capabilities.mqtt else (4,)
        yield Broker(f"RabbitMQ {started.version}", urls, versions, started.capabilities.qos)
        return
    program = found("mosquitto")
    if program is None:
        pytest.skip("mosquitto is not installed (apt install mosquitto)")
    folder, plain, web = tmp_path_factory.mktemp("mosquitto"), free_port(), free_port()
    settings = folder / "mosquitto.conf"
    settings.write_text(
        f"user root\nallow_anonymous true\nset_tcp_nodelay true\nlistener {plain} 127.0.0.1\n"
        f"listener {web}\nprotocol websockets\n"
    )
    with running([program, "-c", str(settings)]):
        until(lambda: listens(plain) and listens(web), what="Mosquitto")
        urls = {"tcp": f"mqtt://127.0.0.1:{plain}", "websockets": f"ws://127.0.0.1:{web}/mqtt"}
        yield Broker("Mosquitto", urls, (4, 5), 2)


def client(url: str, version: int, transport: str, name: str):
    place = urlsplit(url)
    made = paho.Client(paho.CallbackAPIVersion.VERSION2, name, protocol=version, transport=transport)
    made.pinged = threading.Event()
    made.on_log = lambda _client, _user, _level, text: made.pinged.set() if "PINGRESP" in text else None
    if transport == "websockets":
        made.ws_set_options(path=place.path)
    made.connect(place.hostname, place.port, keepalive=1)
    made.loop_start()
    until(made.is_connected, what=name)
    return made


def talk(url: str, version: int, transport: str, qos: int) -> None:
    """A subscriber and a publisher, all qualities of service, and a pause long enough for a ping."""
    arrived, subscribed = [], threading.Event()
    reader = client(url, version, transport, f"reader-{version}")
    reader.on_message = lambda *_: arrived.append(1)
    reader.on_subscribe = lambda *_: subscribed.set()
    reader.subscribe([("plant/#", 2), ("other", 0)])
    assert subscribed.wait(60)
    writer = client(url, version, transport, f"writer-{version}")
    waiting = [
        writer.publish(f"plant/{number % 3}", b"x" * (number * 97), qos=min(number % 3, qos))
        for number in range(MESSAGES)
    ]
    for one in waiting:
        one.wait_for_publish(20)
    until(lambda: len(arrived) == MESSAGES, what="delivery")
    reader.unsubscribe("other")
    for one in (writer, reader):
        assert one.pinged.wait(60)
        one.disconnect()
        one.loop_stop()


def cut(rows: list[dict[str, list[str]]]) -> list[dict[str, list[str]]]:
    """The packets in the payloads of WebSocket frames, as tshark would have told them."""
    for row in rows:
        data = bytes.fromhex("".join(row.pop("data.data")))
        for field in ("mqtt.msgtype", "mqtt.topic", "mqtt.msgid"):
            row[field] = []
        while data:
            length, width = 0, 1
            while True:
                length |= (data[width] & 127) << 7 * (width - 1)
                width += 1
                if data[width - 1] < 128:
                    break
            body, kind, quality = data[width : width + length], data[0] >> 4, data[0] >> 1 & 3
            row["mqtt.msgtype"].append(str(kind))
            if kind == 3:
                size = int.from_bytes(body[:2], "big")
                row["mqtt.topic"].append(body[2 : 2 + size].decode())
                body = body[2 + size :]
            if (kind == 3 and quality) or 4 <= kind <= 11:
                row["mqtt.msgid"].append(str(int.from_bytes(body[:2], "big")))
            data = data[width + length :]
    return rows


@pytest.mark.parametrize("transport", ["tcp", "websockets"])
@pytest.mark.parametrize("version", [4, 5])
def test_kinds_topics_pairs_and_times_are_tsharks(broker: Broker, tmp_path: Path, version: int, transport: str) -> None:
    if version not in broker.versions:
        pytest.skip(f"{broker.name} speaks no MQTT {version}")
    url = broker.urls[transport]
    port = urlsplit(url).port or 0
    capture = tmp_path / "mqtt.pcapng"
    with wiretap(capture, port):
        talk(url, version, transport, broker.qos if version == 5 else 2)
    fields = ["frame.time_epoch", "tcp.stream", "tcp.srcport"]
    if transport == "tcp":
        fields += ["mqtt.msgtype", "mqtt.topic", "mqtt.msgid"]
        rows = tshark(capture, fields, decode_as=f"tcp.port=={port},mqtt", only="mqtt")
    else:
        only = "websocket.opcode == 2"
        rows = cut(tshark(capture, [*fields, "data.data"], decode_as=f"tcp.port=={port},http", only=only))
    theirs = Counter(KINDS[int(kind)] for row in rows for kind in row["mqtt.msgtype"])
    said = overheard(capture, port)
    messages = [told for one in said for told in one.messages if told.found.protocol == "mqtt"]
    assert Counter(told.found.kind for told in messages) == theirs
    assert theirs["PUBLISH"] == 2 * MESSAGES
    assert bool(theirs["PUBREC"]) == (broker.qos == 2)
    assert theirs["PUBACK"] + theirs["PUBREC"] == MESSAGES * 4 // 3
    assert theirs["PINGREQ"] == theirs["PINGRESP"] >= 1
    topics = Counter(
        topic for row in rows for topic in row["mqtt.topic"] if topic.startswith("plant/") and "#" not in topic
    )
    assert Counter(told.found.name for told in messages if told.found.kind == "PUBLISH") == topics
    assert sum(one.stream.malformed + one.stream.undecoded_bytes for one in said) == 0

    exchanges = [row for one in said for row in one.exchanges if row.request.found.protocol == "mqtt"]
    assert all(row.response is not None for row in exchanges)
    pairs = Counter((row.request.found.kind, row.response.found.kind) for row in exchanges)
    expected = Counter({("PUBLISH", "PUBACK"): theirs["PUBACK"], ("PUBLISH", "PUBREC"): theirs["PUBREC"]})
    expected.update({(ask, answer): theirs[answer] for ask, answer in {**ANSWERS, "PINGREQ": "PINGRESP"}.items()})
    assert pairs == expected

    delays = acknowledged_after_ns(rows, port)
    ours = Counter(row.answered_ns - row.request.last_ns for row in exchanges if row.request.found.kind == "PUBLISH")
    assert delays
    assert not Counter(delays) - ours


REASONS = ("connack", "puback", "pubrec", "pubrel", "pubcomp", "suback", "unsuback", "disconnect", "auth")
TEXTS = {"08": "response_topic", "12": "assigned_client_id", "1c": "server_reference", "1f": "reason_string"}
NUMBERS = {"02": "message_expiry_s", "11": "session_expiry_s"}
FIELDS = [
    "mqtt.msgtype", *(f"mqtt.{kind}.reason_code" for kind in REASONS), "mqtt.property_id", "mqtt.prop_string",
    "mqtt.prop_key", "mqtt.prop_value", "mqtt.property.topic_alias", "mqtt.prop_number",
]  # fmt: skip


def explained(said: list[Heard]) -> Counter[tuple[Any, ...]]:
    """Of each message of ours: kind, codes, texts, alias, expiries and user properties."""
    rows: Counter[tuple[Any, ...]] = Counter()
    for told in (told for one in said for told in one.messages if told.found.protocol == "mqtt"):
        kept = json.loads(told.detail.properties or "{}") if told.detail else {}
        reason = told.detail.reason if told.detail else None
        codes = kept.get("reasons", [] if reason is None else [reason])
        texts = sorted(kept[name] for name in TEXTS.values() if name in kept)
        numbers = sorted(kept[name] for name in NUMBERS.values() if name in kept)
        user = tuple(tuple(pair) for pair in kept.get("user", []))
        rows[told.found.kind, tuple(codes), tuple(texts), kept.get("topic_alias"), tuple(numbers), user] += 1
    return rows


def by_tshark(rows: list[dict[str, list[str]]]) -> Counter[tuple[Any, ...]]:
    """The same, of frames that hold one packet each."""
    found: Counter[tuple[Any, ...]] = Counter()
    for row in rows:
        (kind,) = row["mqtt.msgtype"]
        codes = tuple(int(code, 0) for name in REASONS for code in row[f"mqtt.{name}.reason_code"])
        # In the order of their properties; others have texts and numbers, too.
        texts, numbers = iter(row["mqtt.prop_string"]), iter(row["mqtt.prop_number"])
        kept_texts, kept_numbers = [], []
        for one in (f"{int(identifier, 0):02x}" for identifier in row["mqtt.property_id"]):
            if one in TEXTS:
                kept_texts.append(next(texts))
            elif one not in {"03", "09", "23", "26"}:
                value = next(numbers)
                kept_numbers += [int(value)] if one in NUMBERS else []
        alias = int(row["mqtt.property.topic_alias"][0]) if row["mqtt.property.topic_alias"] else None
        user = tuple(zip(row["mqtt.prop_key"], row["mqtt.prop_value"], strict=True))
        name = KINDS[int(kind)]
        found[name, codes, tuple(sorted(kept_texts)), alias, tuple(sorted(kept_numbers)), user] += 1
    return found


def test_reason_codes_and_properties_are_tsharks(tmp_path: Path) -> None:
    from unit.dissect.test_mqtt import ack, connect, number, packet, publish, text
    from unit.dissect.test_mqtt_properties import REASON, block, user

    why, capture = block(REASON, user("k", "v"), user("k", "w")), tmp_path / "made.pcap"
    turns = [
        (CLIENT, connect(version=5, properties=block(b"\x11\0\0\0\x09", user("who", "me")))),
        (SERVER, packet(0x20, b"\0\0" + block(b"\x12" + text("auto"), b"\x13\0\x3c", b"\x22\0\x0a"))),
        (CLIENT, packet(0x82, number(1) + block(b"\x0b\x05") + text("a") + b"\0" + text("b") + b"\0")),
        (SERVER, packet(0x90, number(1) + why + b"\x01\x87")),
        (CLIENT, publish("a", b"x", 1, 2, 5, block(b"\x08" + text("re"), b"\x02\0\0\0\x3c", b"\x23\0\x01"))),
        (SERVER, ack(4, 2, b"\x97" + why)),
        (CLIENT, publish("", b"x", 2, 3, 5, block(b"\x23\0\x01"))),
        (SERVER, ack(5, 3, b"\x10")),
        (CLIENT, ack(6, 3, b"\x92\0")),
        (SERVER, ack(7, 3)),
        (CLIENT, packet(0xA2, number(4) + b"\0" + text("a"))),
        (SERVER, packet(0xB0, number(4) + b"\0" + b"\x11")),
        (SERVER, packet(0xE0, b"\x8b" + block(REASON, b"\x1c" + text("other:1883")))),
    ]
    written(capture, turns, 1883)
    theirs = by_tshark(tshark(capture, FIELDS, decode_as="tcp.port==1883,mqtt", only="mqtt"))
    assert sum(theirs.values()) == len(turns)
    assert explained(overheard(capture, 1883)) == theirs


def test_what_a_broker_explains_is_what_tshark_reads(broker: Broker, tmp_path: Path) -> None:
    if 5 not in broker.versions:
        pytest.skip(f"{broker.name} speaks no MQTT 5")
    from paho.mqtt.packettypes import PacketTypes
    from paho.mqtt.properties import Properties

    url = broker.urls["tcp"]
    port = urlsplit(url).port or 0
    capture, arrived, granted = tmp_path / "mqtt.pcapng", [], threading.Event()
    with wiretap(capture, port):
        reader = client(url, 5, "tcp", "")
        reader.on_message = lambda *_: arrived.append(1)
        reader.on_subscribe = lambda *_: granted.set()
        reader.subscribe([("plant/+", 1), ("other", 0)])
        assert granted.wait(60)
        # Nobody subscribes to the second topic: MQTT 5 has a code for that.
        for topic in ("plant/1", "nobody/1"):
            asked = Properties(PacketTypes.PUBLISH)
            asked.ResponseTopic, asked.CorrelationData, asked.MessageExpiryInterval = "answers/1", b"\x01\xff", 60
            asked.UserProperty = [("unit", "°C"), ("unit", "K")]
            reader.publish(topic, b"21.5", qos=1, properties=asked).wait_for_publish(20)
        until(lambda: arrived, what="delivery")
        reader.disconnect()
        reader.loop_stop()
    theirs = by_tshark(tshark(capture, FIELDS, decode_as=f"tcp.port=={port},mqtt", only="mqtt"))
    ours = explained(overheard(capture, port))
    assert ours == theirs
    assert any(kind == "PUBLISH" and user for kind, *_, user in ours)
    assert {codes for kind, codes, *_ in ours if kind == "SUBACK"} == {(1, 0)}
