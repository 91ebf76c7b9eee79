"""Every way a contender may run: with others beside it, elsewhere, asked over HTTP or CoAP, in a container."""

from __future__ import annotations

import asyncio
import shutil
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest

from battlebrokers.contenders.availability import Available, Missing, availability, container_engine
from battlebrokers.contenders.lifecycle import start_contender, start_described
from battlebrokers.contenders.reader import SPECS, find_contender, parse_contender
from battlebrokers.errors import ContenderError, EnvironmentNotReady, UsageError
from battlebrokers.record.wire import Wire
from battlebrokers.run.trial import Trial
from support.namespaces import network_namespace

pytestmark = pytest.mark.broker

NOTICEBOARD = Path(__file__).parents[1] / "support" / "noticeboard.py"

BOARD = f"""\
name: board
about: A small server of the standard library.
needs: {{python: {{executable: "{sys.executable}"}}}}
ports: [http]
run: {{command: ["${{python}}", "{NOTICEBOARD}", "${{host}}", "${{port.http}}"]}}
endpoints: {{http: "http://${{host}}:${{port.http}}"}}
ready: {{get: /status, is: 200, within_s: 20}}
speak: {{http: {{publish: {{post: "/boards/x/notes", json: {{note: "${{payload}}"}}}}}}}}
"""


def listens(port: str) -> bool:
    with socket.socket() as tried:
        return tried.connect_ex(("127.0.0.1", int(port))) == 0


@pytest.fixture
def must_have() -> Callable[[str], None]:
    def program(name: str) -> None:
        if shutil.which(name) is None:
            pytest.skip(f"{name} is not installed")

    return program


def test_a_server_without_mqtt_is_asked_over_http(tmp_path: Path) -> None:
    with start_described(parse_contender(BOARD, "board.yaml"), "stock", tmp_path) as running:
        assert running.alive()
        assert running.reachable()
        assert running.known == {"host": "127.0.0.1", "port.http": running.endpoints["http"].rpartition(":")[2]}
        assert set(running.scripts) == {"http"}
        assert [service for service, pids in running.services if pids] == ["board"]
    assert not running.reachable(0.5)
    assert running.exit_status == 0


def test_a_wrong_status_is_not_ready_and_told(tmp_path: Path) -> None:
    text = BOARD.replace("is: 200, within_s: 20", "is: 204, within_s: 1")
    with pytest.raises(ContenderError, match="it answered 200 to GET /status"):
        start_described(parse_contender(text, "board.yaml"), "stock", tmp_path)


def test_a_server_of_datagrams_is_asked_by_a_coap_ping(tmp_path: Path, must_have: Callable[[str], None]) -> None:
    must_have("coap-server-notls")
    text = """\
name: things
about: libcoap's example server.
needs: {coap: {executable: coap-server-notls}}
ports: [coap]
run: {command: ["${coap}", -A, "${host}", -p, "${port.coap}", -d, "100"]}
endpoints: {coap: "coap://${host}:${port.coap}"}
stop: {signal: INT}
ready: {within_s: 15}
"""
    with start_described(parse_contender(text, "things.yaml"), "stock", tmp_path) as running:
        assert running.alive()
    deaf = text.replace('["${coap}", -A, "${host}", -p, "${port.coap}", -d, "100"]', '["${coap}", -p, "${port.coap}9"]')
    with pytest.raises(ContenderError, match="did not start"):
        start_described(parse_contender(deaf.replace("within_s: 15", "within_s: 1"), "things.yaml"), "stock", tmp_path)


