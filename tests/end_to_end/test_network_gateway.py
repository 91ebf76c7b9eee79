"""Ordinary MQTT clients on the broker inside the network: real switches, real gateways, paho and mosquitto's tools."""

from __future__ import annotations

import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import paho.mqtt.client as paho
import pytest
from paho.mqtt.enums import CallbackAPIVersion

from battlebrokers.sdn.lab.open_vswitch import what_is_missing
from support.runs import start_bb
from support.stage import Stage, stage
from support.waiting import until

_MISSING = what_is_missing()
pytestmark = [
    pytest.mark.root,
    pytest.mark.slow,
    pytest.mark.skipif(_MISSING is not None, reason=f"{_MISSING.message}: {_MISSING.hint}" if _MISSING else ""),
]
UDP_PORT = 5006
LARGEST = 1472


class Door:
    """One gateway, as a process."""

    def __init__(self, network: Stage, name: str, publish_as: str, subscribe_as: str) -> None:
        self._network = network
        self._log = network.folder / f"{name}.log"
        self._feet = ("--publish-as", publish_as, "--subscribe-as", subscribe_as)
        self.port = 0
        self.process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        network = self._network
        self._log.unlink(missing_ok=True)
        self.process = start_bb(
            "sdn", "gateway", *self._feet, "--port", str(self.port), "--udp-port", str(UDP_PORT), "--look-every", "0.2",
            "--lab", str(network.folder / "lab"), "--prefix", "bbt", "--verbose",
            "--url", f"http://127.0.0.1:{network.http_port}", cwd=network.folder, log=self._log,
        )  # fmt: skip
        until(lambda: "MQTT: tcp" in self.log(), what="the gateway")
        words = self.log().split()
        self.port = int(words[words.index("MQTT:") + 1].rpartition(":")[2])

    def log(self) -> str:
        return self._log.read_text()

    def counters(self) -> str:
        """The line of counters, asked for now."""
        assert self.process is not None
        before = self.log().count("clients ")
        self.process.send_signal(signal.SIGUSR1)
        until(lambda: self.log().count("clients ") > before, what="the counters")
        return [line for line in self.log().splitlines() if line.startswith("clients ")][-1]

    def kill(self) -> None:
        assert self.process is not None
        self.process.kill()
        self.process.wait(60)

    def stop(self) -> None:
        assert self.process is not None
        self.process.terminate()
        assert self.process.wait(60) == 0


class Client:
    """A paho client that remembers what it hears."""

    def __init__(
        self, door: Door, version: int = 4, client_id: str = "", will: tuple[str, bytes] | None = None
    ) -> None:
        self.heard: list[tuple[str, bytes, bool]] = []
        self.granted: list[list[int]] = []
        self.answers: list[int] = []
        protocol = paho.MQTTv5 if version == 5 else paho.MQTTv311
        self.paho = paho.Client(CallbackAPIVersion.VERSION2, client_id, protocol=protocol)
        self.paho.on_message = lambda _c, _u, said: self.heard.append((said.topic, said.payload, said.retain))
        self.paho.on_subscribe = lambda _c, _u, _m, codes, _p: self.granted.append([one.value for one in codes])
        self.paho.on_publish = lambda _c, _u, _m, code, _p: self.answers.append(code.value)
        if will is not None:
            self.paho.will_set(*will)
        self.paho.connect("127.0.0.1", door.port, keepalive=30)
        self.paho.loop_start()
        until(self.paho.is_connected, what="CONNACK")

    def subscribe(self, *filters: str) -> list[int]:
        before = len(self.granted)
        self.paho.subscribe([(one, 1) for one in filters])
        until(lambda: len(self.granted) > before, what="SUBACK")
        return self.granted[-1]

    def publish(self, topic: str, payload: bytes, qos: int = 0, retain: bool = False) -> None:
        self.paho.publish(topic, payload, qos, retain).wait_for_publish(20)

    def hears(self, *expected: tuple[str, bytes]) -> None:
        """Exactly these so far, in this order; the last one is what is waited for."""
        until(lambda: expected[-1] in [one[:2] for one in self.heard], 20, f"{expected[-1]}")
        assert [one[:2] for one in self.heard] == list(expected)

    def end(self) -> None:
        self.paho.disconnect()
        self.paho.loop_stop()


