"""`bb sdn` against a real controller without switches: what it prints, how it fails, and with which exit code."""

from __future__ import annotations

import json
import os
import signal
import socketserver
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from typer.testing import CliRunner

from battlebrokers.cli.sdn import sdn_app
from battlebrokers.errors import BattleError, ExitCode
from battlebrokers.sdn.lab.commands import Names
from battlebrokers.sdn.lab.laboratory import Laboratory
from support.runs import bb as real_bb
from support.runs import start_bb
from support.waiting import until

MAC = "00:00:00:00:00:01"


def bb(*arguments: str) -> tuple[int, str]:
    """Exit code, and what is printed or complained of."""
    result = CliRunner().invoke(sdn_app, list(arguments), standalone_mode=False, env={"COLUMNS": "200"})
    if isinstance(result.exception, BattleError):
        return int(result.exception.exit_code), f"{result.exception.message} {result.exception.hint}"
    if result.exception is not None:
        raise result.exception
    return int(result.return_value or 0), result.output


@pytest.fixture(scope="module")
def controller(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    folder = tmp_path_factory.mktemp("controller")
    process = start_bb(
        "sdn", "controller", "--port", "0", "--openflow-port", "0", "--state", str(folder / "state.json"),
        cwd=folder, log=folder / "log",
    )  # fmt: skip
    try:
        until(lambda: b"REST" in (folder / "log").read_bytes(), what="the controller")
        words = (folder / "log").read_text().split()
        yield words[words.index("page:") + 1]
    finally:
        process.send_signal(signal.SIGINT)
        assert process.wait(60) == 0


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_a_controller_ends_normally_with_any_signal(tmp_path: Path, number: int) -> None:
    state = str(tmp_path / "state.json")
    log = tmp_path / "log"
    process = start_bb(
        "sdn", "controller", "--port", "0", "--openflow-port", "0", "--state", state, cwd=tmp_path, log=log
    )
    until(lambda: b"REST" in log.read_bytes(), what="the controller")
    process.send_signal(number)
    assert process.wait(60) == 0


@pytest.fixture
def no_lab(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A place for a lab where none is, whatever else is on this machine."""
    monkeypatch.setattr(Laboratory.__init__, "__defaults__", (tmp_path / "lab", Names("bbq")))


@pytest.fixture
def resource(controller: str) -> str:
    code, out = bb("create", "--url", controller)
    assert code == ExitCode.PASS
    return out.strip()


def test_resources_come_and_go(controller: str) -> None:
    code, address = bb("create", "--mode", "group", "--from", "resource", "--name", "room/1", "--url", controller)
    assert code == ExitCode.PASS
    address = address.strip()
    assert bb("subscribe", address, f"{MAC},10.0.0.1", "--url", controller)[0] == ExitCode.PASS
    code, out = bb("resources", "--json", "--url", controller)
    (told,) = (one for one in json.loads(out) if one["address"] == address)
    assert (told["mode"], told["source"], told["name"]) == ("group", "resource", "room/1")
    assert told["subscribers"] == [{"mac": MAC, "ipv4": "10.0.0.1", "seen_at": ""}]
    code, out = bb("resources", "--url", controller)
    assert "10.0.0.1 (not seen yet)" in out
    assert bb("unsubscribe", address, MAC, "--url", controller)[0] == ExitCode.PASS
    assert bb("delete", address, "--url", controller)[0] == ExitCode.PASS
    assert address not in [one["address"] for one in json.loads(bb("resources", "--json", "--url", controller)[1])]


def test_status_without_switches_says_what_to_do(controller: str) -> None:
    code, out = bb("status", "--url", controller)
    assert code == ExitCode.PASS
    assert "no switch has called yet: bb sdn lab up paper" in out
    assert "dropped: nothing" in out
    facts = json.loads(bb("status", "--json", "--url", controller)[1])
    assert facts["topology"]["switches"] == []
    assert facts["statistics"]["malformed"] == 0


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("create", "--name", "x" * 2000), "name: String should have at most 1024 characters"),
        (("delete", "1.1.99.1"), "there is no resource 1.1.99.1"),
        (("delete", "a b ü?#"), "'a b ü?#' is not the address of a resource"),
        (("delete", "nonsense"), "'nonsense' is not the address of a resource such as 1.1.1.1"),
        (("subscribe", "1.1.99.1", f"{MAC},10.0.0.1"), "there is no resource 1.1.99.1"),
        (("unsubscribe", "1.1.99.1", MAC), "there is no resource 1.1.99.1"),
        (("publish", "1.1.99.1", "hello"), "there is no resource 1.1.99.1"),
        (("publish", "1.1.1.1", "x" * 1473), "1473 bytes do not fit into one packet of 1500"),
        (("publish", "1.1.1.1", "x" * 1450), "at most 1400 characters"),
    ],
)
def test_wrong_input_is_refused_with_its_reason(controller: str, words: tuple[str, ...], said: str) -> None:
    code, complaint = bb(*words, "--url", controller)
    assert code == ExitCode.INVALID_INPUT
    assert said in complaint


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("create", "--mode", "wild"), "--mode cannot be 'wild' one of reactive, direct, group, tree"),
        (("create", "--from", "nobody"), "--from cannot be 'nobody' one of publisher, resource"),
    ],
)
def test_a_choice_there_is_not_is_a_mistake_of_usage(controller: str, words: tuple[str, ...], said: str) -> None:
    assert bb(*words, "--url", controller) == (ExitCode.USAGE, said)


@pytest.mark.parametrize(
    ("who", "said"),
    [
        ("00:00:00:00:00,10.0.0.1", "is no MAC address"),
        ("01:00:00:00:00:01,10.0.0.1", "addresses a group"),
        ("00:00:00:00:00:fe,10.0.0.1", "belongs to no host"),
        (f"{MAC},10.0.0", "is no IPv4 address"),
        (f"{MAC},1.1.1.7", "is in the range of resources"),
        (f"{MAC},", "is no IPv4 address"),
    ],
)
def test_wrong_subscribers_are_refused(controller: str, resource: str, who: str, said: str) -> None:
    code, complaint = bb("subscribe", resource, who, "--url", controller)
    assert code == ExitCode.INVALID_INPUT
    assert said in complaint


def test_one_host_subscribes_once_and_leaves_once(controller: str, resource: str) -> None:
    assert bb("subscribe", resource, f"{MAC},10.0.0.1", "--url", controller)[0] == ExitCode.PASS
    code, complaint = bb("subscribe", resource, f"{MAC},10.0.0.1", "--url", controller)
    assert (code, "already" in complaint) == (ExitCode.INVALID_INPUT, True)
    code, complaint = bb("subscribe", resource, "00:00:00:00:00:02,10.0.0.1", "--url", controller)
    assert (code, "one address, one host" in complaint) == (ExitCode.INVALID_INPUT, True)
    assert bb("unsubscribe", resource, MAC, "--url", controller)[0] == ExitCode.PASS
    code, complaint = bb("unsubscribe", resource, MAC, "--url", controller)
    assert (code, "is not subscribed" in complaint) == (ExitCode.INVALID_INPUT, True)


def test_publishing_without_a_switch_says_that_there_is_none(controller: str, resource: str) -> None:
    code, complaint = bb("publish", resource, "hello", "--url", controller)
    assert code == ExitCode.ENVIRONMENT
    assert "no switch is connected" in complaint


@pytest.mark.parametrize(
    "url",
    ["nonsense", "ftp://127.0.0.1:8080", "http://", "http://127.0.0.1:99999", "http://127.0.0.1:port", "http://["],
)
def test_what_is_no_url_is_a_mistake_of_usage(url: str) -> None:
    code, complaint = bb("status", "--url", url)
    assert code == ExitCode.USAGE
    assert "for example http://127.0.0.1:8080" in complaint


def test_nobody_there_says_how_to_start_one(free_port: int) -> None:
    code, complaint = bb("status", "--url", f"http://127.0.0.1:{free_port}")
    assert code == ExitCode.ENVIRONMENT
    assert "bb sdn controller" in complaint


def test_the_environment_names_the_controller(controller: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BB_SDN", controller)
    assert bb("resources")[0] == ExitCode.PASS


@pytest.mark.parametrize(
    "answer",
    [
        b"SSH-2.0-OpenSSH\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello",
        b"HTTP/1.1 500 No\r\nContent-Length: 2\r\n\r\n17",
        b'HTTP/1.1 404 No\r\nContent-Length: 22\r\n\r\n{"detail":"Not Found"}',
    ],
    ids=["not HTTP", "not JSON", "not an object", "not found"],
)
def test_whoever_else_answers_is_no_controller(answer: bytes) -> None:
    class Other(socketserver.BaseRequestHandler):
        def handle(self) -> None:
            self.request.recv(4096)
            self.request.sendall(answer)

    with socketserver.TCPServer(("127.0.0.1", 0), Other) as server:
        threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True).start()
        try:
            code, complaint = bb("resources", "--url", f"http://127.0.0.1:{server.server_address[1]}")
        finally:
            server.shutdown()
    assert code == ExitCode.BROKER_FAILED
    assert "controller" in complaint


@pytest.mark.parametrize(
    "words",
    [
        ("subscribe", "1.1.1.1", "h1"), ("unsubscribe", "1.1.1.1", "h1"), ("publish", "1.1.1.1", "hello", "--as", "h1"),
        ("listen", "h1"), ("lab", "exec", "h1", "true"),
    ],
)  # fmt: skip
def test_hosts_need_a_lab(no_lab: None, words: tuple[str, ...]) -> None:
    code, complaint = bb(*words)
    assert code == ExitCode.INVALID_INPUT
    assert "no lab is up" in complaint
    assert "bb sdn lab up paper" in complaint


def test_without_a_lab_there_is_none_and_nothing_to_take_down(no_lab: None) -> None:
    code, out = bb("lab", "status")
    assert (code, out.strip()) == (ExitCode.PASS, "no lab is up: bb sdn lab up paper")
    assert json.loads(bb("lab", "status", "--json")[1])["topology"] is None
    assert bb("lab", "down")[0] == ExitCode.PASS
    assert bb("lab", "cut", "1")[0] == ExitCode.INVALID_INPUT
    assert bb("lab", "exec", "h1", "no-such-command")[0] == ExitCode.USAGE


@pytest.mark.parametrize(
    ("topology", "said"),
    [
        ("papr", "did you mean `paper`"),
        ("chain:0x1", "chain:0x1 cannot be built"),
        ("chain:100x100", "1 to 100 switches and at most 250 hosts"),
        ("missing.yaml", "missing.yaml cannot be read"),
    ],
)
def test_unknown_topologies_are_told(no_lab: None, topology: str, said: str) -> None:
    code, complaint = bb("lab", "up", topology)
    assert code == ExitCode.INVALID_INPUT
    assert said in complaint


def test_mistakes_in_a_topology_are_told_with_file_and_line(no_lab: None, tmp_path: Path) -> None:
    path = tmp_path / "net.yaml"
    path.write_text("name: net\nswitches: [s1, s2]\nhosts:\n  h1: s3\n  h2: 7\nlink: [[s1, s2]]\n")
    code, complaint = bb("lab", "up", str(path))
    assert code == ExitCode.INVALID_INPUT
    assert f"{path}:5" in complaint
    assert f"{path}:6" in complaint
    assert "links" in complaint


def test_without_rights_a_lab_says_what_it_needs(no_lab: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    code, complaint = bb("lab", "up", "paper")
    assert code == ExitCode.ENVIRONMENT
    assert "root" in complaint or "not installed" in complaint


def test_a_controller_that_cannot_start_says_why(controller: str, tmp_path: Path) -> None:
    taken = controller.rstrip("/").rpartition(":")[2]
    state = tmp_path / "state.json"
    code, complaint = bb("controller", "--port", taken, "--openflow-port", "0", "--state", str(state))
    assert (code, "choose another one with --port" in complaint) == (ExitCode.ENVIRONMENT, True)
    code, complaint = bb("controller", "--port", "0", "--openflow-port", taken, "--state", str(state))
    assert (code, "--openflow-port" in complaint) == (ExitCode.ENVIRONMENT, True)
    state.write_text('{"secret": 7}')
    code, complaint = bb("controller", "--port", "0", "--openflow-port", "0", "--state", str(state))
    assert (code, "move the file away" in complaint) == (ExitCode.INVALID_INPUT, True)


@pytest.mark.slow
def test_the_words_of_a_shell_end_with_the_same_codes(controller: str, tmp_path: Path) -> None:
    done = real_bb("sdn", "delete", "1.1.99.1", "--url", controller, cwd=tmp_path)
    assert (done.code, done.out) == (ExitCode.INVALID_INPUT, "")
    assert "there is no resource 1.1.99.1" in done.err
