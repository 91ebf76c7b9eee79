from __future__ import annotations

import asyncio
import itertools
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

import msgspec
import pytest
from aiohttp import web

from battlebrokers.contenders.broker_url import BrokerUrl, parse_broker_url
from battlebrokers.contenders.dialogue import Registration
from battlebrokers.devices.controller import (
    CALLS_AT_ONCE,
    Controller,
    Registered,
    heard,
    listeners_of_topics,
    rendered,
)
from battlebrokers.errors import ContenderError, InputError
from battlebrokers.protocols.script import Say, Script
from battlebrokers.scenario.plan import Plan, build_plan
from battlebrokers.scenario.reader import read_scenario
from battlebrokers.tables import OPERATIONS

TEXT = """\
name: small
protocol: http
fleets:
  air: {devices: 40, topic: "a/{device}", payload: {random_bytes: 30}, every: 1s}
clients:
  all: {count: 2, subscribe: "a/#"}
  one: {count: 1, subscribe: "a/air-1"}
phases: {measure: 1s}
"""
NODE = Say(
    "post",
    "/devices",
    json={"type": "${role}", "name": "${name}", "by": "${controller.token}"},
    statuses=[201],
    keep={"uuid": "$.uuid", "token": "header:X-Token ~ token-(.*)"},
)
GOODBYE = Say("delete", "/devices/${uuid}", headers={"auth": "${token}"})
REGISTRATION = Registration(
    login=[Say("post", "/login", text="let me in", keep={"token": "$.token"})],
    resource=[Say("put", "/resources/${resource}", json={"topic": "${topic}"})],
    device=[NODE],
    client=[NODE],
    remove_resource=[Say("delete", "/resources/${resource}")],
    remove_device=[GOODBYE],
    remove_client=[GOODBYE],
)


def plan() -> Plan:
    return build_plan(read_scenario(TEXT, "f").scenario, run_id="r1")


@dataclass
class Middleware:
    """A small registry over HTTP: keeps nodes and resources, and notices how many ask at once."""

    nodes: dict[str, dict[str, str]] = field(default_factory=dict)
    resources: set[str] = field(default_factory=set)
    at_once: int = 0
    most_at_once: int = 0
    refuse: str = ""
    ids: itertools.count[int] = field(default_factory=itertools.count)

    async def login(self, request: web.Request) -> web.Response:
        assert await request.text() == "let me in"
        return web.json_response({"token": "secret"})

    async def put(self, request: web.Request) -> web.Response:
        self.resources.add((await request.json())["topic"])
        return web.Response(status=204)

    async def forget(self, request: web.Request) -> web.Response:
        kept = {topic for topic in self.resources if topic.replace("/", "-") != request.match_info["name"]}
        gone, self.resources = len(self.resources) - len(kept), kept
        return web.Response(status=204 if gone == 1 else 404)

    async def post(self, request: web.Request) -> web.Response:
        self.at_once += 1
        self.most_at_once = max(self.most_at_once, self.at_once)
        await asyncio.sleep(0)
        body = await request.json()
        self.at_once -= 1
        if body["name"] == self.refuse:
            return web.Response(status=500, text="no room " * 100)
        if body["by"] != "secret":
            return web.Response(status=401)
        uuid = f"u{next(self.ids)}"
        self.nodes[uuid] = body
        return web.json_response({"uuid": uuid}, status=201, headers={"X-Token": f"token-{uuid}"})

    async def listed(self, request: web.Request) -> web.Response:
        return web.json_response({"all": [{"uuid": uuid} for uuid in self.nodes]})

    async def log_out(self, request: web.Request) -> web.Response:
        # Who leaves last has nothing left behind.
        return web.Response(status=409 if self.nodes or self.resources else 204)

    async def delete(self, request: web.Request) -> web.Response:
        uuid = request.match_info["uuid"]
        if request.headers.get("auth") != uuid or self.nodes.pop(uuid, None) is None:
            return web.Response(status=404)
        return web.Response(status=200)