@contextmanager
def client(door: Door, **options: Any) -> Iterator[Client]:
    made = Client(door, **options)
    try:
        yield made
    finally:
        made.end()


@pytest.fixture(scope="module")
def network(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stage]:
    with stage(tmp_path_factory.mktemp("gateway"), "paper") as made:
        yield made


@pytest.fixture(scope="module")
def doors(network: Stage) -> Iterator[tuple[Door, Door]]:
    made = (Door(network, "west", "h1", "h2"), Door(network, "east", "h7", "h8"))
    with ExitStack() as started:
        for door in made:
            door.start()
            started.callback(door.stop)
        yield made
    for door in made:
        assert "Traceback" not in door.log()


def address_of(network: Stage, topic: str) -> str:
    (found,) = network.ask("GET", f"/api/v1/resources?name={topic}")
    assert (found["mode"], found["source"]) == ("tree", "resource")
    return str(found["address"])


def subscribers(network: Stage, topic: str) -> set[str]:
    found = network.ask("GET", f"/api/v1/resources?name={topic}")
    return {one["ipv4"] for resource in found for one in resource["subscribers"]}


def test_a_message_crosses_the_network_from_one_gateway_to_the_other_and_back(
    network: Stage, doors: tuple[Door, Door]
) -> None:
    west, east = doors
    with client(west) as here, client(east, version=5) as there:
        assert here.subscribe("rooms/1") == [0]
        assert there.subscribe("rooms/1", "rooms/2") == [0, 0]
        for number in range(50):
            here.publish("rooms/1", b"%d" % number)
        there.hears(*(("rooms/1", b"%d" % number) for number in range(50)))
        # Its own gateway's client hears it through the network too, and once.
        here.hears(*(("rooms/1", b"%d" % number) for number in range(50)))
        there.publish("rooms/1", b"back")
        until(lambda: ("rooms/1", b"back", False) in here.heard, what="the way back")
        assert subscribers(network, "rooms/1") == {network.hosts["h2"].ipv4, network.hosts["h8"].ipv4}
    # The network's subscriptions end with the clients'.
    until(lambda: not subscribers(network, "rooms/1"), what="both gateways to leave")


def test_the_tools_of_mosquitto_work_as_they_are(network: Stage, doors: tuple[Door, Door], tmp_path: Path) -> None:
    if shutil.which("mosquitto_sub") is None:
        pytest.skip("mosquitto_pub and mosquitto_sub are missing: apt-get install mosquitto-clients")
    west, east = doors
    for version in ("mqttv311", "mqttv5"):
        topic = f"tools/{version}"
        out = tmp_path / version
        with out.open("wb") as sink:
            ear = subprocess.Popen(
                ["mosquitto_sub", "-V", version, "-p", str(east.port), "-t", topic, "-C", "3", "-v"], stdout=sink
            )
        try:
            until(lambda topic=topic: subscribers(network, topic), what="the subscription")
            for qos in ("0", "1", "2"):
                subprocess.run(
                    ["mosquitto_pub", "-V", version, "-p", str(west.port), "-t", topic, "-q", qos, "-m", f"qos {qos}"],
                    check=True, timeout=60,
                )  # fmt: skip
            assert ear.wait(60) == 0
        finally:
            if ear.poll() is None:
                ear.kill()
                ear.wait()
        assert out.read_text().splitlines() == [f"{topic} qos {qos}" for qos in range(3)]


