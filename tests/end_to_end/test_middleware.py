"""Middlewares for real: publishing over one protocol, listening on another, registered and removed over HTTP."""

from __future__ import annotations

import asyncio
import re
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from aiohttp import web

from battlebrokers.analysis.summary import build_summary
from battlebrokers.clock import MILLISECOND_NS
from battlebrokers.errors import ContenderError, ExitCode
from battlebrokers.protocols.base import Failure
from battlebrokers.run.orchestrator import Orchestrator, RunRequest
from battlebrokers.scenario.plan import build_plan
from battlebrokers.scenario.reader import load_scenario
from battlebrokers.tables import ACKS, OPERATIONS, PUBLISHES
from battlebrokers.tables.run_folder import RunFolder
from support.cost_table import cost_table
from support.runs import bb, run_for_real, write_scenario

pytestmark = pytest.mark.slow
README = Path(__file__).parents[2] / "README.md"


@pytest.mark.broker
@pytest.mark.spark
def test_ponte_takes_messages_over_http_and_gives_them_over_mqtt(tmp_path, analyst, require_broker):
    require_broker("ponte")
    folder = run_for_real("middleware-small", "ponte", tmp_path / "runs", scale=0.01)
    manifest = folder.read_manifest()
    assert manifest.state == "finished"
    assert manifest.settings["protocols"] == {"sensors": "http", "dashboard": "mqtt"}
    assert manifest.plan_sha256 == build_plan(load_scenario("middleware-small", scale=0.01).scenario).sha256
    # It ends when the device has said its 200 messages, long before the 210 s are over.
    measured = next(phase for phase in manifest.phases if phase.name == "measure")
    assert measured.end_ns - measured.start_ns < 60 * 10**9
    analyst.analyze(str(folder.path))
    summary = build_summary(folder)
    assert (summary.messages.sent, summary.messages.acked, summary.messages.delivered) == (200, 200, 200)
    cost = summary.middleware
    assert (cost.successful, cost.failed, cost.payload_bytes, cost.structure_bytes) == (200, 0, 22, 22)
    assert cost.url_bytes > 22
    assert cost.wire_bytes > cost.structure_bytes + cost.url_bytes
    assert cost.overhead == pytest.approx(cost.wire_bytes / 22, rel=0.01)
    assert cost.publish_ms.n == 200


@pytest.mark.broker
@pytest.mark.spark
@pytest.mark.timeout(600)
def test_the_battle_of_the_readme_tells_what_a_publish_costs_on_each(tmp_path, require_broker):
    readme = README.read_text(encoding="utf-8")
    [line] = re.findall(r"^\$ bb (battle middleware-small [^#]*)", readme, re.MULTILINE)
    [few] = re.findall(r'^\$ few="(.*)"$', readme, re.MULTILINE)
    command = line.replace("$few", few).split()
    contenders = command[2:6]
    assert contenders == ["ponte", "acme-onem2m", "mosquitto", "rabbitmq"]
    for name in contenders:
        require_broker(name)
    fought = bb(*command, cwd=tmp_path, timeout=500)
    assert fought.code in (ExitCode.PASS, ExitCode.VOID), fought.out + fought.err
    [page] = (tmp_path / "runs").glob("battle-*.html")
    rows = {row["contender"]: row for row in cost_table(page)}
    assert set(rows) == set(contenders)
    # A busy machine may make some of the measurements void: nothing is told of their cost.
    told = {name: row for name, row in rows.items() if row["publishes → listens"] != "VOID"}
    ways = {"ponte": "http → mqtt", "acme-onem2m": "http → http", "mosquitto": "mqtt → mqtt", "rabbitmq": "mqtt → mqtt"}
    assert {name: row["publishes → listens"] for name, row in told.items()} == {name: ways[name] for name in told}
    assert {(row["ok"], row["failed"]) for row in told.values()} <= {("400", "0")}
    assert {row["structure"] == "22 B" for name, row in told.items() if name != "acme-onem2m"} <= {True}
    assert "acme-onem2m" not in told or told["acme-onem2m"]["structure"] != "22 B"
    # Nothing that is shown lacks the messages for it.
    assert "n≥" not in "".join(cell for row in told.values() for cell in row.values())


