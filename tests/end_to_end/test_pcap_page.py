"""`bb pcap` on a capture of real servers: the page, the text files and the CSV it writes."""

from __future__ import annotations

import csv
import json
import re
import socket
import threading
from pathlib import Path

import paho.mqtt.client as mqtt
import pyarrow.parquet as pq
import pytest
from websockets.sync.client import connect
from websockets.sync.server import ServerConnection, serve

from support.ports import free_port
from support.runs import bb
from support.wiretap import listens, needs, running, until, wiretap

MESSAGES = 200
pytestmark = [pytest.mark.slow, pytest.mark.spark, pytest.mark.broker, pytest.mark.root]


def send_through_mosquitto(port: int) -> None:
    arrived: list[bytes] = []
    listener, sender = (mqtt.Client(mqtt.CallbackAPIVersion.VERSION2) for _ in range(2))
    listener.on_message = lambda _client, _user, message: arrived.append(message.payload)
    subscribed: list[int] = []
    listener.on_subscribe = lambda *_: subscribed.append(1)
    for client in (listener, sender):
        client.connect("127.0.0.1", port)
        client.loop_start()
    listener.subscribe("town/#", 1)
    until(lambda: bool(subscribed), what="the subscription")
    for number in range(MESSAGES):
        sender.publish("town/air", b"reading %06d of a sensor" % number, qos=1)
    until(lambda: len(arrived) == MESSAGES, what="the last message")
    for client in (sender, listener):
        client.disconnect()
        client.loop_stop()


def ask_redis(port: int) -> None:
    with socket.create_connection(("127.0.0.1", port)) as asking:
        for number in range(20):
            asking.sendall(b"*3\r\n$3\r\nSET\r\n$1\r\na\r\n$2\r\n%02d\r\n" % number)
            assert asking.recv(64) == b"+OK\r\n"
        asking.sendall(b"*2\r\n$4\r\nLLEN\r\n$1\r\na\r\n")
        assert asking.recv(128).startswith(b"-WRONGTYPE")


@needs("mosquitto", "redis-server", "dumpcap")
def test_a_capture_of_real_servers_is_told_as_page_text_and_csv(tmp_path: Path) -> None:
    broker, store = free_port(), free_port()
    capture = tmp_path / "town.pcapng"
    with (
        running(["mosquitto", "-p", str(broker)]),
        running(["redis-server", "--port", str(store), "--save", ""], cwd=tmp_path),
    ):
        until(lambda: listens(broker) and listens(store), what="the servers")
        with wiretap(capture, broker, store):
            send_through_mosquitto(broker)
            ask_redis(store)
    names = ["--names", f"broker=127.0.0.1:{broker}", "--names", f"store=127.0.0.1:{store}"]
    done = bb("pcap", str(capture), "--out", "town", "--csv", "csv", *names, cwd=tmp_path, timeout=300)
    assert done.code == 0, done.err
    assert "town/report.html" in done.out

    page = (tmp_path / "town" / "report.html").read_text()
    assert {"wire-delays", "wire-protocols"} <= set(re.findall(r'data-chart="([^"]+)"', page))
    assert f"{MESSAGES} messages followed" in page

    text = (tmp_path / "town" / "services" / "broker.txt").read_text()
    # One CONNECT each, one SUBSCRIBE, and every PUBLISH is acknowledged on both sides.
    assert f"asked by outside, mqtt: {MESSAGES + 3} requests, {MESSAGES + 3} answered (0 uncertain), 0 pending" in text
    assert f"asks outside, mqtt: {MESSAGES} requests, {MESSAGES} answered (0 uncertain), 0 pending" in text
    asked = (tmp_path / "town" / "services" / "store.txt").read_text()
    assert "asked by outside, redis: 21 requests, 21 answered (0 uncertain), 0 pending, 1 failed" in asked

    with (tmp_path / "csv" / "responses.csv").open() as file:
        told = {(row["asker"], row["answerer"], row["kind"]): int(row["n"]) for row in csv.DictReader(file)}
    assert told["outside", "broker", "PUBLISH"] == told["broker", "outside", "PUBLISH"] == MESSAGES
    assert told["outside", "store", "SET"] == 20

    with (tmp_path / "csv" / "kinds.csv").open() as file:
        said = {(row["sender"], row["kind"], row["name"]): row for row in csv.DictReader(file)}
    assert int(said["broker", "PUBLISH", "town/air"]["messages"]) == MESSAGES
    assert (said["outside", "PUBLISH", ""]["part"], said["broker", "PUBACK", ""]["part"]) == ("request", "response")
    assert int(said["outside", "PUBLISH", "town/air"]["followed"]) == MESSAGES

    followed = bb("trace", "town", "--slowest", "1", "--json", cwd=tmp_path).json()
    assert [leg["sender"] for leg in followed[0]["legs"]] == ["outside", "broker"]


@needs("dumpcap")
def test_a_systems_own_messages_pair_as_its_file_says(tmp_path: Path) -> None:
    """Requests and responses share `rid`, an id nobody would guess; `hello` asks for nothing."""
    port, capture = free_port(), tmp_path / "socket.pcapng"

    def answer(connection: ServerConnection) -> None:
        for message in connection:
            asked = json.loads(message)
            if asked["action"] == "device/get":
                connection.send(json.dumps({"action": "device/got", "rid": asked["rid"]}))

    with serve(answer, "127.0.0.1", port) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        with wiretap(capture, port), connect(f"ws://127.0.0.1:{port}") as asking:
            asking.send(json.dumps({"action": "hello", "rid": "0"}))
            for number in range(20):
                asking.send(json.dumps({"action": "device/get", "rid": f"r{number}"}))
                assert json.loads(asking.recv())["rid"] == f"r{number}"
        server.shutdown()
    pairing = tmp_path / "mine.yaml"
    pairing.write_text(
        "pairing: {type: action, id: rid, answers: {device/get: device/got}, unanswered: [hello]}\n", encoding="utf-8"
    )
    done = bb("pcap", str(capture), "--out", str(tmp_path / "out"), "--pairing", str(pairing), "--json", cwd=tmp_path)
    assert done.code == 0, done.err
    assert done.json()["exchanges"]["websocket"]["answered"] == 20
    rows = pq.read_table(tmp_path / "out" / "decoded" / "exchanges").to_pylist()
    told = [row for row in rows if row["protocol"] == "websocket" and row["rule"] == "hint"]
    assert len(told) == 20
    assert {(row["kind"], row["answer"]) for row in told} == {("device/get", "device/got")}
