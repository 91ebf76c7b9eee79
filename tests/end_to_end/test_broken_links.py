"""Runs over HTTP, CoAP and WebSocket that are broken from outside: told by kind, with evidence that can be read.

MQTT's are in test_failures.py; what each link makes of nonsense is in its unit tests.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import json
import os
import signal
import socket
import socketserver
import ssl
import threading
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import psutil
import pyarrow.parquet as pq
import pytest
from websockets.asyncio.server import ServerConnection, broadcast, serve
from websockets.exceptions import ConnectionClosed

from battlebrokers.analysis.conclusion import conclude
from battlebrokers.analysis.verdict import exit_code
from battlebrokers.errors import BattleError, EnvironmentNotReady, ExitCode
from battlebrokers.report.terminal import run_lines
from battlebrokers.run.glimpse import Glimpse
from battlebrokers.run.orchestrator import Orchestrator, RunRequest
from battlebrokers.scenario.reader import load_scenario
from battlebrokers.tables import CLOCKS, DELIVERIES, PUBLISHES
from battlebrokers.tables.run_folder import RunFolder
from support.certificates import Authority
from support.middleware.described import described
from support.middleware.process import contract_server
from support.runs import run_for_real, write_scenario
from support.websocket_hub import FILE as HUB

pytestmark = [pytest.mark.broker, pytest.mark.slow]

BRIDGED = """
name: bridged
defaults: {payload: {random_bytes: 60}, every: 10/s}
fleets:
  small: {devices: 3, protocol: coap, topic: "b/{device}"}
  web: {devices: 3, protocol: http, topic: "b/{device}"}
clients:
  listener: {count: 1, protocol: mqtt, subscribe: "b/#", qos: 1}
phases: {measure: 20s, drain: 10s, quiet: 500ms}
"""
PUSHED = """
name: pushed
protocol: websocket
fleets:
  web: {devices: 2, topic: "hive/{device}", payload: {random_bytes: 20}, every: 10/s}
clients:
  pushed: {count: 1, subscribe: "hive/#"}