def test_wildcards_match_what_exists_and_what_comes_later(doors: tuple[Door, Door]) -> None:
    west, east = doors
    with client(west) as speaker, client(east) as far, client(west) as near:
        speaker.publish("wild/a/x", b"before anybody came", 1)
        for ear in (far, near):
            assert ear.subscribe("wild/+/x", "wild/a/#") == [0, 0]
        speaker.publish("wild/a/x", b"1")
        speaker.publish("wild/a/y/z", b"2")
        speaker.publish("wild/a", b"3")
        speaker.publish("wild/b/y", b"not wanted")
        speaker.publish("wild/b/x", b"4")
        # At its own gateway even the first message of a new topic arrives, and one that matches twice arrives once.
        near.hears(("wild/a/x", b"1"), ("wild/a/y/z", b"2"), ("wild/a", b"3"), ("wild/b/x", b"4"))
        # Another gateway learns of new topics when it looks.
        deadline = time.monotonic() + 20
        while ("wild/b/x", b"again", False) not in far.heard:
            assert time.monotonic() < deadline
            speaker.publish("wild/b/x", b"again")
            time.sleep(0.05)
        assert far.heard[0] == ("wild/a/x", b"1", False)
        assert not any(topic == "wild/b/y" for topic, *_ in far.heard + near.heard)


def test_topics_with_a_dollar_belong_to_the_broker(doors: tuple[Door, Door], network: Stage) -> None:
    west, _ = doors
    before = len(network.ask("GET", "/api/v1/resources"))
    with client(west) as ear, client(west, version=5) as speaker:
        assert ear.subscribe("#", "$SYS/broker") == [0, 0]
        speaker.publish("$SYS/broker", b"mine", 1)
        assert speaker.answers == [0x83]
        speaker.publish("dollar/none", b"after it")
        ear.hears(("dollar/none", b"after it"))
    assert len(network.ask("GET", "/api/v1/resources")) == before + 1


def test_a_topic_may_have_any_name_mqtt_allows(doors: tuple[Door, Door]) -> None:
    west, east = doors
    names = ["/", "//", "a b/ä&c=%2F?", "x" * 1024, "日本/\u00a0", '"quoted"\n', "../../hosts", "1.1.1.1"]
    with client(west) as speaker, client(east) as ear:
        assert ear.subscribe(*names) == [0] * len(names)
        for name in names:
            speaker.publish(name, name.encode()[:LARGEST])
        ear.hears(*((name, name.encode()[:LARGEST]) for name in names))


def test_unsubscribing_ends_deliveries(doors: tuple[Door, Door]) -> None:
    west, east = doors
    with client(west) as speaker, client(east) as ear:
        ear.subscribe("leave/this", "leave/not")
        speaker.publish("leave/this", b"1")
        ear.hears(("leave/this", b"1"))
        ended: list[int] = []
        ear.paho.on_unsubscribe = lambda *_: ended.append(1)
        ear.paho.unsubscribe("leave/this")
        until(lambda: ended, what="UNSUBACK")
        speaker.publish("leave/this", b"2")
        speaker.publish("leave/not", b"3")
        ear.hears(("leave/this", b"1"), ("leave/not", b"3"))


def test_plain_hosts_and_mqtt_clients_hear_each_other(doors: tuple[Door, Door], network: Stage) -> None:
    west, _ = doors
    with client(west) as mqtt, network.lab.udp_socket("h5", UDP_PORT) as plain, network.lab.udp_socket("h4") as other:
        mqtt.subscribe("plain/in")
        mqtt.publish("plain/out", b"", 1)
        network.subscribe(address_of(network, "plain/out"), "h5")
        plain.settimeout(60)
        for payload in (b"", b"from MQTT", b"x" * LARGEST):
            mqtt.publish("plain/out", payload)
            assert plain.recvfrom(2000)[0] == payload
        other.sendto(b"from a host", (address_of(network, "plain/in"), UDP_PORT))
        mqtt.hears(("plain/in", b"from a host"))
        # A resource made by hand is a topic as well.
        made = network.ask("POST", "/api/v1/resources", {"name": "plain/made", "source": "resource"})["address"]
        mqtt.subscribe("plain/made")
        other.sendto(b"by hand", (made, UDP_PORT))
        mqtt.hears(("plain/in", b"from a host"), ("plain/made", b"by hand"))


