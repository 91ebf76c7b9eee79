"""One suite over every contender: what it claims in its file is what it does here. Missing ones say what to install."""

from __future__ import annotations

import contextlib
import os
import queue
import signal
import socket
import ssl
import uuid
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import paho.mqtt.client as paho
import psutil
import pytest
from paho.mqtt.enums import CallbackAPIVersion, MQTTProtocolVersion

from battlebrokers.contenders import ports as ports_module
from battlebrokers.contenders.availability import Missing, availability
from battlebrokers.contenders.broker_url import parse_broker_url
from battlebrokers.contenders.lifecycle import RunningContender, TlsServerFiles, start_contender
from battlebrokers.contenders.offers import offers_of, protocol_of
from battlebrokers.contenders.reader import SPECS, find_contender, load_contenders
from battlebrokers.contenders.spec import Contender
from battlebrokers.errors import BattleError, ContenderError, ExitCode
from support.certificates import Authority
from support.waiting import until

pytestmark = pytest.mark.broker

WAIT_S = 60.0
SLOW = {"rabbitmq"}
ONE_AT_A_TIME = {"sdn-mqtt": "without a kernel module there is room for one network of switches"}
"""How they stop, and die, tests/end_to_end/test_network_contender.py shows."""


def speaks_plain_mqtt(contender: Contender) -> bool:
    """Whether this suite is about it: started here, and spoken to in MQTT as it is."""
    offer = offers_of(contender).get("mqtt")
    started_here = not (contender.run.external or contender.run.container or contender.run.compose)
    return started_here and offer is not None and not offer.scripted and "tcp" in offer.endpoints


def slow(name: str) -> list[pytest.MarkDecorator]:
    return [pytest.mark.slow] if name in SLOW else []


def contender_params(*, quick_only: bool = False, together: bool = False) -> list[Any]:
    """One parameter each; those of a contender that is shared go to one process, so that it is started once."""
    names = [contender.name for contender in load_contenders() if speaks_plain_mqtt(contender)]
    return [
        pytest.param(
            name, marks=[*slow(name), *([pytest.mark.xdist_group(f"contender {name}")] if together else [])], id=name
        )
        for name in names
        if not (quick_only and name in SLOW)
    ]


def must_be_here_once_more(name: str) -> None:
    """For tests that start one beside the one that is shared."""
    must_be_here(name)
    if name in ONE_AT_A_TIME:
        pytest.skip(f"{name} cannot run twice here: {ONE_AT_A_TIME[name]}")


def must_be_here(name: str) -> None:
    here = availability(find_contender(name))
    if isinstance(here, Missing):
        pytest.skip(f"{name} cannot run here: {here.what} is missing; {here.hint}")


def everyone(broker: RunningContender) -> list[psutil.Process]:
    return [psutil.Process(pid) for _, pids in broker.services for pid in pids]


def gone(processes: list[psutil.Process]) -> bool:
    return not [process for process in processes if process.is_running()]


def listening(broker: RunningContender) -> list[str]:
    found = []
    for url in broker.endpoints.values():
        place = parse_broker_url(url)
        with contextlib.suppress(OSError), socket.create_connection((place.host, place.port), 1.0):
            found.append(url)
    return found


@dataclass
class Peer:
    """A paho client that remembers what it was told."""

    client: paho.Client
    connected: queue.Queue[Any] = field(default_factory=queue.Queue)
    granted: queue.Queue[list[Any]] = field(default_factory=queue.Queue)
    messages: queue.Queue[paho.MQTTMessage] = field(default_factory=queue.Queue)

    def subscribe(self, topic: str, qos: int) -> int:
        self.client.subscribe(topic, qos)
        return int(self.granted.get(timeout=WAIT_S)[0].value)

    def publish(self, topic: str, payload: bytes, qos: int, *, retain: bool = False) -> None:
        self.client.publish(topic, payload, qos, retain).wait_for_publish(WAIT_S)

    def next(self) -> paho.MQTTMessage:
        return self.messages.get(timeout=WAIT_S)

    def nothing_more(self) -> bool:
        with contextlib.suppress(queue.Empty):
            self.messages.get(timeout=0.3)
            return False
        return True