phases: {measure: 20s, drain: 10s, quiet: 500ms}
"""


def only_run(runs: Path) -> RunFolder:
    [path] = runs.iterdir()
    return RunFolder(path)


def test_a_bridge_killed_mid_run_is_told_and_what_it_took_is_kept(tmp_path, require_broker):
    require_broker("ponte")
    killed = []

    def kill_once(seen: Glimpse) -> None:
        if seen.progress.received > 20 and not killed:
            killed.append(only_run(tmp_path / "runs").read_manifest().contender.services[0].pids[0])
            os.kill(killed[0], signal.SIGKILL)

    folder = run_for_real(write_scenario(tmp_path, BRIDGED), "ponte", tmp_path / "runs", watch=kill_once)
    manifest = folder.read_manifest()
    assert (manifest.state, "ponte was killed by signal 9" in manifest.state_detail) == ("broker-failed", True)
    outcomes = Counter(pq.read_table(folder.table(PUBLISHES))["outcome"].to_pylist())
    assert outcomes["acked"] > 20
    assert sum(outcomes.values()) < 6 * 20 * 10, "nobody goes on for 20 s"
    assert pq.read_table(folder.table(DELIVERIES)).num_rows > 20


def test_a_worker_killed_mid_run_is_told_with_its_signal_and_what_rescues_the_run(tmp_path, require_broker):
    require_broker("ponte")
    killed = []

    def kill_once(seen: Glimpse) -> None:
        if seen.progress.received > 20 and not killed:
            killed.append(only_run(tmp_path / "runs").read_manifest().workers[0].pid)
            os.kill(killed[0], signal.SIGKILL)

    with pytest.raises(BattleError, match="the worker process was killed by signal 9") as caught:
        run_for_real(write_scenario(tmp_path, BRIDGED), "ponte", tmp_path / "runs", watch=kill_once)
    folder = only_run(tmp_path / "runs")
    assert f"bb analyze {folder.path}" in caught.value.hint
    assert caught.value.exit_code is ExitCode.ENVIRONMENT
    manifest = folder.read_manifest()
    assert (manifest.state, manifest.state_detail) == ("failed", caught.value.message)
    assert not (folder.path / "contender").exists()


def test_evidence_that_finds_no_place_is_the_environments_fault_and_the_run_says_so(tmp_path, require_broker):
    require_broker("ponte")
    scenario = write_scenario(tmp_path, BRIDGED.replace("20s", "1s"))

    def block(seen: Glimpse) -> None:
        if seen.phase == "measure":
            # A file where a folder has to be made: as good as a full disk, and needs no rights.
            (only_run(tmp_path / "runs").path / CLOCKS.folder).write_text("")

    with pytest.raises(EnvironmentNotReady, match="the evidence cannot be written in") as caught:
        run_for_real(scenario, "ponte", tmp_path / "runs", watch=block)
    assert "--runs" in caught.value.hint
    manifest = only_run(tmp_path / "runs").read_manifest()
    assert (manifest.state, manifest.state_detail) == ("failed", caught.value.message)


def test_when_nobody_can_connect_the_reason_they_were_given_is_told(tmp_path):
    scenario = write_scenario(tmp_path, PUSHED)
    with contract_server("devicehive") as ports:
        spec = described("devicehive", ports, tmp_path)
        spec.write_text(spec.read_text().replace("/api/websocket", "/api/nowhere"))
        folder = run_for_real(scenario, str(spec), tmp_path / "runs")
    manifest = folder.read_manifest()
    assert manifest.state == "broker-failed"
    assert "nobody could connect: ws://" in manifest.state_detail
    assert "404" in manifest.state_detail


def test_a_broker_somebody_else_runs_that_dies_has_failed_like_one_of_ours(tmp_path):
    with contract_server("devicehive") as ports:
        spec = described("devicehive", ports, tmp_path)
        [server] = [each for each in psutil.Process().children() if "support.middleware.devicehive" in each.cmdline()]

        def kill_once(seen: Glimpse) -> None:
            if seen.progress.received > 5 and server.is_running():
                server.kill()

        scenario = write_scenario(tmp_path, PUSHED.replace("20s", "2s"))
        folder = run_for_real(scenario, str(spec), tmp_path / "runs", watch=kill_once)
    manifest = folder.read_manifest()
    assert manifest.state == "broker-failed"
    assert "devicehive stopped answering during the run: nobody listens at" in manifest.state_detail
    assert pq.read_table(folder.table(DELIVERIES)).num_rows > 5


MOODY = """\
name: moody
about: Answers as it likes.
run: {external: true}
ports: {http: PORT}
endpoints: {http: "http://${host}:${port.http}"}
ready: {get: /}
speak:
  http: {answer_within_s: 4, publish: {post: "/messages", json: {data: "${payload}"}, is: {$.ok: true}}}
"""
SPEAKERS = """
name: speakers
protocol: http
fleets:
  air: {devices: 7, topic: "a/{device}", payload: {random_bytes: 30}, every: 10/s, at_most: 5}