@pytest.mark.alone
@pytest.mark.broker
def test_acme_is_registered_with_and_everything_is_removed_again(tmp_path, require_broker):
    require_broker("acme-onem2m")
    folder = run_for_real("middleware-small", "acme-onem2m", tmp_path / "runs", scale=0.01)
    assert folder.read_manifest().state == "finished"
    rows = pq.read_table(folder.table(OPERATIONS)).to_pylist()
    calls = [(row["role"], row["kind"], row["outcome"]) for row in rows]
    for call, times in (
        (("controller", "login", "ok"), 1), (("resource", "register", "ok"), 2), (("resource", "remove", "ok"), 2),
        (("attribute", "register", "ok"), 4), (("client", "subscribe", "ok"), 4),
    ):  # fmt: skip
        assert calls.count(call) == times, call
    subscribed = [row for row in rows if row["kind"] == "subscribe"]
    assert {row["detail"] for row in subscribed} == {"one of the topics of middleware/#"}
    assert {row["filter"] for row in subscribed} == {row["filter"] for row in rows if row["role"] == "attribute"}
    published = pq.read_table(folder.table(PUBLISHES)).to_pylist()
    assert {row["outcome"] for row in published} == {"acked"}
    assert all(row["structure_bytes"] > row["payload_bytes"] for row in published)


MADE_UP = """\
name: made-up
about: Takes messages of registered devices over HTTP.
run: {external: true}
ports: {http: PORT}
endpoints: {http: "http://${host}:${port.http}"}
ready: {get: /}
register:
  device: {post: /devices, json: {name: "${name}"}, is: 201, keep: {uuid: $.uuid}}
  remove: {device: {delete: "/devices/${uuid}"}}
speak:
  http: {publish: {post: "/messages?of=${uuid}", json: {data: "${payload}", topic: "${topic}"}}}
"""
SPEAKERS = """\
name: speakers
protocol: http
fleets:
  air: {devices: 20, topic: "a/{device}", payload: {random_bytes: 30}, every: 20/s, at_most: MESSAGES}
phases: {measure: 60s, drain: 20s, quiet: 500ms, until_silent: true}
"""


@dataclass
class MadeUp:
    """A small middleware: knows its devices, refuses one of them if told, and fails every so many messages."""

    devices: dict[str, str] = field(default_factory=dict)
    seen: int = 0
    messages: int = 0
    refuse: str = ""
    fail_every: int = 0
    late_every: int = 0
    on_message: Callable[[], None] = lambda: None

    async def alive(self, _: web.Request) -> web.Response:
        return web.Response()

    async def register(self, request: web.Request) -> web.Response:
        name = (await request.json())["name"]
        if name == self.refuse:
            return web.Response(status=507, text="no room for another device")
        self.seen += 1
        uuid = f"u{self.seen}"
        self.devices[uuid] = name
        return web.json_response({"uuid": uuid}, status=201)

    async def remove(self, request: web.Request) -> web.Response:
        return web.Response(status=200 if self.devices.pop(request.match_info["uuid"], None) else 404)

    async def message(self, request: web.Request) -> web.Response:
        if request.query["of"] not in self.devices:
            return web.Response(status=401)
        body = await request.json()
        assert body["topic"] == f"a/{self.devices[request.query['of']]}"
        self.messages += 1
        self.on_message()
        if self.late_every and not self.messages % self.late_every:
            await asyncio.sleep(5)
        if self.fail_every and not self.messages % self.fail_every:
            return web.Response(status=500, text="again later")
        return web.Response()