@pytest.fixture
def peers() -> Iterator[Callable[..., Peer]]:
    made: list[paho.Client] = []

    def join(
        broker: RunningContender,
        transport: str = "tcp",
        *,
        version: str = "3.1.1",
        client_id: str = "",
        clean: bool = True,
        will: tuple[str, bytes] | None = None,
        ca: Path | None = None,
        certificate: tuple[Path, Path] | None = None,
        wait_s: float = WAIT_S,
    ) -> Peer:
        place = parse_broker_url(broker.endpoints[transport])
        five = version == "5"
        client = paho.Client(
            CallbackAPIVersion.VERSION2,
            client_id=client_id or f"peer-{uuid.uuid4().hex[:12]}",
            clean_session=None if five else clean,
            protocol=MQTTProtocolVersion.MQTTv5 if five else MQTTProtocolVersion.MQTTv311,
            transport="websockets" if transport in ("ws", "wss") else "tcp",
            reconnect_on_failure=False,
        )
        peer = Peer(client)
        client.on_connect = lambda _c, _u, _f, reason, _p: peer.connected.put(reason)
        client.on_connect_fail = lambda _c, _u: peer.connected.put(None)
        client.on_disconnect = lambda _c, _u, _f, reason, _p: peer.connected.put(reason)
        client.on_subscribe = lambda _c, _u, _m, reasons, _p: peer.granted.put(reasons)
        client.on_message = lambda _c, _u, message: peer.messages.put(message)
        if place.path:
            client.ws_set_options(path=place.path)
        if will is not None:
            client.will_set(will[0], will[1], qos=1)
        if ca is not None:
            cert, key = (str(path) for path in certificate) if certificate else (None, None)
            client.tls_set(str(ca), cert, key, tls_version=ssl.PROTOCOL_TLS_CLIENT)
        made.append(client)
        client.connect(place.host, place.port, keepalive=30)
        client.loop_start()
        reason = peer.connected.get(timeout=wait_s)
        if reason is None or reason.is_failure:
            raise ConnectionRefusedError(str(reason))
        return peer

    yield join
    for client in made:
        client.disconnect()
        client.loop_stop()


@pytest.fixture(scope="module", params=contender_params(together=True))
def broker(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningContender]:
    must_be_here(request.param)
    # a space in the folder's name is normal, and breaks many a start script
    folder = tmp_path_factory.mktemp("run") / f"its {request.param}"
    with start_contender(request.param, "stock", folder) as running:
        yield running


def test_it_is_up_with_version_configuration_and_logs(broker: RunningContender) -> None:
    assert broker.alive()
    assert broker.reachable()
    assert broker.exit_status is None
    assert broker.version[0].isdigit()
    assert len(broker.config_sha256) == 64
    assert str(parse_broker_url(broker.endpoints["tcp"]).port) in broker.config_text
    assert all(path.is_file() for path in broker.log_paths)


def test_each_of_its_services_has_processes(broker: RunningContender) -> None:
    for service, pids in broker.services:
        assert pids, service
        assert all(psutil.pid_exists(pid) for pid in pids)


def test_it_listens_where_it_was_told_to(broker: RunningContender) -> None:
    mqtt = {key for key in broker.endpoints if protocol_of(key) == "mqtt"}
    assert mqtt <= set(broker.capabilities.transports if broker.capabilities else ())
    connected = [url for key, url in broker.endpoints.items() if protocol_of(key) not in ("coap", "udp")]
    assert listening(broker) == connected


@pytest.mark.parametrize("transport", ["tcp", "ws"])
def test_a_message_comes_back_with_every_qos_it_honours(
    broker: RunningContender, peers: Callable[..., Peer], transport: str
) -> None:
    assert broker.capabilities is not None
    if transport not in broker.endpoints:
        pytest.skip(f"{broker.name} has no MQTT over {transport}")
    peer = peers(broker, transport)
    for qos in range(broker.capabilities.qos + 1):
        topic = f"contract/{transport}/{qos}"
        assert peer.subscribe(topic, qos) == qos
        peer.publish(topic, f"hello {qos}".encode(), qos)
        message = peer.next()
        assert (message.topic, message.payload, message.qos) == (topic, f"hello {qos}".encode(), qos)


def test_it_does_not_grant_or_deliver_more_than_the_qos_it_claims(
    broker: RunningContender, peers: Callable[..., Peer]
) -> None:
    assert broker.capabilities is not None
    assert peers(broker).subscribe("contract/most", 2) == broker.capabilities.qos


@pytest.mark.parametrize("version", ["3.1.1", "5"])
def test_it_speaks_the_versions_it_claims_and_no_other(
    broker: RunningContender, peers: Callable[..., Peer], version: str
) -> None:
    assert broker.capabilities is not None
    if version in broker.capabilities.mqtt:
        peers(broker, version=version)
    else:
        # most say no, Ponte says nothing at all
        with pytest.raises((ConnectionError, queue.Empty)):
            peers(broker, version=version, wait_s=20)


def test_shared_subscriptions_are_shared_or_not_claimed(broker: RunningContender, peers: Callable[..., Peer]) -> None:
    assert broker.capabilities is not None
    members = [peers(broker), peers(broker)]
    for member in members:
        member.subscribe("$share/group/contract/shared", 1)
    publisher = peers(broker)
    for number in range(10):
        publisher.publish("contract/shared", str(number).encode(), 1)
    wanted = 10 if broker.capabilities.shared else 0
    until(lambda: sum(member.messages.qsize() for member in members) >= wanted)
    assert all(member.messages.qsize() < 10 for member in members)
    if not broker.capabilities.shared:
        assert all(member.nothing_more() for member in members)