def test_a_resource_whose_copies_do_not_name_it_is_refused(doors: tuple[Door, Door], network: Stage) -> None:
    west, _ = doors
    network.ask("POST", "/api/v1/resources", {"name": "anonymous"})
    with client(west) as old, client(west, version=5) as new:
        assert old.subscribe("anonymous", "named") == [0x80, 0]
        assert new.subscribe("anonymous", "$share/us/named") == [0x83, 0x9E]
    assert "keeps the publisher's address" in west.log()


def test_a_publishing_host_that_is_subscribed_is_told(doors: tuple[Door, Door], network: Stage) -> None:
    west, _ = doors
    with client(west) as speaker:
        speaker.publish("deaf/host", b"", 1)
        network.subscribe(address_of(network, "deaf/host"), "h1")
        until(lambda: "the network drops what it publishes" in west.log(), what="the warning")


def test_quality_1_and_2_are_acknowledged_and_a_datagram_goes_out_once(doors: tuple[Door, Door]) -> None:
    west, east = doors
    with client(west) as speaker, client(east) as ear:
        ear.subscribe("quality")
        for number in range(20):
            speaker.publish("quality", b"%d" % number, 1 + number % 2)
        assert speaker.answers == [0] * 20
        ear.hears(*(("quality", b"%d" % number) for number in range(20)))


def test_a_will_is_published_when_its_client_vanishes_and_not_when_it_says_goodbye(doors: tuple[Door, Door]) -> None:
    west, east = doors
    with client(east) as ear:
        ear.subscribe("will/#", "will/polite", "will/rude", "will/replaced")
        with client(west, will=("will/polite", b"gone")):
            pass
        rude = Client(west, will=("will/rude", b"gone"))
        door = rude.paho.socket()
        assert door is not None
        door.shutdown(socket.SHUT_RDWR)
        ear.hears(("will/rude", b"gone"))
        rude.end()
        first = Client(west, client_id="same", will=("will/replaced", b"gone"))
        first.paho.on_disconnect = lambda *_: first.paho.disconnect()
        with client(west, client_id="same"):
            ear.hears(("will/rude", b"gone"), ("will/replaced", b"gone"))
        first.end()


def test_the_last_retained_message_is_told_to_new_subscribers(doors: tuple[Door, Door]) -> None:
    west, _ = doors
    with client(west) as speaker:
        for payload in (b"old", b"new"):
            speaker.publish("kept/1", payload, 1, retain=True)
        speaker.publish("kept/2", b"two", 1, retain=True)
        speaker.publish("kept/3", b"three", 1, retain=True)
        speaker.publish("kept/3", b"", 1, retain=True)
        with client(west) as ear:
            ear.subscribe("kept/#")
            until(lambda: len(ear.heard) == 2, what="both")
            assert sorted(ear.heard) == [("kept/1", b"new", True), ("kept/2", b"two", True)]
            speaker.publish("kept/1", b"live", 1, retain=True)
            until(lambda: len(ear.heard) == 3, what="the next one")
            assert ear.heard[2] == ("kept/1", b"live", False)


def test_what_does_not_fit_a_datagram_is_not_forwarded_and_never_acknowledged(doors: tuple[Door, Door]) -> None:
    west, east = doors
    with client(west, client_id="talkative") as speaker, client(east) as ear, client(west, version=5) as new:
        ear.subscribe("large")
        for _ in range(3):
            speaker.publish("large", b"x" * (LARGEST + 1))
        speaker.publish("large", b"x" * LARGEST)
        ear.hears(("large", b"x" * LARGEST))
        new.publish("large", b"y" * 2000, 1)
        assert new.answers == [0x83]
        assert west.log().count("a message of client 'talkative'") == 1
        assert "4 too large" in west.counters()
    if shutil.which("mosquitto_pub"):
        words = ["mosquitto_pub", "-p", str(west.port), "-t", "large", "-q", "1", "-m", "z" * 2000]
        assert subprocess.run(words, capture_output=True, timeout=60, check=False).returncode != 0


