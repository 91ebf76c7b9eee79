"""A contract server for tests, in the place of DeviceHive 3.5: REST with long polling, WebSocket and MQTT.

It is NOT DeviceHive. It is written from its public documentation and from what its Python client sends, and proved
with that client. Paths as behind the product's own proxy (/api/rest, /auth/rest, /api/websocket) and without it
(/dh/rest, /dh/websocket). One user, `dhadmin`; no plug-ins, no permissions; amqtt in the place of devicehive-mqtt.
Run as `python -m support.middleware.devicehive`; it prints its ports as JSON when it is ready.
"""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable
from typing import Any

from aiohttp import WSMsgType, web

from support.middleware.devicehive_state import ADMIN, NEEDS_NO_TOKEN, Document, Hive, Principal, RefusedError
from support.middleware.embedded_mqtt import Client, EmbeddedMqtt, Rules
from support.middleware.serving import ports_from_command_line, serve

BASES = ("/dh/rest", "/api/rest", "/auth/rest")
SOCKETS = ("/dh/websocket", "/api/websocket", "/auth/websocket")
Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


class RestSide:
    """Every call is an action of the hive; only polling is its own."""

    def __init__(self, hive: Hive) -> None:
        self.hive = hive

    def routes(self) -> list[web.RouteDef]:
        found: list[web.RouteDef] = []
        for base in BASES:
            found += [
                web.get(base + "/info", self._call("server/info", 200, answer="info")),
                web.get(base + "/info/config/cluster", self._call("cluster/info", 200, answer="clusterInfo")),
                web.post(base + "/token", self._call("token", 201)),
                web.post(base + "/token/refresh", self._call("token/refresh", 201)),
                web.post(base + "/token/create", self._call("token/create", 201)),
                web.get(base + "/network", self._call("network/list", 200, answer="networks")),
                web.post(base + "/network", self._call("network/insert", 201, body="network", answer="network")),
                web.get(base + "/network/{networkId}", self._call("network/get", 200, answer="network")),
                web.delete(base + "/network/{networkId}", self._call("network/delete", 204)),
                web.get(base + "/device", self._call("device/list", 200, answer="devices")),
            ]
            for kind in ("notification", "command"):
                messages = base + "/device/{deviceId}/" + kind
                found += [
                    web.get(base + f"/device/{kind}/poll", self._poll(kind)),
                    web.get(messages + "/poll", self._poll(kind)),
                    web.post(messages, self._call(f"{kind}/insert", 201, body=kind, answer=kind)),
                    web.get(messages, self._call(f"{kind}/list", 200, answer=kind + "s")),
                ]
            found += [
                web.put(base + "/device/{deviceId}", self._call("device/save", 204, body="device")),
                web.get(base + "/device/{deviceId}", self._call("device/get", 200, answer="device")),
                web.delete(base + "/device/{deviceId}", self._call("device/delete", 204)),
            ]
        return found

    def _call(self, action: str, status: int, body: str = "", answer: str = "") -> Handler:
        async def handle(request: web.Request) -> web.Response:
            given: Document = dict(request.query) | dict(request.match_info)
            if request.can_read_body:
                read = await document(request)
                given |= {body: read} if body else read
            who = self._asker(request, required=action not in NEEDS_NO_TOKEN)
            told = await self.hive.act(who, action, given)
            if status == 204:
                return web.Response(status=204)
            return web.json_response(told[answer] if answer else told, status=status)

        return handle

    def _poll(self, kind: str) -> Handler:
        async def handle(request: web.Request) -> web.Response:
            self._asker(request, required=True)
            query = request.query
            given: Document = dict(request.match_info)
            if "deviceId" in query:
                given["deviceId"] = query["deviceId"]
            for name in ("networkIds", "deviceTypeIds", "names"):
                given[name] = [each for each in query.get(name, "").split(",") if each]
            try:
                wait_s, limit = float(query.get("waitTimeout", 30)), int(query.get("limit", 100))
            except ValueError:
                raise RefusedError(400, "Invalid request parameters") from None
            if not 0 <= wait_s <= 60:
                raise RefusedError(400, "waitTimeout should be between 0 and 60")
            wanted = self.hive.filter(kind, given)
            return web.json_response(await self.hive.poll(wanted, query.get("timestamp"), wait_s, limit))

        return handle

    def _asker(self, request: web.Request, *, required: bool) -> Principal:
        kind, _, token = request.headers.get("Authorization", "").partition(" ")
        if kind != "Bearer":
            if required:
                raise RefusedError(401, "Unauthorized")
            return Principal()
        return Principal(self.hive.login_of(token))


