"""Mosquitto on the same network: the broker at a host of the second switch, MQTT 3.1.1 at QoS 0 from the same hosts.

Connections are made here; what flows over them afterwards is frames of one size, which the load program handles.
"""

from __future__ import annotations

import shutil
import socket
import time
from importlib.resources import files

from battlebrokers.errors import EnvironmentNotReady
from battlebrokers.sdn.lab.inside import in_namespace
from benchmarks.own_network import CONGESTION_CONTROL
from benchmarks.sdn_network import BROKER, PUBLISHER, BenchNetwork
from benchmarks.sdn_traffic import PAYLOAD_BYTES, Target, Traffic

_TOPIC = b"bench"
_PORT = 1883
_ATTEMPTS = 100
_HEAD = b"\0" + bytes([len(_TOPIC)]) + _TOPIC
PREFIX = b"\x30" + bytes([len(_HEAD) + PAYLOAD_BYTES]) + _HEAD
"""How every PUBLISH begins; its length fits in one byte."""
_SUBSCRIBE = b"\x82" + bytes([len(_HEAD) + 3]) + b"\0\1" + _HEAD + b"\0"
_UNSUBSCRIBE = b"\xa2" + bytes([len(_HEAD) + 2]) + b"\0\1" + _HEAD
_SUBACK, _UNSUBACK = b"\x90\x03\0\1\0", b"\xb0\x02\0\1"


class MqttNetwork:
    """Mosquitto up and running, and a connection for every host."""

    def __init__(self, network: BenchNetwork) -> None:
        self._network = network
        program = shutil.which("mosquitto", path="/usr/sbin:/usr/local/sbin:/usr/bin:/usr/local/bin")
        if program is None:
            raise EnvironmentNotReady("mosquitto is not installed", hint="apt-get install mosquitto")
        network.plain()
        address = network.host(BROKER).ipv4
        tuned = files("battlebrokers.contenders.specs").joinpath("mosquitto/tuned.conf").read_text(encoding="utf-8")
        settings = network.folder / "mosquitto.conf"
        settings.write_text(f"user root\nallow_anonymous true\nlistener {_PORT} {address}\n{tuned}")
        # Hosts begin with the machine's; here they have what the network around them was given.
        control = f"net.ipv4.tcp_congestion_control={CONGESTION_CONTROL.read_text().strip()}"
        for name in network.topology.hosts:
            network.lab.switching.run("ip", "netns", "exec", network.namespace(name), "sysctl", "-qw", control)
        network.run_inside(BROKER, [program, "-c", str(settings)], network.folder / "mosquitto.log")
        self._publisher = self._connected(PUBLISHER)
        self._subscribers: list[socket.socket] = []

    def traffic(self, subscribers: int) -> Traffic:
        """The publisher, and so many subscribers."""
        self._network.plain()
        while len(self._subscribers) < subscribers:
            door = self._connected(self._network.subscribers[len(self._subscribers)])
            door.sendall(_SUBSCRIBE)
            _expect(door, _SUBACK)
            self._subscribers.append(door)
        while len(self._subscribers) > subscribers:
            self._subscribers.pop().close()
        return Traffic([Target(self._publisher)], self._subscribers, PREFIX)

    def joined_ns(self, name: str, trials: int) -> list[tuple[int, int, int]]:
        """For each time a host joins under load: when it asked, when it was answered, when the first copy came."""
        found = []
        frame = len(PREFIX) + PAYLOAD_BYTES
        with self._connected(name) as door:
            for _ in range(trials):
                asked = time.monotonic_ns()
                door.sendall(_SUBSCRIBE)
                _expect(door, _SUBACK)
                answered = time.monotonic_ns()
                _exactly(door, frame)
                first = time.monotonic_ns()
                door.sendall(_UNSUBSCRIBE)
                while (kind := _exactly(door, 1)) == PREFIX[:1]:
                    _exactly(door, frame - 1)
                assert kind + _exactly(door, len(_UNSUBACK) - 1) == _UNSUBACK
                found.append((asked, answered, first))
        return found

    def close(self) -> None:
        """Hang up; the broker ends with the network."""
        for door in (self._publisher, *self._subscribers):
            door.close()

    def _connected(self, name: str) -> socket.socket:
        at = (self._network.host(BROKER).ipv4, _PORT)
        identity = f"{name}-{time.monotonic_ns()}".encode()
        for attempt in range(_ATTEMPTS):
            try:
                door = in_namespace(self._network.namespace(name), lambda: socket.create_connection(at, 5))
            except (OSError, EnvironmentNotReady):
                # It has only just been started.
                if attempt == _ATTEMPTS - 1:
                    raise
                time.sleep(0.05)
            else:
                break
        door.settimeout(10)
        door.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        body = b"\0\4MQTT\4\2\0\0" + len(identity).to_bytes(2, "big") + identity
        door.sendall(b"\x10" + bytes([len(body)]) + body)
        _expect(door, b"\x20\2\0\0")
        # The load program waits where it writes; a limit of time is Python's own.
        door.settimeout(None)
        return door


def _exactly(door: socket.socket, count: int) -> bytes:
    door.settimeout(10)
    got = b""
    while len(got) < count:
        more = door.recv(count - len(got))
        if not more:
            raise EnvironmentNotReady("mosquitto hung up")
        got += more
    door.settimeout(None)
    return got


def _expect(door: socket.socket, answer: bytes) -> None:
    told = _exactly(door, len(answer))
    if told != answer:
        raise EnvironmentNotReady(f"mosquitto answered {told.hex()} instead of {answer.hex()}")