def test_links_a_broker_makes_lead_nobody_out_of_its_folder(tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    for name in ("a.log", "board.conf", "c.log"):
        (outside / name).write_text("precious")
    links = (
        f"mkdir -p logs && ln -sfn {outside} logs/there && ln -sf {outside}/a.log logs/a.log && "
        f"ln -sf {outside}/board.conf board.conf && ln -sf {outside}/c.log c.log && echo own > logs/own.log"
    )
    started = f"""command: [/bin/sh, -c, '{links}; exec "$0" "$@"', "${{python}}","""
    text = BOARD.replace('command: ["${python}",', started)
    text += 'files: {board.conf: "ours"}\nlogs: [logs/*.log, logs/*/*.log, c.log]\n'
    contender = parse_contender(text, "board.yaml")
    for _ in range(2):  # what the first start left is in the way of the second
        with start_described(contender, "stock", tmp_path / "run") as running:
            assert set(running.named_logs()) == {"board-own.log", "board-output.log"}
            assert "precious" not in "".join(running.last_lines(100))
    assert {path.name: path.read_text() for path in outside.iterdir()} == dict.fromkeys(
        ("a.log", "board.conf", "c.log"), "precious"
    )


def test_a_program_that_cannot_be_started_is_told(tmp_path: Path) -> None:
    text = BOARD.replace('run: {command: ["${python}",', 'run: {env: {A: "a\\0b"}, command: ["${python}",')
    with pytest.raises(ContenderError, match="cannot be started: embedded null byte"):
        start_described(parse_contender(text, "board.yaml"), "stock", tmp_path)


def test_others_run_beside_it_and_end_with_it(tmp_path: Path, must_have: Callable[[str], None]) -> None:
    must_have("redis-server")
    must_have("mosquitto")
    text = (
        BOARD
        + """\
beside:
  mosquitto: {contender: mosquitto}
  redis: {executable: redis-server, command: ["${redis}", --port, "${port.redis}", --bind, "${host}", --save, ""]}
files: {ports.txt: "mosquitto ${mosquitto.mqtt}, redis ${port.redis}, board ${port.http}\\n"}
"""
    )
    seen: list[str] = []

    class Listener:
        def before_start(self, wires: list[Wire]) -> None:
            (wire,) = wires
            seen.append(wire.service)
            assert not any(listens(str(port)) for port in wire.ports), "it is told of before it is started"

        def after_start(self) -> None:
            seen.append("up")

        def called_off(self) -> None:
            seen.append("called off")

    contender = parse_contender(text, "board.yaml")
    with start_described(contender, "stock", tmp_path, listener=Listener()) as running:  # type: ignore[arg-type]
        ports = [running.known[name] for name in ("mosquitto.mqtt", "port.redis", "port.http")]
        assert all(listens(port) for port in ports)
        assert f"mosquitto {ports[0]}, redis {ports[1]}" in running.config_text
        assert {service for service, pids in running.services if pids} == {"board", "mosquitto", "redis"}
        assert seen == ["mosquitto", "up", "redis", "up", "board", "up"]
        everyone = [psutil.Process(pid) for _, pids in running.services for pid in pids]
        running.beside[1].kill()
        assert not running.alive()
    assert not [process for process in everyone if process.is_running()]
    assert not any(listens(port) for port in ports)


def test_when_it_does_not_start_nobody_is_left_beside_it(tmp_path: Path, must_have: Callable[[str], None]) -> None:
    must_have("mosquitto")
    text = (BOARD + "beside: [mosquitto]\n").replace(str(NOTICEBOARD), "/nowhere.py")
    with pytest.raises(ContenderError, match="did not start"):
        start_described(parse_contender(text, "board.yaml"), "stock", tmp_path)
    commands = [" ".join(process.info["cmdline"] or ()) for process in psutil.process_iter(["cmdline"])]
    assert [command for command in commands if str(tmp_path) in command] == []


@pytest.fixture
def elsewhere(tmp_path: Path) -> Iterator[tuple[Path, str]]:
    """A server somebody else runs, and a file that knows its port."""
    with start_described(parse_contender(BOARD, "board.yaml"), "stock", tmp_path / "theirs") as theirs:
        port = theirs.known["port.http"]
        lines = [line for line in BOARD.splitlines() if not line.startswith(("needs", "ports", "run"))]
        path = tmp_path / "theirs.yaml"
        path.write_text("\n".join([*lines, f"ports: {{http: {port}}}", "run: {external: true}", ""]))
        yield path, port


def test_a_contender_may_be_run_by_somebody_else(elsewhere: tuple[Path, str], tmp_path: Path) -> None:
    path, port = elsewhere
    for name in (str(path), f"{path}@127.0.0.1"):
        with start_contender(name, "stock", tmp_path / "ours") as running:
            assert running.profile == "external"
            assert running.endpoints == {"http": f"http://127.0.0.1:{port}"}
            [(service, pids)] = running.services
            assert service == "board"
            assert port in psutil.Process(pids[0]).cmdline(), "found by the port it listens on"
            assert running.process is None
            assert set(running.scripts) == {"http"}
    assert listens(port)
    assert isinstance(availability(find_contender(str(path))), Available)


def test_one_that_is_not_there_is_told_with_its_address(
    elsewhere: tuple[Path, str], tmp_path: Path, free_port: int
) -> None:
    path, port = elsewhere
    path.write_text(path.read_text().replace(port, str(free_port)))
    with pytest.raises(ContenderError, match=f"board at http://127.0.0.1:{free_port} cannot be reached"):
        start_contender(str(path), "stock", tmp_path / "ours")


def test_what_would_be_a_container_here_may_be_elsewhere(elsewhere: tuple[Path, str], tmp_path: Path) -> None:
    path, port = elsewhere
    path.write_text(path.read_text().replace("{external: true}", '{container: "vendor/board:1"}'))
    with start_contender(f"{path}@127.0.0.1", "stock", tmp_path / "ours") as running:
        assert (running.profile, running.endpoints) == ("external", {"http": f"http://127.0.0.1:{port}"})


def test_a_host_is_only_for_what_somebody_else_runs(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"amqtt is started here, and not on 10\.0\.0\.5:1883") as caught:
        start_contender("amqtt@10.0.0.5:1883", "stock", tmp_path)
    assert "run: {external: true}" in caught.value.hint
    assert "10.0.0.5" not in caught.value.hint, "a URL made of a host that has a port already is none"


@pytest.mark.root
def test_a_contender_may_run_in_a_network_namespace(tmp_path: Path, must_have: Callable[[str], None]) -> None:
    must_have("mosquitto")
    must_have("ip")
    with network_namespace() as (name, address, _):
        text = (SPECS / "mosquitto.yaml").read_text(encoding="utf-8")
        assert text.count("run: {command:") == 1
        text = text.replace("run: {command:", f"run: {{namespace: {name}, host: {address}, command:")
        described = parse_contender(text, "mosquitto.yaml")
        with start_described(described, "stock", tmp_path) as running:
            port = running.known["port.mqtt"]
            assert running.endpoints["tcp"] == f"mqtt://{address}:{port}"
            [pid] = running.service_pids()["mosquitto"]
            assert Path(f"/proc/{pid}/ns/net").stat().st_ino == Path(f"/run/netns/{name}").stat().st_ino
            assert not listens(port)
            findings = asyncio.run(Trial(running, described).run())
            assert [finding for finding in findings if finding.holds is False] == []
            assert sum(finding.what == "64 KiB" for finding in findings) == 2
        assert not running.reachable(0.5)
        left = subprocess.run(["ip", "netns", "pids", name], capture_output=True, text=True, check=True).stdout
        assert left == ""


def test_a_container_needs_an_engine_that_runs(tmp_path: Path) -> None:
    text = """\
name: boxed
about: In a container.
run: {container: "eclipse-mosquitto:2"}
ports: {mqtt: 1883}
endpoints: {tcp: "mqtt://${host}:${port.mqtt}"}
"""
    contender = parse_contender(text, "boxed.yaml")
    if container_engine() is not None:
        pytest.skip("here is an engine, and what it can fetch nobody knows")
    assert availability(contender) == Missing(
        "a running Docker or Podman", "Install and start Docker, or install Podman."
    )
    with pytest.raises(EnvironmentNotReady, match="a running Docker or Podman is missing"):
        start_described(contender, "stock", tmp_path)