@asynccontextmanager
async def serving(middleware: Middleware) -> AsyncIterator[BrokerUrl]:
    app = web.Application()
    app.router.add_post("/api/login", middleware.login)
    app.router.add_delete("/api/login/secret", middleware.log_out)
    app.router.add_get("/api/devices", middleware.listed)
    app.router.add_put("/api/resources/{name}", middleware.put)
    app.router.add_delete("/api/resources/{name}", middleware.forget)
    app.router.add_post("/api/devices", middleware.post)
    app.router.add_delete("/api/devices/{uuid}", middleware.delete)
    runner = web.AppRunner(app)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    try:
        yield parse_broker_url(f"http://127.0.0.1:{runner.addresses[0][1]}/api")
    finally:
        await runner.cleanup()


def controller(url: BrokerUrl, seen: list[tuple[int, int]] | None = None) -> Controller:
    ticks = itertools.count(1)
    notes = [] if seen is None else seen
    return Controller(REGISTRATION, url, plan(), {"run": "r1"}, lambda: next(ticks), lambda *done: notes.append(done))


async def test_everything_is_registered_once_and_removed_again() -> None:
    middleware = Middleware()
    seen: list[tuple[int, int]] = []
    async with serving(middleware) as url:
        one = controller(url, seen)
        registered = await one.register()
        assert len(middleware.nodes) == 43
        assert middleware.resources == {f"a/air-{n}" for n in range(1, 41)}
        assert registered.by_all == {"run": "r1", "controller.token": "secret"}
        kept = registered.nodes["client 2"]
        assert middleware.nodes[str(kept["uuid"])] == {"type": "client", "name": "one-1", "by": "secret"}
        assert kept["token"] == kept["uuid"]
        assert middleware.most_at_once <= CALLS_AT_ONCE
        assert seen[-1] == (84, 84)
        assert await one.remove() == 0
    assert not middleware.nodes
    assert not middleware.resources
    kinds = [row[OPERATIONS.column_names.index("kind")] for row in one.rows]
    assert {kind: kinds.count(kind) for kind in kinds} == {"login": 1, "register": 83, "remove": 83}
    assert {len(row) for row in one.rows} == {len(OPERATIONS.column_names)}
    assert {row[OPERATIONS.column_names.index("outcome")] for row in one.rows} == {"ok"}


async def test_what_is_there_is_counted_and_what_login_made_is_removed_last() -> None:
    middleware = Middleware()
    gone = Say("delete", "/login/${controller.token}", statuses=[204])
    steps = msgspec.structs.replace(
        REGISTRATION, listing=Say("get", "/devices"), listed="$.all", remove_controller=[gone]
    )
    async with serving(middleware) as url:
        one = Controller(steps, url, plan(), {"run": "r1"}, lambda: 0)
        await one.register()
        assert one.listed == len(middleware.nodes) == 43
        assert await one.remove() == 0
    kinds = [row[OPERATIONS.column_names.index("kind")] for row in one.rows]
    details = [row[OPERATIONS.column_names.index("detail")] for row in one.rows]
    assert [detail for kind, detail in zip(kinds, details, strict=True) if kind == "list"] == ["43 listed"]
    assert one.rows[-1][OPERATIONS.column_names.index("role")] == "controller"
    assert kinds[-1] == "remove"
    assert kinds.count("remove") == 84


async def test_a_list_that_is_none_is_told_and_what_was_made_is_removed() -> None:
    middleware = Middleware()
    steps = msgspec.structs.replace(REGISTRATION, listing=Say("get", "/devices"), listed="$.nowhere")
    async with serving(middleware) as url:
        one = Controller(steps, url, plan(), {"run": "r1"}, lambda: 0)
        with pytest.raises(ContenderError, match=r"list of controller controller: GET /devices failed: no list at"):
            await one.register()
        assert one.listed is None
        assert await one.remove() == 0
    assert not middleware.nodes


