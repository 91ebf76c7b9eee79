"""How the contract server for Orion tells: notifications by HTTP and by MQTT, each subscription in order.

A contract server for tests, not Orion. Counts and times of each subscription's notifications are written into it.
"""

from __future__ import annotations

import asyncio
import json
import uuid
from datetime import UTC, datetime
from typing import Any
from urllib.parse import urlsplit

import aiohttp
import paho.mqtt.client as paho

from support.middleware.orion_context import Told


def moment() -> str:
    return datetime.now(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


class Postman:
    """Carries notifications: one queue for each subscription, so that nobody overtakes."""

    def __init__(self) -> None:
        self._queues: dict[str, asyncio.Queue[tuple[Told, dict[str, str]]]] = {}
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._session: aiohttp.ClientSession | None = None
        self._clients: dict[str, paho.Client] = {}

    def send(self, due: list[Told], headers: dict[str, str]) -> None:
        for told in due:
            name = told.subscription["id"]
            if name not in self._queues:
                self._queues[name] = asyncio.Queue()
                self._tasks[name] = asyncio.create_task(self._deliver(self._queues[name]))
            self._queues[name].put_nowait((told, headers))

    def forget(self, name: str) -> None:
        self._queues.pop(name, None)
        if name in self._tasks:
            self._tasks.pop(name).cancel()

    async def close(self) -> None:
        for task in self._tasks.values():
            task.cancel()
        for client in self._clients.values():
            client.disconnect()
            client.loop_stop()
        if self._session is not None:
            await self._session.close()

    async def _deliver(self, queue: asyncio.Queue[tuple[Told, dict[str, str]]]) -> None:
        while True:
            told, headers = await queue.get()
            asked = told.subscription["notification"]
            asked["timesSent"] = asked.get("timesSent", 0) + 1
            asked["lastNotification"] = moment()
            try:
                if "http" in asked or "httpCustom" in asked:
                    way = asked.get("http") or asked["httpCustom"]
                    asked["lastSuccessCode"] = await self._post(way, told, headers)
                else:
                    await self._publish(asked.get("mqtt") or asked["mqttCustom"], told)
                asked["lastSuccess"] = moment()
                asked["failsCounter"] = 0
            except (aiohttp.ClientError, OSError, TimeoutError, ValueError) as error:
                asked["lastFailure"] = moment()
                asked["lastFailureReason"] = str(error)
                asked["failsCounter"] = asked.get("failsCounter", 0) + 1

    async def _post(self, way: dict[str, Any], told: Told, headers: dict[str, str]) -> int:
        if self._session is None:
            self._session = aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(5))
        sent = {
            "Content-Type": "application/json; charset=utf-8",
            "User-Agent": "orion-contract-server",
            "Ngsiv2-AttrsFormat": told.shape,
            "Fiware-Correlator": str(uuid.uuid4()),
        }
        sent |= headers | way.get("headers", {})
        body = json.dumps(told.body, separators=(",", ":"))
        async with self._session.request(way.get("method", "POST"), way["url"], data=body, headers=sent) as answer:
            await answer.read()
            return answer.status

    async def _publish(self, way: dict[str, Any], told: Told) -> None:
        where = urlsplit(way["url"])
        key = f"{where.hostname}:{where.port}:{way.get('user')}"
        if key not in self._clients:
            client = paho.Client(paho.CallbackAPIVersion.VERSION2, client_id=f"orion-{uuid.uuid4().hex[:12]}")
            if way.get("user"):
                client.username_pw_set(way["user"], way.get("passwd"))
            await asyncio.to_thread(client.connect, where.hostname or "127.0.0.1", where.port or 1883)
            client.loop_start()
            self._clients[key] = client
        body = json.dumps(told.body, separators=(",", ":"))
        sent = self._clients[key].publish(way["topic"], body, qos=way.get("qos", 0), retain=way.get("retain", False))
        await asyncio.to_thread(sent.wait_for_publish, 5)
