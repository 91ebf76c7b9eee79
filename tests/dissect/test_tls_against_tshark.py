"""MQTT inside TLS, spoken by Mosquitto and paho and opened with a key log: kinds, topics, pairs and times are tshark's.

Deviations, with their reasons:

- tshark 4.0 leaves what is inside WebSocket as data: over WebSocket only the upgrade's requests are compared.
"""

from __future__ import annotations

import ssl
import threading
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from battlebrokers.dissect.hints import Hints
from battlebrokers.dissect.tls_secrets import parse_key_log
from support.certificates import Authority
from support.conversation import Heard
from support.mqtt_by_tshark import KINDS, acknowledged_after_ns
from support.ports import free_port
from support.wiretap import found, listens, needs, overheard, running, tshark, until, wiretap

paho = pytest.importorskip("paho.mqtt.client", reason="paho-mqtt is not installed")
pytestmark = [
    pytest.mark.slow, pytest.mark.broker, pytest.mark.xdist_group("tls"),
    needs("tshark", "dumpcap", why="(apt install tshark)"),
    needs("mosquitto", why="(apt install mosquitto)"),
]  # fmt: skip

MESSAGES = 30
NEW, OLD = ssl.TLSVersion.TLSv1_3, ssl.TLSVersion.TLSv1_2


@dataclass(frozen=True)
class Server:
    authority: Path
    ports: dict[str, int]
    """One per cipher of TLS 1.3, and one for WebSocket."""


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    folder = tmp_path_factory.mktemp("tls")
    folder.chmod(0o755)
    authority = Authority(folder)
    certificate, key = authority.sign("server", server=True)
    ciphers = ("TLS_AES_128_GCM_SHA256", "TLS_AES_256_GCM_SHA384", "TLS_CHACHA20_POLY1305_SHA256")
    ports = {name: free_port() for name in (*ciphers, "websockets")}
    lines = ["user root", "per_listener_settings true"]
    for name, port in ports.items():
        lines += [f"listener {port} 127.0.0.1", "allow_anonymous true", f"certfile {certificate}", f"keyfile {key}"]
        lines += ["protocol websockets"] if name == "websockets" else [f"ciphers_tls1.3 {name}"]
    settings = folder / "mosquitto.conf"
    settings.write_text("\n".join(lines) + "\n")
    with running([str(found("mosquitto")), "-c", str(settings)]):
        until(lambda: all(listens(port) for port in ports.values()), what="Mosquitto")
        yield Server(authority.path, ports)


def talk(server: Server, port: int, keys: Path, version: ssl.TLSVersion, cipher: str, transport: str = "tcp") -> None:
    """A subscriber and a publisher, all qualities of service, one message larger than a TLS record."""

    def client(name: str) -> paho.Client:
        context = ssl.create_default_context(cafile=str(server.authority))
        context.keylog_filename = str(keys)
        context.minimum_version = context.maximum_version = version
        if version == OLD:
            context.set_ciphers(cipher)
        made = paho.Client(paho.CallbackAPIVersion.VERSION2, name, transport=transport)
        made.tls_set_context(context)
        made.connect("127.0.0.1", port)
        made.loop_start()
        until(made.is_connected, what=name)
        return made

    arrived, subscribed = [], threading.Event()
    reader = client("reader")
    reader.on_message = lambda *_: arrived.append(1)
    reader.on_subscribe = lambda *_: subscribed.set()
    reader.subscribe("plant/#", 2)
    assert subscribed.wait(60)
    writer = client("writer")
    sizes = [number * 97 for number in range(MESSAGES - 1)] + [50_000]
    waiting = []
    for number, size in enumerate(sizes):
        waiting.append(writer.publish(f"plant/{number % 3}", b"x" * size, number % 3))
        if number < MESSAGES // 3:
            waiting[-1].wait_for_publish(20)  # in a frame of its own
    for one in waiting:
        one.wait_for_publish(20)
    until(lambda: len(arrived) == MESSAGES, what="delivery")
    for one in (writer, reader):
        one.disconnect()
        one.loop_stop()


def opened(capture: Path, port: int, keys: Path) -> list[Heard]:
    """What is told of the capture with the key log."""
    return overheard(capture, port, hints=Hints(tls_secrets=parse_key_log(keys.read_bytes())))


