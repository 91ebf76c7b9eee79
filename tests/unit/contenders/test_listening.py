"""The processes behind the URL of a broker that somebody else runs on this machine are found, or it is said why not."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import sys
from collections import namedtuple
from collections.abc import Callable, Iterator

import psutil
import pyarrow.parquet as pq
import pytest

from battlebrokers.contenders import listening
from battlebrokers.contenders.broker_url import parse_broker_url
from battlebrokers.contenders.lifecycle import start_contender
from battlebrokers.contenders.listening import Listening, find_listening
from battlebrokers.run.hosting import sampler_of
from battlebrokers.tables import RESOURCES

SERVE = (
    "import socket, sys, time\n"
    "kind, address, port = sys.argv[1:]\n"
    "family = socket.AF_INET6 if ':' in address else socket.AF_INET\n"
    "s = socket.socket(family, {'tcp': socket.SOCK_STREAM, 'udp': socket.SOCK_DGRAM}[kind])\n"
    "if family == socket.AF_INET6: s.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)\n"
    "s.bind((address, int(port)))\n"
    "s.listen() if kind == 'tcp' else None\n"
    "print(s.getsockname()[1], flush=True); time.sleep(600)\n"
)
Serve = Callable[..., tuple[int, int]]


@pytest.fixture
def serve() -> Iterator[Serve]:
    """A function that starts a process which listens; it gives its id and port."""
    started: list[subprocess.Popen[str]] = []

    def begin(address: str, kind: str = "tcp", port: int = 0, before: tuple[str, ...] = ()) -> tuple[int, int]:
        words = [*before, sys.executable, "-c", SERVE, kind, address, str(port)]
        process = subprocess.Popen(words, stdout=subprocess.PIPE, text=True)
        started.append(process)
        assert process.stdout is not None
        return process.pid, int(process.stdout.readline())

    yield begin
    for process in started:
        process.kill()
        process.communicate()


@pytest.mark.parametrize(
    ("bound", "host", "kind"),
    [
        ("127.0.0.1", "127.0.0.1", "tcp"),
        ("127.0.0.1", "localhost", "tcp"),
        ("0.0.0.0", "127.0.0.1", "tcp"),
        ("::1", "[::1]", "tcp"),
        ("::", "127.0.0.1", "tcp"),
        ("127.0.0.1", "127.0.0.1", "udp"),
    ],
)
def test_who_listens_on_loopback_is_found(serve: Serve, bound: str, host: str, kind: str) -> None:
    pid, port = serve(bound, kind)
    scheme = "mqtt" if kind == "tcp" else "udp"
    assert find_listening(parse_broker_url(f"{scheme}://{host}:{port}")).pids == (pid,)


def test_another_process_at_the_same_port_of_another_address_is_not_the_broker(serve: Serve) -> None:
    pid, port = serve("127.0.0.1")
    serve("127.0.0.2", port=port)
    assert find_listening(parse_broker_url(f"mqtt://127.0.0.1:{port}")).pids == (pid,)


def test_ourselves_are_no_broker() -> None:
    with socket.create_server(("127.0.0.1", 0)) as ours:
        found = find_listening(parse_broker_url(f"mqtt://127.0.0.1:{ours.getsockname()[1]}"))
    assert (found.pids, found.reason) == ((), "it is this very process that listens there")


def test_a_process_of_another_user_is_told_as_one_that_may_not_be_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    connection = namedtuple("connection", "status laddr raddr pid")  # what psutil gives to who is not root
    unseen = connection(psutil.CONN_LISTEN, ("127.0.0.1", 1883), (), None)
    monkeypatch.setattr(listening.psutil, "net_connections", lambda kind: [unseen])
    found = find_listening(parse_broker_url("mqtt://127.0.0.1"))
    assert not found.pids
    assert "belongs to another user" in found.reason


@pytest.mark.parametrize("url", ["mqtt://192.0.2.1:1883", "loopback://"])
def test_a_broker_on_another_machine_is_nobody_here(url: str) -> None:
    assert find_listening(parse_broker_url(url)) == Listening()


@pytest.mark.root
@pytest.mark.skipif(os.geteuid() != 0 or shutil.which("ip") is None, reason="network namespaces need root and `ip`")
def test_a_broker_in_another_network_of_this_machine_is_found(serve: Serve) -> None:
    name, far = f"bbl{os.getpid()}", "198.18.77.2"

    def ip(*words: str) -> None:
        subprocess.run(["ip", *words], check=True, capture_output=True)

    try:
        ip("netns", "add", name)
        ip("-n", name, "addr", "add", f"{far}/32", "dev", "lo")
        ip("-n", name, "link", "set", "lo", "up")
    except subprocess.CalledProcessError:
        subprocess.run(["ip", "netns", "del", name], check=False, capture_output=True)
        pytest.skip("network namespaces cannot be made here")
    try:
        pid, port = serve("0.0.0.0", before=("ip", "netns", "exec", name))
        assert find_listening(parse_broker_url(f"mqtt://{far}:{port}")).pids == (pid,)
        assert find_listening(parse_broker_url(f"mqtt://198.18.77.3:{port}")) == Listening()
    finally:
        subprocess.run(["ip", "netns", "del", name], check=False, capture_output=True)


@pytest.mark.broker
def test_a_broker_given_by_its_url_is_sampled_as_the_contender(require_broker, tmp_path) -> None:
    require_broker("mosquitto")
    with start_contender("mosquitto", "tuned", tmp_path / "broker") as mosquitto:
        assert mosquitto.process is not None
        external = start_contender(mosquitto.endpoints["tcp"], "tuned", tmp_path / "none")
        assert dict(external.services) == {"mosquitto": mosquitto.service_pids()["mosquitto"]}
        sampling = sampler_of(external, os.getpid(), tmp_path, lambda: 1)
        sampling.start()
        sampling.stop()
    rows = [row for file in (tmp_path / RESOURCES.folder).glob("*.parquet") for row in pq.read_table(file).to_pylist()]
    assert {(row["service"], row["role"]) for row in rows} >= {("mosquitto", "contender")}
