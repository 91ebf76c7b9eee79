"""A contract server for tests, in the place of Eclipse OM2M: HTTP, and the MQTT binding for requests.

It is NOT OM2M. It is written from the REST API and MQTT Binding pages of its wiki, and from what subscribers to it read
in its notifications. Differences: one user (admin:admin) instead of access policies, memory instead of a database, and
the MQTT broker, which OM2M wants beside it, is inside. Run as `python -m support.middleware.om2m`; it prints its ports.
"""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Awaitable, Callable
from typing import Any

import aiohttp
from aiohttp import web

from support.middleware.embedded_mqtt import Client, EmbeddedMqtt, Rules
from support.middleware.om2m_tree import (
    CSE_ID,
    NAMES,
    DeniedError,
    Members,
    Resource,
    Tree,
    from_xml,
    structured,
    to_xml,
)
from support.middleware.serving import ports_from_command_line, serve

ADMIN = "admin:admin"
JSON, XML = "application/json", "application/xml"
CREATE, RETRIEVE, UPDATE, DELETE = 1, 2, 3, 4
OPERATIONS = {"POST": CREATE, "GET": RETRIEVE, "PUT": UPDATE, "DELETE": DELETE}
STATUSES = {2000: 200, 2001: 201, 2002: 200, 2004: 200}
ANSWERED_WITHIN_S = 5.0
_REQUEST = re.compile(rf"/oneM2M/req/([^/]+)/{CSE_ID}/json")


class Cse:
    """Does what is asked, whoever carried the request, and tells subscribers over HTTP, each in order."""

    def __init__(self) -> None:
        self.tree = Tree()
        self._session: aiohttp.ClientSession | None = None
        self._queues: dict[str, asyncio.Queue[Members]] = {}
        self._tasks: dict[str, asyncio.Task[None]] = {}

    async def act(
        self, origin: str, operation: int, path: str, type_: int = 0, body: Any = None, format_: str = JSON
    ) -> tuple[int, str, Any, Resource]:
        """Its code, the name and the members of what it answers with, and the resource."""
        if origin != ADMIN:
            raise DeniedError(4103, 403, "Access denied")
        there = self.tree.found(path)
        if operation == RETRIEVE:
            return 2000, there.name, there.members, there
        if operation == DELETE:
            self._forget(there)
            self.tree.remove(there)
            return 2002, there.name, there.members, there
        name = "m2m:" + NAMES.get(type_ if operation == CREATE else there.type, "?")
        if not isinstance(body, dict) or not isinstance(body.get(name), dict):
            raise DeniedError(4000, 400, "Resource type and payload do not match")
        if operation == UPDATE:
            there.members |= body[name]
            return 2004, name, there.members, there
        made = self.tree.make(there, type_, body[name])
        if type_ == 23:
            made.members["_format"] = format_
            await self._verify(made)
        elif type_ in (2, 3, 4):
            self._tell(there, made)
        return 2001, name, told(made.members), made

    async def _verify(self, subscription: Resource) -> None:
        try:
            for url in subscription.members["nu"]:
                await self._post(url, {"m2m:vrq": True, "m2m:sud": False}, subscription)
        except (aiohttp.ClientError, OSError, TimeoutError, ValueError):
            self.tree.remove(subscription)
            raise DeniedError(5204, 500, "Error during the verification of the notification URI") from None

    def _tell(self, parent: Resource, made: Resource) -> None:
        for subscription in [each for each in parent.children.values() if each.type == 23]:
            event = {"m2m:nev": {"m2m:rep": {made.name: told(made.members)}, "m2m:rss": 1}}
            name = subscription.identity
            if name not in self._queues:
                self._queues[name] = asyncio.Queue()
                self._tasks[name] = asyncio.create_task(self._deliver(subscription, self._queues[name]))
            self._queues[name].put_nowait(event | {"m2m:sud": False, "m2m:sur": structured(subscription)})

    async def _deliver(self, subscription: Resource, queue: asyncio.Queue[Members]) -> None:
        while True:
            event = await queue.get()
            for url in subscription.members["nu"]:
                try:
                    await self._post(url, event, subscription)
                except (aiohttp.ClientError, OSError, TimeoutError, ValueError):
                    continue

    async def _post(self, url: str, members: Members, subscription: Resource) -> None:
        if self._session is None:
            self._session = aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(ANSWERED_WITHIN_S))
        format_ = subscription.members["_format"]
        body = json.dumps({"m2m:sgn": members}).encode() if format_ == JSON else to_xml("m2m:sgn", members)
        headers = {"Content-Type": format_, "X-M2M-Origin": f"/{CSE_ID}"}
        async with self._session.post(url, data=body, headers=headers) as answer:
            answer.raise_for_status()

    def _forget(self, resource: Resource) -> None:
        for child in resource.children.values():
            self._forget(child)
        self._queues.pop(resource.identity, None)
        if resource.identity in self._tasks:
            self._tasks.pop(resource.identity).cancel()

    async def close(self) -> None:
        for task in self._tasks.values():
            task.cancel()
        if self._session is not None:
            await self._session.close()