def test_malformed_bytes_end_their_own_connection_only(doors: tuple[Door, Door]) -> None:
    west, _ = doors
    hello = b"\x10\x0d\0\4MQTT\4\2\0\x1e\0\1q"
    nonsense = [
        b"GET / HTTP/1.1\r\nUser-Agent: one that takes this for a web server\r\nAccept: */*\r\n\r\n",
        b"\0" * 100, b"\xff" * 100, b"\x10\xff\xff\xff\xff\xff",
        hello + hello, hello + b"\x30\xff\xff\xff\x7f", hello + b"\x82\x02\0\0", hello + b"\x36\x05\0\1a\0\1",
    ]  # fmt: skip
    with client(west) as bystander:
        bystander.subscribe("calm")
        for said in nonsense:
            with socket.create_connection(("127.0.0.1", west.port), 60) as rude:
                rude.settimeout(60)
                rude.sendall(said)
                try:
                    while rude.recv(1000):
                        pass
                except ConnectionResetError:
                    pass
        with socket.create_connection(("127.0.0.1", west.port), 60) as old:
            old.sendall(b"\x10\x0f\0\6MQIsdp\3\2\0\x1e\0\1q")
            assert old.recv(10) == b"\x20\x02\0\1"
        bystander.publish("calm", b"still here", 1)
        bystander.hears(("calm", b"still here"))
    assert f"malformed {len(nonsense)}" in west.counters()


def test_known_topics_go_on_while_the_controller_is_away_and_new_ones_wait(
    doors: tuple[Door, Door], network: Stage
) -> None:
    west, east = doors
    with client(west) as speaker, client(east) as ear:
        ear.subscribe("away/known")
        speaker.publish("away/known", b"before", 1)
        network.kill_controller()
        for number in range(20):
            speaker.publish("away/known", b"%d" % number, 1)
        ear.hears(("away/known", b"before"), *(("away/known", b"%d" % number) for number in range(20)))
        waiting = speaker.paho.publish("away/new", b"waits", 1)
        network.start_controller()
        waiting.wait_for_publish(30)
        assert waiting.is_published()
        until(
            lambda: sum(one["connected"] for one in network.ask("GET", "/api/v1/topology")["switches"]) == 4,
            what="the switches",
        )
        ear.subscribe("away/new")
        speaker.publish("away/new", b"after", 1)
        until(lambda: ("away/new", b"after", False) in ear.heard, what="the new topic")


def test_a_killed_gateway_starts_again_and_clears_what_it_left(doors: tuple[Door, Door], network: Stage) -> None:
    west, east = doors
    with client(west) as speaker:
        ear = Client(east)
        ear.subscribe("killed/kept", "killed/left")
        east.kill()
        ear.end()
        assert subscribers(network, "killed/left") == {network.hosts["h8"].ipv4}
        east.start()
        with client(east) as again:
            assert again.subscribe("killed/kept") == [0]
            until(lambda: not subscribers(network, "killed/left"), what="the old subscription to end")
            speaker.publish("killed/left", b"for nobody")
            speaker.publish("killed/kept", b"here again")
            again.hears(("killed/kept", b"here again"))


def test_one_host_is_enough_for_one_direction(network: Stage, doors: tuple[Door, Door]) -> None:
    _, east = doors
    only_out = Door(network, "out", "h3", "")
    only_in = Door(network, "in", "", "h4")
    with ExitStack() as started:
        for door in (only_out, only_in):
            door.start()
            started.callback(door.stop)
        with client(only_out) as speaker, client(only_in, version=5) as ear:
            assert speaker.subscribe("oneway") == [0x80]
            assert ear.subscribe("oneway") == [0]
            speaker.publish("oneway", b"forth", 1)
            ear.hears(("oneway", b"forth"))
            ear.publish("oneway", b"back", 1)
            assert ear.answers == [0x83]
    assert east.process is not None
    assert east.process.poll() is None
    assert not subscribers(network, "oneway"), only_in.log()