async def test_a_refusal_names_step_status_and_answer_and_what_was_made_is_removed() -> None:
    middleware = Middleware(refuse="air-30")
    async with serving(middleware) as url:
        one = controller(url)
        with pytest.raises(ContenderError) as caught:
            await one.register()
        assert "register of device air-30: POST /devices" in caught.value.message
        assert "status 500" in caught.value.message
        assert caught.value.message.count("no room") == 25
        assert 0 < len(middleware.nodes) < 43
        assert await one.remove() == 0
    assert not middleware.nodes
    assert not middleware.resources
    failed = [row for row in one.rows if row[OPERATIONS.column_names.index("outcome")] == "refused"]
    assert [row[OPERATIONS.column_names.index("reason")] for row in failed] == [500]


async def test_whoever_is_interrupted_registers_nobody_else_and_cleans_up() -> None:
    middleware = Middleware()
    async with serving(middleware) as url:
        one = controller(url)
        one._watch = lambda done, _of: one.stop() if done == 60 else None
        await one.register()
        assert 0 < len(middleware.nodes) < 43
        assert await one.remove() == 0
    assert not middleware.nodes
    assert not middleware.resources


async def test_nobody_there_is_a_contender_error() -> None:
    async with serving(Middleware()) as url:
        one = controller(url)
    with pytest.raises(ContenderError, match=r"login of controller.*no proper answer"):
        await one.register()
    assert [row[OPERATIONS.column_names.index("outcome")] for row in one.rows] == ["error"]


def test_a_name_nobody_knows_is_a_mistake_of_the_file() -> None:
    with pytest.raises(InputError, match="uuid"):
        rendered(Say("get", "/devices/${uuid}"), {})


def test_requests_quote_what_goes_into_paths_and_say_what_they_carry() -> None:
    target, headers, body = rendered(
        Say("put", "/a/${name}?x=${name|url}", headers={"X-M2M-RI": "r-${name}"}, json={"n": "${name}"}),
        {"name": 'ä "/'},
    )
    assert target == "/a/%C3%A4%20%22/?x=%C3%A4%20%22%2F"
    assert headers == {"X-M2M-RI": 'r-ä "/', "Content-Type": "application/json"}
    assert body == b'{"n":"\\u00e4 \\"/"}'


@pytest.mark.parametrize(
    ("say", "status", "body", "wrong"),
    [
        (Say("get"), 204, b"", ""),
        (Say("get"), 301, b"", "status 301"),
        (Say("get", statuses=[409]), 409, b"", ""),
        (Say("get", statuses=[409]), 200, b"", "status 200"),
        (Say("get", success={"$.ok": True}), 200, b'{"ok": true}', ""),
        (Say("get", success={"$.ok": True}), 200, b'{"ok": false}', "status 200, but not"),
        (Say("get", success={"$.ok": True}), 200, b"<html>", "status 200, but not"),
        (Say("get", keep={"a": "$.a"}), 200, b"{}", "no $.a to keep as a"),
    ],
)
def test_what_an_answer_is_worth(say: Say, status: int, body: bytes, wrong: str) -> None:
    found = heard(say, status, {}, body)[1]
    assert wrong in found
    assert bool(wrong) == bool(found)


def test_publishers_know_who_listens_to_each_topic() -> None:
    script = Script(
        "http", publish=Say("post", "/messages", json={"to": ["${listener.uuid}"], "cc": "${listener.name}"})
    )
    registered = Registered({}, {f"client {n}": {"uuid": f"u{n}"} for n in range(3)}, {"a/air-1": {"own": "x"}})
    listeners_of_topics(plan(), registered, {"http": script})
    assert registered.topics["a/air-1"] == {
        "own": "x", "listener.uuid": ["u0", "u1", "u2"], "listener.name": ["all-1", "all-2", "one-1"],
    }  # fmt: skip
    assert registered.topics["a/air-2"]["listener.uuid"] == ["u0", "u1"]


def test_nothing_is_listed_for_dialects_that_do_not_ask() -> None:
    registered = Registered()
    listeners_of_topics(plan(), registered, {"http": Script("http", publish=Say("post", "/${topic}"))})
    assert registered.topics == {}
