"""Captures of real brokers: complete from the first packet, in namespaces, with limits, and never in a run's way."""

from __future__ import annotations

import json
import os
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from battlebrokers.contenders.lifecycle import start_described
from battlebrokers.contenders.reader import SPECS, parse_contender
from battlebrokers.record.capture_tool import CaptureTool, Limits, ToolName, find_tool
from battlebrokers.record.wire import Wire
from battlebrokers.run import capturing as capturing_module
from battlebrokers.run.capturing import Capturing
from battlebrokers.tables import PUBLISHES
from battlebrokers.tables.run_folder import RunFolder
from support.namespaces import network_namespace
from support.packets import require_capturing, tshark
from support.runs import bb, run_for_real, start_bb, write_scenario
from support.waiting import until

pytestmark = [pytest.mark.broker, pytest.mark.root, pytest.mark.slow]

TALK = """
name: talk
fleets:
  sensor: {devices: 5, topic: "talk/{device}", payload: {random_bytes: 64}, every: 40/s, qos: 1}
clients:
  listener: {count: 1, subscribe: ["talk/#"], qos: 1}
phases: {measure: 3s, drain: 5s, quiet: 1s}
"""
WHOLE = Limits()
SYN_ALONE = "tcp.flags.syn==1 && tcp.flags.ack==0"


@pytest.fixture(autouse=True)
def _capturing() -> None:
    require_capturing()


@pytest.fixture
def namespace() -> Iterator[tuple[str, str, str]]:
    """Its name, its address, our end of the veth."""
    with network_namespace() as made:
        yield made


def files_of(folder: RunFolder, service: str) -> list[Path]:
    facts = next(each for each in folder.read_manifest().captures if each.service == service)
    return [folder.path / name for name in facts.files]


def published(folder: RunFolder) -> int:
    files = (folder.path / PUBLISHES.folder).glob("*.parquet")
    return sum(pq.ParquetFile(file).metadata.num_rows for file in files)


def publishes_towards(files: list[Path], port: int) -> int:
    rows = tshark(files, f"mqtt.msgtype==3 && tcp.dstport=={port}", "mqtt.msgtype", ports=[port])
    return sum(kind == "3" for row in rows for kind in row[0].split(","))


def test_a_run_is_captured_from_its_first_syn_to_its_last_publish(tmp_path, require_broker):
    require_broker("mosquitto")
    folder = run_for_real(write_scenario(tmp_path, TALK), "mosquitto", tmp_path / "runs", capture=WHOLE)
    manifest = folder.read_manifest()
    facts = manifest.captures[0]
    port = int(manifest.contender.endpoints["tcp"].rsplit(":", 1)[1])
    assert (facts.service, facts.interface, facts.missing) == ("mosquitto", "lo", "")
    assert f"127.0.0.1:{port}" in facts.addresses
    assert facts.files == ["recorded/captures/mosquitto-00001.pcapng"]
    assert facts.dropped == 0
    assert facts.before_start
    first = tshark(files_of(folder, "mosquitto"), "frame.number==1", "tcp.flags.syn", "tcp.dstport", "tcp.flags.ack")
    assert first == [["1", str(port), "0"]]
    assert publishes_towards(files_of(folder, "mosquitto"), port) == published(folder) > 500
    everything = tshark(files_of(folder, "mosquitto"), "tcp", "frame.time_epoch", "tcp.analysis.lost_segment")
    assert len(everything) == facts.packets
    assert not any(len(row) > 1 and row[1] for row in everything)
    assert any(not row[0].endswith("000") for row in everything), "stamps are in nanoseconds"
    assert "Capturing on" in (folder.logs / "capture-mosquitto.log").read_text()
    assert (folder.logs / "mosquitto-output.log").exists()