phases: {measure: 30s, drain: 5s, quiet: 500ms, until_silent: true}
"""
GOOD = b'HTTP/1.1 200 OK\r\nContent-Length: 12\r\n\r\n{"ok": true}'
SLOWLY = b""
NEVER = b"never"
ANSWERS = [
    GOOD,
    b"HTTP/1.1 500 Oh\r\nContent-Length: 2\r\n\r\nno",
    b'HTTP/1.1 200 OK\r\nContent-Length: 500\r\n\r\n{"ok": tr',
    b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\n{not json",
    b"closed",
    SLOWLY,
    NEVER,
]


async def moody(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, moods: itertools.cycle) -> None:
    """Answers each request in the next way there is; closes where an answer is not whole."""
    try:
        while head := await reader.readuntil(b"\r\n\r\n"):
            if head.startswith(b"GET"):
                writer.write(GOOD)
                continue
            [length] = [
                line.split(b":")[1] for line in head.split(b"\r\n") if line.lower().startswith(b"content-length")
            ]
            await reader.readexactly(int(length))
            answer = next(moods)
            if answer == SLOWLY:
                await asyncio.sleep(1.5)
                answer = GOOD
            if answer == NEVER:
                # A stall: the connection stays until the other side has had enough.
                await reader.read()
                break
            writer.write(b"" if answer == b"closed" else answer)
            if answer == b"closed" or b"500\r\n" in answer:
                break
    except (asyncio.IncompleteReadError, ConnectionError):
        pass
    finally:
        writer.close()


@pytest.mark.spark
async def test_every_wrong_answer_is_in_the_ledger_by_its_kind(tmp_path, analyst):
    moods = itertools.cycle(ANSWERS)
    server = await asyncio.start_server(lambda reader, writer: moody(reader, writer, moods), "127.0.0.1", 0)
    spec = tmp_path / "moody.yaml"
    spec.write_text(MOODY.replace("PORT", str(server.sockets[0].getsockname()[1])))
    loaded = load_scenario(str(write_scenario(tmp_path, SPEAKERS)))
    async with server:
        folder = await Orchestrator(RunRequest(loaded, str(spec), 1, tmp_path / "runs")).run()
    assert folder.read_manifest().state == "finished"
    analyst.analyze(str(folder.path))
    summary = conclude(folder).summary
    assert (summary.messages.planned, summary.messages.sent, summary.messages.acked) == (35, 35, 10)
    kinds = ("status 500", "truncated", "unexpected answer", "closed", "timeout")
    assert summary.messages.failures == dict.fromkeys(kinds, 5)
    assert (summary.middleware.successful, summary.middleware.failed) == (10, 25)
    assert exit_code(summary) in (ExitCode.EXPECTATION_FAILED, ExitCode.VOID), "nobody needs to expect that they work"
    promise = next(one for one in summary.expectations if one.text == "every publish gets through")
    assert promise.measured.startswith("25 of 35 did not: 5 refused, 20 failed (")
    # The slow ones are slow in the figures, not failed.
    assert summary.middleware.publish_ms.max >= 1500


SHY = """\
name: shy
about: Speaks TLS with some.
run: {external: true}
ports: {http: PORT}
endpoints: {http: "https://${host}:${port.http}"}
speak:
  http: {window: 1, publish: {post: "/messages", json: {data: "${payload}"}, is: {$.ok: true}}}