def test_a_persistent_session_keeps_messages_or_is_not_claimed(
    broker: RunningContender, peers: Callable[..., Peer]
) -> None:
    assert broker.capabilities is not None
    name = f"sleeper-{uuid.uuid4().hex[:8]}"
    sleeper = peers(broker, client_id=name, clean=False)
    sleeper.subscribe("contract/asleep", 1)
    sleeper.client.disconnect()
    sleeper.connected.get(timeout=WAIT_S)
    peers(broker).publish("contract/asleep", b"while you were away", 1)
    awake = peers(broker, client_id=name, clean=False)
    if broker.capabilities.persistent_session:
        assert awake.next().payload == b"while you were away"
    else:
        assert awake.nothing_more()


def test_a_will_is_sent_when_a_client_vanishes(broker: RunningContender, peers: Callable[..., Peer]) -> None:
    watcher = peers(broker)
    watcher.subscribe("contract/will", 1)
    mortal = peers(broker, will=("contract/will", b"gone"))
    sock: Any = mortal.client.socket()
    sock.shutdown(socket.SHUT_RDWR)
    assert watcher.next().payload == b"gone"


def test_a_retained_message_waits_for_a_late_subscriber(broker: RunningContender, peers: Callable[..., Peer]) -> None:
    assert broker.capabilities is not None
    if not broker.capabilities.retain:
        pytest.skip(f"{broker.name} does not claim to keep messages")
    peers(broker).publish("contract/retained", b"still here", 1, retain=True)
    late = peers(broker)
    late.subscribe("contract/retained", 1)
    message = late.next()
    assert (message.payload, message.retain) == (b"still here", True)
    late.publish("contract/retained", b"", 1, retain=True)


def test_a_client_id_of_62_characters_and_a_payload_of_a_mebibyte_pass(
    broker: RunningContender, peers: Callable[..., Peer]
) -> None:
    peer = peers(broker, client_id="x" * 62)
    # A mebibyte, unless its file says that less is the most.
    size = offers_of(find_contender(broker.name))["mqtt"].largest_payload_bytes or 1 << 20
    peer.subscribe("contract/large", 1)
    peer.publish("contract/large", bytes(size), 1)
    assert len(peer.next().payload) == size


@pytest.mark.parametrize("name", contender_params())
def test_stopping_leaves_no_process_no_port_and_no_data(name: str, tmp_path: Path) -> None:
    must_be_here_once_more(name)
    running = start_contender(name, "tuned", tmp_path)
    processes = everyone(running)
    assert processes
    running.stop()
    assert gone(processes)
    assert listening(running) == []
    assert not running.alive()
    # some have no words for it, and just die of their stop signal; Java says so as a shell would
    number = find_contender(name).stop.number
    assert running.exit_status in (0, -number, 128 + number)
    assert running.log_paths
    assert not list(tmp_path.glob("data-*"))
    running.stop()


@pytest.mark.parametrize("name", contender_params(quick_only=True))
def test_killing_is_noticed(name: str, tmp_path: Path) -> None:
    must_be_here_once_more(name)
    with start_contender(name, "stock", tmp_path) as running:
        processes = everyone(running)
        running.kill()
        assert not running.alive()
        assert running.exit_status == -signal.SIGKILL
        assert gone(processes)
        assert listening(running) == []


def test_a_death_that_we_did_not_ask_for_is_noticed(tmp_path: Path) -> None:
    with start_contender("amqtt", "stock", tmp_path) as running:
        os.kill(running.services[0][1][0], signal.SIGKILL)
        until(lambda: not running.alive())
        assert running.exit_status == -signal.SIGKILL
        assert running.services == [("amqtt", [])]


def test_a_frozen_broker_is_alive_and_can_be_stopped(tmp_path: Path) -> None:
    with start_contender("amqtt", "stock", tmp_path) as running:
        os.kill(running.services[0][1][0], signal.SIGSTOP)
        assert running.alive()


@pytest.mark.parametrize("name", contender_params(quick_only=True))
def test_two_of_a_kind_run_side_by_side_with_the_same_configuration(
    name: str, tmp_path: Path, peers: Callable[..., Peer]
) -> None:
    must_be_here_once_more(name)
    with (
        start_contender(name, "stock", tmp_path / "one") as one,
        start_contender(name, "stock", tmp_path / "two") as two,
    ):
        assert not set(one.endpoints.values()) & set(two.endpoints.values())
        assert one.config_sha256 == two.config_sha256
        assert one.config_text != two.config_text
        here, there = peers(one), peers(two)
        there.subscribe("contract/apart", 0)
        here.publish("contract/apart", b"for one only", 1)
        assert there.nothing_more()