@pytest.fixture(params=["dumpcap", "tcpdump"])
def tool(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Either of the programs, as the only one here."""
    use_only(request.param, monkeypatch)
    return str(request.param)


def use_only(name: ToolName, monkeypatch: pytest.MonkeyPatch) -> None:
    path = shutil.which(name)
    if path is None:
        pytest.skip(f"{name} is not installed")
    settle_s = {"dumpcap": 0.6, "tcpdump": 1.5}[name]
    monkeypatch.setattr(capturing_module, "find_tool", lambda **_: CaptureTool(name, path, settle_s))


def test_tcpdump_does_it_too(tmp_path, require_broker, monkeypatch):
    require_broker("mosquitto")
    use_only("tcpdump", monkeypatch)
    folder = run_for_real(write_scenario(tmp_path, TALK), "mosquitto", tmp_path / "runs", capture=WHOLE)
    manifest = folder.read_manifest()
    port = int(manifest.contender.endpoints["tcp"].rsplit(":", 1)[1])
    assert manifest.captures[0].files == ["recorded/captures/mosquitto-00001.pcap"]
    assert manifest.captures[0].replaced_files == 0
    assert publishes_towards(files_of(folder, "mosquitto"), port) == published(folder)


def test_a_ring_keeps_the_newest_and_says_what_is_gone(tmp_path, require_broker, tool):
    require_broker("mosquitto")
    said: list[str] = []
    big = TALK.replace("random_bytes: 64", "random_bytes: 30000")
    folder = run_for_real(
        write_scenario(tmp_path, big), "mosquitto", tmp_path / "runs", capture=Limits(total_bytes=4_000_000),
        say=said.append,
    )  # fmt: skip
    facts = folder.read_manifest().captures[0]
    assert len(facts.files) == 4
    assert facts.replaced_files > 0
    assert (
        facts.files[0]
        == f"recorded/captures/mosquitto-{facts.replaced_files + 1:05d}.{'pcapng' if tool == 'dumpcap' else 'pcap'}"
    )
    # Nothing is missing but what was replaced: what came before the first packet that is kept.
    stamps = [[float(row[0]) for row in tshark([folder.path / name], "", "frame.time_epoch")] for name in facts.files]
    assert all(stamps)
    assert all(one[-1] <= next_one[0] for one, next_one in pairwise(stamps))
    assert facts.packets is not None
    assert sum(map(len, stamps)) < facts.packets
    assert sum((folder.path / name).stat().st_size for name in facts.files) < 5_000_000
    assert "larger than its limit" in "\n".join(said)


def test_a_snap_length_keeps_headers_only(tmp_path, require_broker):
    require_broker("mosquitto")
    folder = run_for_real(write_scenario(tmp_path, TALK), "mosquitto", tmp_path / "runs", capture=Limits(snap_bytes=96))
    lengths = tshark(files_of(folder, "mosquitto"), "tcp.len>0", "frame.cap_len", "frame.len")
    assert max(int(kept) for kept, _ in lengths) == 96 < max(int(size) for _, size in lengths)


def test_a_broker_in_a_namespace_is_captured_there(tmp_path, require_broker, namespace):
    require_broker("mosquitto")
    name, address, _ = namespace
    spec = (SPECS / "mosquitto.yaml").read_text().replace("${host}", address)
    spec = spec.replace(
        'command: ["${mosquitto}", -c', f'as_root: true, command: [ip, netns, exec, {name}, "${{mosquitto}}", -c'
    )
    spec = spec.replace('{mosquitto: ["*"]}', f'{{mosquitto: {{processes: ["*"], namespace: {name}}}}}')
    mine = tmp_path / "mine.yaml"
    mine.write_text(spec)
    folder = run_for_real(write_scenario(tmp_path, TALK), str(mine), tmp_path / "runs", capture=WHOLE)
    manifest = folder.read_manifest()
    facts = manifest.captures[0]
    port = int(manifest.contender.endpoints["tcp"].rsplit(":", 1)[1])
    assert (facts.namespace, facts.interface) == (name, "any")
    assert f"{address}:{port}" in facts.addresses
    files = files_of(folder, "mosquitto")
    assert tshark(files, "frame.number==1", "tcp.flags", "tcp.dstport") == [["0x0002", str(port)]]
    assert publishes_towards(files, port) == published(folder) > 500


def test_a_broker_by_url_is_captured_by_its_address(tmp_path, mosquitto):
    folder = run_for_real(write_scenario(tmp_path, TALK), mosquitto.endpoints["tcp"], tmp_path / "runs", capture=WHOLE)
    facts = folder.read_manifest().captures[0]
    port = int(mosquitto.endpoints["tcp"].rsplit(":", 1)[1])
    assert (facts.service, facts.addresses) == ("broker", [f"127.0.0.1:{port}"])
    assert facts.filter == f"(host 127.0.0.1) and (port {port})"
    assert publishes_towards(files_of(folder, "broker"), port) == published(folder)


def test_without_a_program_the_run_goes_on_and_says_why(tmp_path, require_broker, monkeypatch):
    require_broker("mosquitto")
    monkeypatch.setenv("PATH", str(tmp_path))
    said: list[str] = []
    folder = run_for_real(
        write_scenario(tmp_path, TALK), "mosquitto", tmp_path / "runs", capture=WHOLE, say=said.append
    )
    manifest = folder.read_manifest()
    assert manifest.state == "finished"
    assert published(folder) > 500
    assert len(said) == 1
    assert said[0].startswith("mosquitto is not captured: neither dumpcap nor tcpdump is installed; fix: as root: apt")
    assert manifest.captures[0].files == []
    assert "apt-get install" in manifest.captures[0].missing


def test_a_dead_broker_leaves_a_readable_capture_and_no_program(tmp_path, require_broker):
    require_broker("mosquitto")
    pids: list[int] = []

    def kill_it(seen) -> None:
        if seen.phase == "measure" and not pids:
            manifest = RunFolder(next((tmp_path / "runs").iterdir())).read_manifest()
            pids.extend(manifest.contender.services[0].pids)
            os.kill(pids[0], signal.SIGKILL)

    folder = run_for_real(write_scenario(tmp_path, TALK), "mosquitto", tmp_path / "runs", capture=WHOLE, watch=kill_it)
    assert folder.read_manifest().state == "broker-failed"
    assert len(tshark(files_of(folder, "mosquitto"), SYN_ALONE, "frame.number")) >= 6


@pytest.mark.spark
def test_a_wire_that_is_not_there_changes_nothing_but_a_warning(tmp_path, require_broker):
    require_broker("mosquitto")
    write_scenario(tmp_path, TALK)
    spec = (SPECS / "mosquitto.yaml").read_text()
    nowhere = '{mosquitto: {processes: ["*"], interface: nowhere0}}'
    (tmp_path / "mine.yaml").write_text(spec.replace('{mosquitto: ["*"]}', nowhere))
    result = bb("run", "scenario.yaml", "-b", "mine.yaml", "--trust", "--capture", "--json", "--no-html", cwd=tmp_path)
    assert result.code == {"PASS": 0, "FAIL": 10, "VOID": 6}[result.json()["verdict"]]
    assert "warning: mosquitto is not captured:" in result.err
    assert "`ip link` lists the interfaces" in result.err


@pytest.fixture
def talk(namespace, tmp_path) -> Iterator[tuple[str, str, str]]:
    """An echo server in a namespace: the namespace, our end of its veth, its address."""
    name, address, ours = namespace
    serve = (
        "import socket\n"
        "s = socket.create_server(('0.0.0.0', 7007)); print('up', flush=True)\n"
        "while True:\n c, _ = s.accept()\n while d := c.recv(65536): c.sendall(d)\n c.close()\n"
    )
    words = ["ip", "netns", "exec", name, "python3", "-c", serve]
    with subprocess.Popen(words, stdout=subprocess.PIPE) as server:
        assert server.stdout is not None
        server.stdout.readline()
        (tmp_path / "pid").write_text(str(server.pid))
        yield name, ours, address
        server.kill()


@pytest.fixture
def engine(tmp_path, monkeypatch) -> Path:
    """A `docker` that answers in the documented form about the echo server, once `running` exists; and its log."""
    program = tmp_path / "bin" / "docker"
    program.parent.mkdir()
    settings = '"HostConfig": {"NetworkMode": "bridge"}, "NetworkSettings": {"IPAddress": "10.9.9.9"}'
    program.write_text(
        f"#!/bin/sh\necho $1 >> {tmp_path}/asked\n"
        f"[ -e {tmp_path}/running ] || {{ echo no such container >&2; exit 1; }}\n"
        f'[ $1 = inspect ] && echo "[{{\\"State\\": {{\\"Pid\\": $(cat {tmp_path}/pid)}}, '
        + settings.replace('"', '\\"')
        + '}]"\nexit 0\n'
    )
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{program.parent}{os.pathsep}{os.environ['PATH']}")
    return tmp_path / "asked"


def capturing(tmp_path: Path, said: list[str] | None = None) -> Capturing:
    return Capturing(
        tmp_path / "captures", tmp_path / "logs", WHOLE, time.time_ns, [].append if said is None else said.append
    )


def test_those_beside_a_contender_are_captured_from_their_first_packet(tmp_path, require_broker):
    require_broker("mosquitto")
    if shutil.which("redis-server") is None:
        pytest.skip("redis-server is not installed")
    text = (SPECS / "mosquitto.yaml").read_text().replace("name: mosquitto", "name: mine") + (
        "beside:\n"
        "  redis: {executable: redis-server, command: "
        '["${redis}", --port, "${port.redis}", --bind, "${host}", --save, ""]}\n'
        "  mosquitto: {contender: mosquitto}\n"
    )
    captures = capturing(tmp_path)
    with start_described(parse_contender(text, "mine.yaml"), "tuned", tmp_path / "it", listener=captures) as running:
        ports = [running.known["port.redis"], running.known["mosquitto.mqtt"], running.known["port.mqtt"]]
    facts = captures.stop()
    assert [each.service for each in facts] == ["redis", "mosquitto", "mosquitto-2"]
    for each, port in zip(facts, ports, strict=True):
        assert (each.before_start, each.missing) == (True, "")
        assert f"127.0.0.1:{port}" in each.addresses
        # The first who ever calls is we, to see whether it answers.
        first = tshark([tmp_path / "captures" / each.files[0]], "frame.number==1", "tcp.flags", "tcp.dstport")
        assert first == [["0x0002", port]]


def test_what_did_not_start_leaves_no_capture_and_its_neighbours_keep_theirs(tmp_path):
    captures = capturing(tmp_path)
    captures.before_start([Wire("beside", (1,), ("127.0.0.1",), "lo")])
    captures.before_start([Wire("main", (2,), ("127.0.0.1",), "lo")])
    captures.called_off()
    captures.before_start([Wire("main", (3,), ("127.0.0.1",), "lo")])
    assert {each.service: each.addresses for each in captures.stop()} == {
        "beside": ["127.0.0.1:1"], "main": ["127.0.0.1:3"],
    }  # fmt: skip
    assert sorted(path.name for path in (tmp_path / "captures").iterdir()) == [
        "beside-00001.pcapng", "main-00001.pcapng",
    ]  # fmt: skip


class TestContainersWeStart:
    """Captured where they can be reached until they run, then on their veth."""

    OUTSIDE = Wire("box", (4711,), ("127.0.0.1",), "lo")
    INSIDE = Wire("box", (7007,), container="box")

    def test_the_veth_takes_over_as_soon_as_there_is_one(self, tmp_path, talk, engine):
        _, ours, address = talk
        (tmp_path / "running").touch()
        captures = capturing(tmp_path)
        captures.before_start([self.OUTSIDE])
        captures.inside(self.INSIDE)
        with socket.create_connection((address, 7007)) as client:
            client.sendall(b"hello")
            assert client.recv(100)
        [facts] = captures.stop()
        assert (facts.interface, facts.container, facts.addresses) == (ours, "box", ["10.9.9.9:7007"])
        assert facts.before_start is False, "what it said before it was held is missing"
        assert facts.files == ["box-00001.pcapng"]
        assert len(tshark([tmp_path / "captures" / facts.files[0]], SYN_ALONE, "tcp.dstport")) == 1
        asked = engine.read_text().split()
        assert (asked.count("pause"), asked.count("unpause"), asked[-1]) == (1, 1, "unpause")

    def test_one_that_cannot_be_looked_into_stays_where_it_was(self, tmp_path, talk, engine):
        said: list[str] = []
        captures = capturing(tmp_path, said)
        captures.before_start([self.OUTSIDE])
        captures.inside(self.INSIDE)  # no container runs
        (tmp_path / "running").touch()
        (tmp_path / "pid").write_text("999999999")  # and of this one there is no network here
        captures.inside(self.INSIDE)
        assert captures.running
        [facts] = captures.stop()
        assert (facts.interface, facts.container, facts.before_start) == ("lo", "", True)
        assert facts.files == ["box-00001.pcapng"]
        assert said == []
        assert engine.read_text().split()[-1] == "unpause"


class TestBbCapture:
    """Systems somebody else started."""

    def test_both_ends_of_a_veth_see_the_same_until_ctrl_c(self, tmp_path, talk):
        name, ours, address = talk
        running = start_bb(
            "capture", "-s", "inside=7007", "-s", "outside=7007", "--namespace", f"inside={name}",
            "-i", f"outside={ours}", "-o", "out", cwd=tmp_path, log=tmp_path / "log",
        )  # fmt: skip
        until(lambda: "capturing inside, outside" in (tmp_path / "log").read_text())
        with socket.create_connection((address, 7007)) as client:
            for _ in range(50):
                client.sendall(b"hello")
                assert client.recv(100)
        running.send_signal(signal.SIGINT)
        assert running.wait(60) == 0
        facts = {each["service"]: each for each in json.loads((tmp_path / "out" / "captures.json").read_text())}
        assert facts["inside"]["namespace"] == name
        assert facts["outside"]["interface"] == ours
        seen = {
            service: tshark([tmp_path / "out" / f for f in each["files"]], "tcp", "tcp.seq_raw", "tcp.ack_raw")
            for service, each in facts.items()
        }
        assert len(seen["inside"]) > 100
        assert sorted(seen["inside"]) == sorted(seen["outside"])

    def test_killed_it_leaves_a_readable_file_and_no_program(self, tmp_path, talk):
        name, _, address = talk
        running = start_bb(
            "capture", "-s", "inside=7007", "--namespace", name, "-o", "out", cwd=tmp_path, log=tmp_path / "log"
        )
        until(lambda: "capturing inside" in (tmp_path / "log").read_text())
        with socket.create_connection((address, 7007)) as client:
            client.sendall(b"hello")
            assert client.recv(100)
        file = next((tmp_path / "out").glob("inside_00001_*.pcapng"))
        empty = 500
        until(lambda: file.stat().st_size > empty)
        running.kill()
        running.wait(60)
        until(lambda: "Packets captured:" in (tmp_path / "out" / "capture-inside.log").read_text())
        assert len(tshark([file], SYN_ALONE, "tcp.dstport")) == 1

    def test_a_container_is_captured_on_its_veth(self, tmp_path, talk, engine):
        _, ours, address = talk
        (tmp_path / "running").touch()
        running = start_bb(
            "capture", "-s", "box=7007", "--container", "box", "-o", "out", cwd=tmp_path, log=tmp_path / "log"
        )
        until(lambda: "capturing box" in (tmp_path / "log").read_text())
        with socket.create_connection((address, 7007)) as client:
            client.sendall(b"hello")
            assert client.recv(100)
        running.send_signal(signal.SIGINT)
        assert running.wait(60) == 0
        [facts] = json.loads((tmp_path / "out" / "captures.json").read_text())
        assert (facts["interface"], facts["namespace"], facts["container"]) == (ours, "", "box")
        assert facts["addresses"] == ["10.9.9.9:7007"]
        assert len(tshark([tmp_path / "out" / facts["files"][0]], SYN_ALONE, "tcp.dstport")) == 1
        assert "pause" not in engine.read_text()

    def test_a_container_that_comes_later_is_held_until_its_capture_is_up(self, tmp_path, talk, engine):
        running = start_bb(
            "capture",
            "-s",
            "box",
            "--container",
            "box",
            "--seconds",
            "1",
            "-o",
            "out",
            cwd=tmp_path,
            log=tmp_path / "log",
        )
        until(lambda: engine.exists() and engine.read_text().count("inspect") > 3)
        (tmp_path / "running").touch()
        assert running.wait(60) == 0
        assert engine.read_text().split()[-3:] == ["pause", "inspect", "unpause"]
        [facts] = json.loads((tmp_path / "out" / "captures.json").read_text())
        assert facts["before_start"] is False
        assert facts["files"] == ["box-00001.pcapng"]

    def test_it_ends_by_itself_and_tells_in_json(self, tmp_path):
        result = bb("capture", "-s", "a=1", "-i", "lo", "--seconds", "1", "--out", "out", "--json", cwd=tmp_path)
        assert result.code == 0
        assert result.json()[0]["files"] == ["a-00001.pcapng"]
        assert result.json()[0]["before_start"] is False, "who runs the service, and since when, nobody told us"
        assert tshark([tmp_path / "out" / "a-00001.pcapng"], "tcp", "tcp.seq") == []

    def test_a_container_nobody_runs_is_explained(self, tmp_path):
        result = bb("capture", "-s", "a=1", "--container", "nobody", "--seconds", "1", "--out", "out", cwd=tmp_path)
        assert result.code == 4
        assert "container nobody" in result.err


def test_find_tool_finds_what_is_here():
    assert isinstance(find_tool(other_namespace=True), CaptureTool)