CASES = [
    (NEW, "TLS_AES_128_GCM_SHA256"), (NEW, "TLS_AES_256_GCM_SHA384"), (NEW, "TLS_CHACHA20_POLY1305_SHA256"),
    (OLD, "ECDHE-ECDSA-AES128-GCM-SHA256"), (OLD, "ECDHE-ECDSA-AES256-GCM-SHA384"),
    (OLD, "ECDHE-ECDSA-CHACHA20-POLY1305"),
]  # fmt: skip


@pytest.mark.parametrize(("version", "cipher"), CASES)
def test_what_is_inside_is_tsharks(server: Server, tmp_path: Path, version: ssl.TLSVersion, cipher: str) -> None:
    port = server.ports.get(cipher, server.ports["TLS_AES_128_GCM_SHA256"])
    capture, keys = tmp_path / "tls.pcapng", tmp_path / "keys.log"
    with wiretap(capture, port):
        talk(server, port, keys, version, cipher)
    fields = ["frame.time_epoch", "tcp.stream", "tcp.srcport", "mqtt.msgtype", "mqtt.topic", "mqtt.msgid"]
    rows = tshark(capture, fields, decode_as=f"tls.port=={port},mqtt", only="mqtt", settings=f"tls.keylog_file:{keys}")
    theirs = Counter(KINDS[int(kind)] for row in rows for kind in row["mqtt.msgtype"])
    said = opened(capture, port, keys)
    messages = [told for one in said for told in one.messages if told.found.protocol == "mqtt"]
    assert Counter(told.found.kind for told in messages) == theirs
    assert theirs["PUBLISH"] == 2 * MESSAGES
    topics = Counter(topic for row in rows for topic in row["mqtt.topic"] if "#" not in topic)
    assert Counter(told.found.name for told in messages if told.found.kind == "PUBLISH") == topics
    assert sum(one.stream.malformed + one.stream.undecoded_bytes for one in said) == 0
    assert not any(told.found.kind == "ApplicationData" for one in said for told in one.messages)

    exchanges = [row for one in said for row in one.exchanges if row.request.found.protocol == "mqtt"]
    pairs = Counter((row.request.found.kind, row.response.found.kind) for row in exchanges if row.response)
    assert pairs["PUBLISH", "PUBACK"] == theirs["PUBACK"]
    assert pairs["PUBLISH", "PUBREC"] == theirs["PUBREC"]
    assert pairs["SUBSCRIBE", "SUBACK"] == 1
    delays = acknowledged_after_ns(rows, port)
    assert delays
    ours = Counter(row.answered_ns - row.request.last_ns for row in exchanges if row.request.found.kind == "PUBLISH")
    assert not Counter(delays) - ours


def test_the_wrong_keys_open_nothing_and_say_so(server: Server, tmp_path: Path) -> None:
    port = server.ports["TLS_AES_128_GCM_SHA256"]
    capture, keys = tmp_path / "tls.pcapng", tmp_path / "keys.log"
    with wiretap(capture, port):
        talk(server, port, keys, NEW, "")
    for line in (lines := keys.read_text().splitlines()):
        assert not line or line.startswith("#") or len(line.split()) == 3
    spoilt = [line if line.startswith("#") else " ".join((*line.split()[:2], "ab" * 32)) for line in lines]
    keys.write_text("\n".join(spoilt))
    said = opened(capture, port, keys)
    assert {told.found.protocol for one in said for told in one.messages} == {"tls"}
    sealed = sum(told.found.payload_bytes for one in said for told in one.messages)
    assert sum(one.stream.undecoded_bytes for one in said) == sealed > 0


def test_mqtt_in_websocket_in_tls_is_read(server: Server, tmp_path: Path) -> None:
    port = server.ports["websockets"]
    capture, keys = tmp_path / "wss.pcapng", tmp_path / "keys.log"
    with wiretap(capture, port):
        talk(server, port, keys, NEW, "", transport="websockets")
    said = opened(capture, port, keys)
    counts = Counter((told.found.protocol, told.found.kind) for one in said for told in one.messages)
    assert counts["mqtt", "PUBLISH"] == 2 * MESSAGES
    assert counts["http", "GET"] == 2
    assert sum(one.stream.malformed + one.stream.undecoded_bytes for one in said) == 0
    rows = tshark(
        capture, ["http.request.method"], decode_as=f"tls.port=={port},http",
        settings=f"tls.keylog_file:{keys}",
    )  # fmt: skip
    assert sum(len(row["http.request.method"]) for row in rows) == counts["http", "GET"]