@pytest.fixture
async def made_up(tmp_path):
    middleware = MadeUp()
    app = web.Application()
    app.router.add_get("/", middleware.alive)
    app.router.add_post("/devices", middleware.register)
    app.router.add_delete("/devices/{uuid}", middleware.remove)
    app.router.add_post("/messages", middleware.message)
    runner = web.AppRunner(app)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    (tmp_path / "made-up.yaml").write_text(MADE_UP.replace("PORT", str(runner.addresses[0][1])))
    yield middleware
    await runner.cleanup()


def orchestrator_of(tmp_path, *, messages: int, quiet: str = "500ms") -> Orchestrator:
    text = SPEAKERS.replace("MESSAGES", str(messages)).replace("quiet: 500ms", f"quiet: {quiet}")
    loaded = load_scenario(str(write_scenario(tmp_path, text)))
    return Orchestrator(RunRequest(loaded, str(tmp_path / "made-up.yaml"), 1, tmp_path / "runs"))


def settled(folder: RunFolder) -> list[dict[str, Any]]:
    """Every publish, with the outcome that came after its row was written, if it did."""
    rows = pq.read_table(folder.table(PUBLISHES)).to_pylist()
    late = pq.read_table(folder.table(ACKS)).to_pylist() if folder.table(ACKS).exists() else []
    answers = {(row["device"], row["seq"]): row for row in late}
    for row in rows:
        if row["outcome"] == "unacked" and (answer := answers.get((row["device"], row["seq"]))):
            row |= {name: answer[name] for name in ("acked_ns", "outcome", "reason")}
    return rows


async def test_answers_of_500_are_recorded_and_everybody_is_removed(made_up, tmp_path):
    made_up.fail_every = 10
    folder = await orchestrator_of(tmp_path, messages=10).run()
    assert folder.read_manifest().state == "finished"
    outcomes = Counter((row["outcome"], row["reason"]) for row in settled(folder))
    assert outcomes == {("acked", None): 180, ("refused", 500): 20}
    assert (made_up.seen, made_up.devices) == (20, {})


@pytest.mark.alone
async def test_how_long_an_answer_may_take_is_said_in_the_contenders_file(made_up, tmp_path):
    made_up.late_every = 10
    spec = tmp_path / "made-up.yaml"
    spec.write_text(spec.read_text().replace("  http: {publish", "  http: {answer_within_s: 2.5, publish"))
    folder = await orchestrator_of(tmp_path, messages=10, quiet="4s").run()
    assert folder.read_manifest().state == "finished"
    rows = settled(folder)
    outcomes = Counter((row["outcome"], row["reason"]) for row in rows)
    assert outcomes == {("acked", None): 180, ("failed", Failure.TIMEOUT): 20}
    took_ns = [row["acked_ns"] - row["sent_ns"] for row in rows if row["outcome"] == "failed"]
    assert min(took_ns) >= 2_500 * MILLISECOND_NS


async def test_a_refused_registration_is_the_brokers_failure_and_leaves_nothing_behind(made_up, tmp_path):
    made_up.refuse = "air-19"
    orchestrator = orchestrator_of(tmp_path, messages=10)
    with pytest.raises(ContenderError) as caught:
        await orchestrator.run()
    assert "register of device air-19: POST /devices failed: status 507" in caught.value.message
    assert "no room for another device" in caught.value.message
    assert caught.value.exit_code == 5
    assert made_up.devices == {}
    assert made_up.seen > 0
    manifest = orchestrator.folder.read_manifest()
    assert (manifest.state, "status 507" in manifest.state_detail) == ("broker-failed", True)


async def test_whoever_interrupts_still_leaves_nothing_behind(made_up, tmp_path):
    orchestrator = orchestrator_of(tmp_path, messages=1000)
    made_up.on_message = orchestrator.interrupt
    folder = await orchestrator.run()
    assert folder.read_manifest().state == "interrupted"
    assert made_up.messages < 20 * 1000
    assert (made_up.seen, made_up.devices) == (20, {})
