"""A contract server for tests, in the place of Meshblu 1.18.4: HTTP, WebSocket (/ws/v2), MQTT and CoAP.

It is NOT Meshblu. It is written from calls and answers recorded once from version 1.18.4 and from its public
documentation, and proved with the vendor's clients from npm. Differences: no rate limits, tokens in the clear and in
memory, amqtt in the place of mosca, no heartbeat to observers over CoAP, who as with the product hear nothing before
their first message. Run as `python -m support.middleware.meshblu`; it prints its ports.
"""

from __future__ import annotations

import asyncio
import base64
import json
import secrets
import uuid
from collections.abc import Awaitable, Callable
from typing import Any

from aiohttp import WSMsgType, web

from support.middleware.embedded_mqtt import Client, EmbeddedMqtt, Rules
from support.middleware.meshblu_coap import CoapSide
from support.middleware.meshblu_devices import Device, Devices, FailedError, Tell
from support.middleware.serving import ports_from_command_line, serve

TOPICS = ("message", "update", "whoami", "generateAndStoreToken", "resetToken", "getPublicKey", "tb")
Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


class HttpSide:
    """The REST calls and the stream of messages."""

    def __init__(self, devices: Devices) -> None:
        self.devices = devices

    def routes(self) -> list[web.RouteDef]:
        return [
            web.get("/status", self.status),
            web.get("/healthcheck", self.healthcheck),
            web.post("/devices", self.register),
            web.get("/devices/{uuid}", self.read),
            web.get("/v2/devices/{uuid}", self.read_v2),
            web.get("/v2/whoami", self.whoami),
            web.put("/devices/{uuid}", self.update),
            web.patch("/v2/devices/{uuid}", self.update_v2),
            web.put("/v2/devices/{uuid}", self.update_v2),
            web.delete("/devices/{uuid}", self.unregister),
            web.post("/devices/{uuid}/tokens", self.new_token),
            web.post("/messages", self.message),
            web.post("/data/{uuid}", self.store),
            web.get("/data/{uuid}", self.stored),
            web.get("/subscribe", self.stream),
            web.get("/subscribe/{uuid}", self.stream),
        ]

    async def status(self, request: web.Request) -> web.Response:
        return web.json_response({"meshblu": "online"})

    async def healthcheck(self, request: web.Request) -> web.Response:
        return web.json_response({"online": True})

    async def register(self, request: web.Request) -> web.Response:
        device = self.devices.register(await document(request), request.remote or "")
        return web.json_response(device.told(with_token=True), status=201)

    async def read(self, request: web.Request) -> web.Response:
        found = self.devices.seen_by(self._asker(request), request.match_info["uuid"])
        return web.json_response({"devices": [found.told()]})

    async def read_v2(self, request: web.Request) -> web.Response:
        return web.json_response(self.devices.seen_by(self._asker(request), request.match_info["uuid"]).told())

    async def whoami(self, request: web.Request) -> web.Response:
        return web.json_response(self._asker(request).told())

    async def update(self, request: web.Request) -> web.Response:
        changed = self.devices.update(self._asker(request), request.match_info["uuid"], await document(request))
        return web.json_response(changed.told())

    async def update_v2(self, request: web.Request) -> web.Response:
        given = await document(request)
        given = given.get("$set", given) if request.method == "PUT" else given
        self.devices.update(self._asker(request), request.match_info["uuid"], given)
        return web.Response(status=204)

    async def unregister(self, request: web.Request) -> web.Response:
        target = request.match_info["uuid"]
        self.devices.unregister(self._asker(request), target)
        return web.json_response({"uuid": target})

    async def new_token(self, request: web.Request) -> web.Response:
        device = self.devices.changeable_by(self._asker(request), request.match_info["uuid"])
        token = secrets.token_hex(20)
        device.tokens.add(token)
        return web.json_response({"uuid": device.uuid, "token": token}, status=201)

    async def message(self, request: web.Request) -> web.Response:
        asker, given = self._asker(request), await document(request)
        await self.devices.send(asker, given)
        return web.json_response(given)

    async def store(self, request: web.Request) -> web.Response:
        asker, given = self._asker(request), await document(request)
        device = self.devices.seen_by(asker, request.match_info["uuid"])
        # Stored from a form in the product: numbers come back as texts.
        texts = {name: value if isinstance(value, str | dict | list) else str(value) for name, value in given.items()}
        device.data.append(texts | {"uuid": device.uuid})
        await self.devices.send(asker, {"devices": "*", "payload": given})
        return web.Response(status=201)

    async def stored(self, request: web.Request) -> web.Response:
        device = self.devices.seen_by(self._asker(request), request.match_info["uuid"])
        return web.json_response({"data": device.data[::-1]})

    async def stream(self, request: web.Request) -> web.StreamResponse:
        asker = self._asker(request)
        target = request.match_info.get("uuid", asker.uuid)
        self.devices.seen_by(asker, target)
        answer = web.StreamResponse(headers={"Content-Type": "application/json"})
        answer.enable_chunked_encoding()
        await answer.prepare(request)

        async def tell(message: dict[str, Any]) -> None:
            await answer.write(json.dumps(message, separators=(",", ":")).encode() + b"\n")

        with self.devices.listening(target, tell, own=target == asker.uuid):
            await asyncio.Event().wait()  # until the asker goes away, which cancels this
        return answer

    def _asker(self, request: web.Request) -> Device:
        headers = request.headers
        kind, _, credentials = headers.get("Authorization", "").partition(" ")
        if kind == "Basic":
            name, _, token = base64.b64decode(credentials).decode().partition(":")
        else:
            name = headers.get("meshblu_auth_uuid", headers.get("skynet_auth_uuid", ""))
            token = headers.get("meshblu_auth_token", headers.get("skynet_auth_token", ""))
        return self.devices.authenticated(name.strip(), token.strip())