def told(members: Members) -> Members:
    """Without what is only known inside."""
    return {name: value for name, value in members.items() if not name.startswith("_")}


class HttpSide:
    """The REST API below `/~`."""

    def __init__(self, cse: Cse) -> None:
        self.cse = cse

    async def answer(self, request: web.Request) -> web.Response:
        sent = request.headers.get("Content-Type", "")
        wanted = request.headers.get("Accept", XML)
        json_wanted = JSON in wanted
        try:
            if "fu" in request.query and request.method == "GET":
                return self._discovered(request, json_wanted=json_wanted)
            type_ = int(found[1]) if (found := re.search(r"ty=(\d+)", sent)) else 0
            body = read(await request.read(), sent)
            format_ = XML if XML in sent else JSON
            origin = request.headers.get("X-M2M-Origin", "")
            code, name, members, resource = await self.cse.act(
                origin, OPERATIONS[request.method], request.match_info["path"], type_, body, format_
            )
        except DeniedError as denied:
            headers = {"X-M2M-RSC": str(denied.code)}
            return web.Response(status=denied.status, text=denied.words, headers=headers)
        headers = {"X-M2M-RSC": str(code), "Content-Location": resource.identity}
        if "X-M2M-RI" in request.headers:
            headers["X-M2M-RI"] = request.headers["X-M2M-RI"]
        return self._represented(STATUSES[code], name, told(members), headers, json_wanted=json_wanted)

    def _discovered(self, request: web.Request, *, json_wanted: bool) -> web.Response:
        if request.headers.get("X-M2M-Origin", "") != ADMIN:
            raise DeniedError(4103, 403, "Access denied")
        type_ = int(request.query["ty"]) if "ty" in request.query else None
        tree = self.cse.tree
        found = tree.below(tree.found(request.match_info["path"]), type_)
        body = json.dumps({"m2m:uril": found}) if json_wanted else " ".join(found)
        return web.Response(text=body, content_type=JSON if json_wanted else XML, headers={"X-M2M-RSC": "2000"})

    @staticmethod
    def _represented(
        status: int, name: str, members: Members, headers: dict[str, str], *, json_wanted: bool
    ) -> web.Response:
        body = json.dumps({name: members}).encode() if json_wanted else to_xml(name, members)
        return web.Response(status=status, body=body, content_type=JSON if json_wanted else XML, headers=headers)


def read(body: bytes, sent: str) -> Any:
    """A body in either representation as JSON has it; nothing for nothing."""
    try:
        if not body:
            return None
        if XML in sent:
            name, members = from_xml(body)
            return {name: members}
        return json.loads(body)
    except (ValueError, SyntaxError):
        raise DeniedError(4000, 400, "Incorrect resource representation in content") from None


class MqttSide:
    """Requests on `/oneM2M/req/WHO/in-cse/json`, each answered on `/oneM2M/resp/in-cse/WHO/json`."""

    def __init__(self, cse: Cse) -> None:
        self.cse = cse
        self.broker = EmbeddedMqtt(Rules(_anybody, _anything, _anything, self._received))

    async def _received(self, client: Client, topic: str, data: bytes) -> bool:
        who = _REQUEST.fullmatch(topic)
        if who is None:
            return True
        answer: Members = {"m2m:fr": f"/{CSE_ID}", "m2m:to": who[1]}
        try:
            asked = json.loads(data)["m2m:rqp"]
            answer["m2m:rqi"] = asked["m2m:rqi"]
            code, name, members, _ = await self.cse.act(
                asked["m2m:fr"], asked["m2m:op"], asked["m2m:to"], asked.get("m2m:ty", 0), asked.get("m2m:pc")
            )
            answer |= {"m2m:rsc": code, "m2m:pc": {name: told(members)}}
        except DeniedError as denied:
            answer |= {"m2m:rsc": denied.code, "m2m:pc": denied.words}
        except (KeyError, TypeError, ValueError):
            answer |= {"m2m:rsc": 4000, "m2m:pc": "Invalid content provided in request primitive"}
        body = json.dumps({"m2m:rsp": answer}, separators=(",", ":")).encode()
        await self.broker.publish(f"/oneM2M/resp/{CSE_ID}/{who[1]}/json", body)
        return False


def _anybody(client: Client, password: str | None) -> bool:
    return True


def _anything(client: Client, topic: str) -> bool:
    return True


def main() -> None:
    ports = ports_from_command_line("http", "mqtt")
    cse = Cse()
    application = web.Application()
    handler: Callable[[web.Request], Awaitable[web.StreamResponse]] = HttpSide(cse).answer
    application.router.add_route("*", "/~/{path:.*}", handler)
    application.on_cleanup.append(lambda _: cse.close())
    serve(application, ports, mqtt=MqttSide(cse).broker.start)


if __name__ == "__main__":
    main()