def test_a_broken_configuration_fails_with_the_brokers_last_words(tmp_path: Path) -> None:
    must_be_here("mosquitto")
    broken = tmp_path / "broken.yaml"
    text = (SPECS / "mosquitto.yaml").read_text().replace("allow_anonymous true", "allow_everything true")
    broken.write_text(text)
    with pytest.raises(ContenderError) as caught:
        start_contender(str(broken), "stock", tmp_path / "run")
    assert caught.value.exit_code is ExitCode.BROKER_FAILED
    assert "mosquitto did not start: it ended with status" in caught.value.message
    assert "allow_everything" in caught.value.message
    assert "last lines" in caught.value.hint


def test_a_broker_that_never_answers_is_ended_and_told(tmp_path: Path) -> None:
    deaf = tmp_path / "deaf.yaml"
    text = (SPECS / "amqtt.yaml").read_text()
    text = text.replace("-m, amqtt.scripts.broker_script", '-c, "import time; time.sleep(600)"').replace(
        "within_s: 30", "within_s: 0.3"
    )
    deaf.write_text(text)
    with pytest.raises(ContenderError, match=r"not ready after 0\.3 s"):
        start_contender(str(deaf), "stock", tmp_path / "run")


@pytest.mark.parametrize(("name", "which"), [("amqtt", "mqtt"), ("acme-onem2m", "http"), ("acme-onem2m", "coap")])
def test_a_port_somebody_else_took_is_given_up_for_another(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, which: str
) -> None:
    must_be_here(name)
    taken = socket.create_server(("127.0.0.1", 0))
    number = taken.getsockname()[1]
    datagrams = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    datagrams.bind(("127.0.0.1", number))
    honest = ports_module.HeldPorts.__init__
    tries = []

    def first_a_taken_one(self: ports_module.HeldPorts, names: Any, host: str) -> None:
        honest(self, names, host)
        tries.append(self)
        if len(tries) == 1:
            self.numbers[which] = number

    monkeypatch.setattr(ports_module.HeldPorts, "__init__", first_a_taken_one)
    with taken, datagrams, start_contender(name, "stock", tmp_path) as running:
        assert len(tries) == 2
        assert number not in {parse_broker_url(url, key=key).port for key, url in running.endpoints.items()}


def test_ports_that_stay_taken_end_in_an_error_that_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    taken = socket.create_server(("127.0.0.1", 0))
    honest = ports_module.HeldPorts.__init__

    def always_a_taken_one(self: ports_module.HeldPorts, names: Any, host: str) -> None:
        honest(self, names, host)
        self.numbers["mqtt"] = taken.getsockname()[1]

    monkeypatch.setattr(ports_module.HeldPorts, "__init__", always_a_taken_one)
    with taken, pytest.raises(BattleError) as caught:
        start_contender("amqtt", "stock", tmp_path)
    assert "Something else listens" in caught.value.hint


@dataclass(frozen=True)
class Certificates:
    ca: Path
    server: tuple[Path, Path]
    client: tuple[Path, Path]


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    authority = Authority(tmp_path_factory.mktemp("certificates"))
    return Certificates(authority.path, authority.sign("server", server=True), authority.sign("client"))


@pytest.mark.parametrize("name", [contender.name for contender in load_contenders() if contender.tls])
def test_tls_lets_in_those_who_trust_it_and_plain_endpoints_stay(
    name: str, tmp_path: Path, certificates: Certificates, peers: Callable[..., Peer]
) -> None:
    must_be_here_once_more(name)
    tls = TlsServerFiles(*certificates.server)
    with start_contender(name, "stock", tmp_path, tls=tls) as running:
        secure = [transport for transport in running.endpoints if transport in ("tls", "wss")]
        for transport in [*secure, "tcp"]:
            peer = peers(running, transport, ca=certificates.ca if transport in secure else None)
            peer.subscribe("contract/tls", 1)
            peer.publish("contract/tls", transport.encode(), 1)
            assert peer.next().payload == transport.encode()
            peer.client.disconnect()


@pytest.mark.parametrize("name", [contender.name for contender in load_contenders() if contender.tls])
def test_mutual_tls_refuses_those_without_a_certificate(
    name: str, tmp_path: Path, certificates: Certificates, peers: Callable[..., Peer]
) -> None:
    must_be_here_once_more(name)
    tls = TlsServerFiles(*certificates.server, client_ca=certificates.ca)
    with start_contender(name, "stock", tmp_path, tls=tls) as running:
        peers(running, "tls", ca=certificates.ca, certificate=certificates.client)
        with pytest.raises((OSError, queue.Empty)):
            peers(running, "tls", ca=certificates.ca, wait_s=20)