async def document(request: web.Request) -> Any:
    try:
        return json.loads(await request.read())
    except ValueError:
        raise RefusedError(400, "Invalid JSON syntax") from None


@web.middleware
async def with_errors(request: web.Request, handler: Handler) -> web.StreamResponse:
    try:
        return await handler(request)
    except RefusedError as refused:
        return web.json_response({"error": refused.code, "message": refused.words}, status=refused.code)


async def answered(hive: Hive, who: Principal, text: str | bytes) -> Document | None:
    """The answer to one request of the WebSocket kind, whatever it came on."""
    try:
        request = json.loads(text)
    except ValueError:
        return {"action": None, "status": "error", "code": 400, "error": "Invalid JSON syntax"}
    if not isinstance(request, dict):
        return {"action": None, "status": "error", "code": 400, "error": "Invalid JSON syntax"}
    action = str(request.get("action"))
    head = {"action": action, "requestId": request.get("requestId")}
    try:
        told = await hive.act(who, action, request)
    except RefusedError as refused:
        return head | {"status": "error", "code": refused.code, "error": refused.words}
    return head | {"status": "success"} | told


class WebSocketSide:
    """Requests and answers share `requestId`; pushes have none."""

    def __init__(self, hive: Hive) -> None:
        self.hive = hive

    async def connected(self, request: web.Request) -> web.WebSocketResponse:
        socket = web.WebSocketResponse()
        await socket.prepare(request)

        async def push(message: Document) -> None:
            if not socket.closed:
                await socket.send_str(json.dumps(message, separators=(",", ":")))

        who = Principal(push=push)
        self.hive.principals.append(who)
        try:
            async for received in socket:
                if received.type in (WSMsgType.TEXT, WSMsgType.BINARY):
                    answer = await answered(self.hive, who, received.data)
                    if answer is not None:
                        await push(answer)
        finally:
            self.hive.principals.remove(who)
        return socket


class MqttSide:
    """Requests go to `dh/request`, answers to `dh/response/ACTION@CLIENT`; notifications have topics of their own."""

    def __init__(self, hive: Hive) -> None:
        self.hive = hive
        self.principals: dict[str, Principal] = {}
        self.private: set[tuple[str, str]] = set()
        self.broker = EmbeddedMqtt(Rules(self._connects, self._publishes, self._subscribes, self._received))
        hive.told.append(self._told)

    def _connects(self, client: Client, password: str | None) -> bool:
        if client.username is not None and ADMIN.get(client.username) != password:
            return False
        self.principals[client.client_id] = Principal(client.username)
        return True

    def _publishes(self, client: Client, topic: str) -> bool:
        return topic == "dh/request" or not topic.startswith("dh/")

    def _subscribes(self, client: Client, topic: str) -> bool:
        if not topic.startswith("dh/"):
            return True
        plain, at, owner = topic.partition("@")
        if at and owner != client.client_id:
            return False
        if topic.startswith("dh/response/"):
            return bool(at)
        if self.principals[client.client_id].login is None:
            return False
        if at:
            self.private.add((plain, owner))
        return topic.split("/")[1] in ("notification", "command", "command_update")

    async def _received(self, client: Client, topic: str, data: bytes) -> bool:
        if topic != "dh/request":
            return True
        answer = await answered(self.hive, self.principals[client.client_id], data)
        if answer is not None and answer["action"]:
            await self._send(f"dh/response/{answer['action']}@{client.client_id}", answer)
        return False

    async def _told(self, kind: str, message: Document) -> None:
        place = (kind, message["networkId"], message["deviceTypeId"], message["deviceId"], message[kind])
        topic = "dh/" + "/".join(map(str, place))
        pushed = {"action": f"{kind}/insert", kind: message, "subscriptionId": 0}
        await self._send(topic, pushed)
        for plain, owner in [*self.private]:
            if plain == topic:
                await self._send(f"{topic}@{owner}", pushed)

    async def _send(self, topic: str, message: Document) -> None:
        await self.broker.publish(topic, json.dumps(message, separators=(",", ":")).encode())


def main() -> None:
    ports = ports_from_command_line("http", "mqtt")
    hive = Hive()
    application = web.Application(middlewares=[with_errors])
    application.add_routes(RestSide(hive).routes())
    application.add_routes([web.get(path, WebSocketSide(hive).connected) for path in SOCKETS])
    serve(application, ports, mqtt=MqttSide(hive).broker.start)


if __name__ == "__main__":
    main()