@web.middleware
async def with_errors(request: web.Request, handler: Handler) -> web.StreamResponse:
    try:
        return await handler(request)
    except FailedError as failed:
        return web.json_response({"error": failed.told()}, status=failed.code)


async def document(request: web.Request) -> dict[str, Any]:
    try:
        given = json.loads(await request.read() or b"{}")
    except ValueError:
        raise FailedError(400, "invalid JSON") from None
    if not isinstance(given, dict):
        raise FailedError(400, "invalid JSON")
    return given


class WebSocketSide:
    """Frames are JSON arrays of a type and data."""

    def __init__(self, devices: Devices) -> None:
        self.devices = devices

    async def connected(self, request: web.Request) -> web.WebSocketResponse:
        socket = web.WebSocketResponse()
        await socket.prepare(request)

        async def frame(kind: str, data: Any = None) -> None:
            if not socket.closed:
                await socket.send_str(json.dumps([kind, data], separators=(",", ":")))

        async def tell(message: dict[str, Any]) -> None:
            await frame("message", message)

        session = _WsSession(self.devices, frame, tell)
        try:
            async for received in socket:
                if received.type == WSMsgType.TEXT:
                    await session.take(received.data)
        finally:
            session.close()
        return socket


class _WsSession:
    def __init__(self, devices: Devices, frame: Callable[..., Awaitable[None]], tell: Tell) -> None:
        self.devices = devices
        self.frame = frame
        self.tell = tell
        self.uuid = self.token = ""
        self.handles: list[Any] = []

    def close(self) -> None:
        for handle in self.handles:
            handle.__exit__(None, None, None)

    def listen(self, target: str, *, own: bool) -> None:
        handle = self.devices.listening(target, self.tell, own=own)
        handle.__enter__()
        self.handles.append(handle)

    async def take(self, text: str) -> None:
        try:
            parsed = json.loads(text)
        except ValueError:
            parsed = None
        if not isinstance(parsed, list) or not parsed:
            words = "invalid frame, must be in the form of [type, data]"
            await self.frame("error", {"message": words, "frame": text})
            return
        kind, data = parsed[0], parsed[1] if len(parsed) > 1 else {}
        act = getattr(self, f"on_{kind}", None)
        if act is None:
            return
        try:
            await act(data or {})
        except FailedError as failed:
            await self.frame("error", {"message": failed.message, "frame": [kind, data], "code": failed.code})

    async def on_identity(self, data: dict[str, Any]) -> None:
        self.uuid, self.token = str(data.get("uuid")), str(data.get("token"))
        try:
            device = self._asker()
        except FailedError:
            await self.frame("notReady", {"message": "unauthorized", "status": 401})
            return
        self.listen(device.uuid, own=True)
        await self.frame("ready", {"uuid": self.uuid, "token": self.token, "status": 200})
        online = {"devices": "*", "topic": "device-status", "payload": {"online": True}}
        await self.devices.send(device, online, to_itself=False)

    async def on_message(self, data: dict[str, Any]) -> None:
        await self.devices.send(self._asker(), data)

    async def on_subscribe(self, data: dict[str, Any]) -> None:
        target = self.devices.seen_by(self._asker(), data.get("uuid", ""))
        self.listen(target.uuid, own=False)

    async def on_unsubscribe(self, data: dict[str, Any]) -> None:
        self.devices.forget(data.get("uuid", ""), self.tell)

    async def on_register(self, data: dict[str, Any]) -> None:
        await self.frame("registered", self.devices.register(data, "127.0.0.1").told(with_token=True))

    async def on_unregister(self, data: dict[str, Any]) -> None:
        self.devices.unregister(self._asker(), data.get("uuid", ""))
        await self.frame("unregistered", {"uuid": data.get("uuid")})

    async def on_update(self, data: Any) -> None:
        query, params = data if isinstance(data, list) else (data, data)
        changed = self.devices.update(self._asker(), query.get("uuid", ""), params.get("$set", params))
        await self.frame("updated", {"uuid": changed.uuid})

    async def on_whoami(self, _: Any) -> None:
        await self.frame("whoami", self._asker().told())

    async def on_device(self, data: dict[str, Any]) -> None:
        await self.frame("device", self.devices.seen_by(self._asker(), data.get("uuid", "")).told())

    async def on_status(self, _: Any) -> None:
        await self.frame("status", {"meshblu": "online"})

    def _asker(self) -> Device:
        return self.devices.authenticated(self.uuid, self.token)