"""


@contextlib.contextmanager
def shy_server(certificate: tuple[Path, Path]) -> Iterator[int]:
    """Answers every second ClientHello with something that is no TLS; each connection takes three requests."""
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(*certificate)
    hellos = itertools.count()

    class Handler(socketserver.BaseRequestHandler):
        def handle(self) -> None:
            # Who only looks whether somebody is there says nothing.
            if not self.request.recv(1, socket.MSG_PEEK):
                return
            if next(hellos) % 2 == 0:
                self.request.sendall(b"HTTP/1.1 400 Bad Request\r\n\r\n")
                return
            with contextlib.suppress(OSError), context.wrap_socket(self.request, server_side=True) as secure:
                stream = secure.makefile("rb")
                for _ in range(3):
                    head = b"".join(iter(stream.readline, b"\r\n"))
                    lines = head.lower().split(b"\r\n")
                    stream.read(int(next(line.split(b":")[1] for line in lines if b"content-length" in line)))
                    secure.sendall(GOOD)

    with socketserver.ThreadingTCPServer(("127.0.0.1", 0), Handler) as server:
        server.daemon_threads = True
        serving = threading.Thread(target=server.serve_forever, daemon=True)
        serving.start()
        try:
            yield server.server_address[1]
        finally:
            server.shutdown()
            serving.join()


@pytest.mark.spark
def test_tls_errors_are_told_as_such_of_connects_and_of_publishes(tmp_path, analyst):
    authority = Authority(tmp_path)
    scenario = SPEAKERS.replace("devices: 7", "devices: 2") + f"tls: {{ca: {authority.path}}}\n"
    with shy_server(authority.sign("shy", server=True)) as port:
        spec = tmp_path / "shy.yaml"
        spec.write_text(SHY.replace("PORT", str(port)))
        folder = run_for_real(write_scenario(tmp_path, scenario), str(spec), tmp_path / "runs")
    analyst.analyze(str(folder.path))
    conclusion = conclude(folder)
    summary = conclusion.summary
    assert summary.state == "finished"
    assert set(summary.actions["connect"].failures) == {"TLS"}
    assert set(summary.messages.failures) == {"TLS"}
    assert summary.messages.acked + summary.messages.failures["TLS"] == summary.messages.planned == 10
    told = "\n".join(line.plain for line in run_lines(conclusion))
    assert f"publishes without success: TLS {summary.messages.failures['TLS']}" in told
    assert f"connect without success: TLS {summary.actions['connect'].failures['TLS']}" in told


WHIMS = (
    HUB.replace("name: hub", "name: whims")
    .replace("ports: {ws: 80}", "ports: {ws: PORT}")
    .replace("    ids: $.id\n", "    ids: $.id\n    window: 1\n    answer_within_s: 2\n")
)
TALKERS = """
name: talkers
protocol: websocket
fleets:
  air: {devices: 5, topic: "a/{device}", payload: {random_bytes: 30}, every: 10/s, at_most: 4}
clients:
  told: {count: 1, subscribe: "a/#"}
phases: {measure: 30s, drain: 5s, quiet: 500ms, until_silent: true}
"""


@pytest.mark.spark
async def test_wrong_words_over_a_websocket_are_in_the_ledger_by_their_kind(tmp_path, analyst):
    moods = itertools.cycle(["good", "no", "no JSON", "closed", "never"])
    listeners: set[ServerConnection] = set()

    async def whims(connection: ServerConnection) -> None:
        with contextlib.suppress(ConnectionClosed):
            async for text in connection:
                asked = json.loads(text)
                if asked["do"] == "subscribe":
                    listeners.add(connection)
                mood = next(moods) if asked["do"] == "publish" else "good"
                if mood == "closed":
                    connection.transport.abort()
                elif mood == "no JSON":
                    await connection.send("{not json")
                elif mood != "never":
                    await connection.send(json.dumps({"id": asked["id"], "done": mood == "good"}))
                told = {"event": "message", "topic": asked.get("topic"), "payload": asked.get("payload")}
                if mood == "no":
                    del told["payload"]
                if asked["do"] == "publish" and mood in {"good", "no"}:
                    broadcast(listeners, json.dumps(told))
        listeners.discard(connection)

    async with serve(whims, "127.0.0.1", 0, compression=None) as server:
        spec = tmp_path / "whims.yaml"
        spec.write_text(WHIMS.replace("PORT", str(next(iter(server.sockets)).getsockname()[1])))
        loaded = load_scenario(str(write_scenario(tmp_path, TALKERS)))
        folder = await Orchestrator(RunRequest(loaded, str(spec), 1, tmp_path / "runs")).run()
    analyst.analyze(str(folder.path))
    summary = conclude(folder).summary
    assert (summary.state, summary.messages.planned, summary.messages.acked) == ("finished", 20, 4)
    assert summary.messages.failures == dict.fromkeys(("closed", "malformed", "timeout", "unexpected answer"), 4)
    assert summary.actions["lost"].failures == {"closed": 4}
    assert summary.messages.wrong_arrivals == {"unreadable": 4}