class MqttSide:
    """Log in with uuid and token, publish to `message`, receive on the own uuid."""

    def __init__(self, devices: Devices) -> None:
        self.devices = devices
        rules = Rules(self._connects, self._publishes, self._subscribes, self._received)
        self.broker = EmbeddedMqtt(rules)
        devices.everywhere = self._tell

    def _connects(self, client: Client, password: str | None) -> bool:
        try:
            self.devices.authenticated(client.username or "", password or "")
        except FailedError:
            return False
        return True

    def _publishes(self, client: Client, topic: str) -> bool:
        return topic in TOPICS

    def _subscribes(self, client: Client, topic: str) -> bool:
        return topic == client.username or topic.endswith(("_bc", "_tb"))

    async def _received(self, client: Client, topic: str, data: bytes) -> bool:
        try:
            given = json.loads(data)
            device = self.devices.known(client.username or "")
        except (ValueError, FailedError):
            return False
        if not isinstance(given, dict):
            return False
        try:
            await self._act(device, topic, given)
        except FailedError as failed:
            await self._answer(device, "error", {"message": failed.message}, given)
        return False

    async def _act(self, device: Device, topic: str, given: dict[str, Any]) -> None:
        if topic in ("message", "tb"):
            await self.devices.send(device, given)
        elif topic == "update":
            changes = {name: value for name, value in given.items() if name not in ("callbackId", "fromUuid")}
            self.devices.update(device, given.get("uuid", device.uuid), changes)
            await self._answer(device, "update", {}, given)
        elif topic == "whoami":
            await self._answer(device, "whoami", device.told(), given)
        elif topic == "generateAndStoreToken":
            target = self.devices.changeable_by(device, given.get("uuid", ""))
            token = secrets.token_hex(20)
            target.tokens.add(token)
            await self._answer(device, topic, {"uuid": target.uuid, "token": token, "tag": given.get("tag")}, given)

    async def _answer(self, device: Device, topic: str, data: Any, request: dict[str, Any]) -> None:
        told = {"topic": topic, "data": data, "_request": request}
        await self.broker.publish(device.uuid, json.dumps(told, separators=(",", ":")).encode(), 0)

    async def _tell(self, target: str, message: dict[str, Any]) -> None:
        told = {"topic": "message", "data": message}
        await self.broker.publish(target, json.dumps(told, separators=(",", ":")).encode(), 0)


def main() -> None:
    ports = ports_from_command_line("http", "mqtt", "coap")
    devices = Devices(new_uuid=lambda: str(uuid.uuid4()), new_token=lambda: secrets.token_hex(20))
    application = web.Application(middlewares=[with_errors])
    application.add_routes(HttpSide(devices).routes())
    application.add_routes([web.get("/ws/v2", WebSocketSide(devices).connected)])
    serve(application, ports, mqtt=MqttSide(devices).broker.start, coap=CoapSide(devices).start)


if __name__ == "__main__":
    main()
