"""What the contract server for DeviceHive remembers, and its actions; all its protocols speak through `Hive.act`.

A contract server for tests, not DeviceHive. No sockets here. Timestamps have milliseconds, as the product's: a poll
that goes on from the last one never hears what else that millisecond brought.
"""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from itertools import count
from typing import Any

Document = dict[str, Any]
Push = Callable[[Document], Awaitable[None]]
ADMIN = {"dhadmin": "dhadmin_#911"}
NEEDS_NO_TOKEN = ("token", "token/refresh", "authenticate", "server/info", "cluster/info")


class RefusedError(Exception):
    """An error with the code and the words DeviceHive has for it."""

    def __init__(self, code: int, words: str) -> None:
        super().__init__(words)
        self.code = code
        self.words = words


def no_device(identity: Any) -> RefusedError:
    return RefusedError(404, f"Device with such deviceId = {identity} not found")


@dataclass
class Filter:
    """What a subscription or a poll is about."""

    kind: str
    device: str | None = None
    networks: list[int] = field(default_factory=list)
    types: list[int] = field(default_factory=list)
    names: list[str] = field(default_factory=list)

    def fits(self, kind: str, message: Document) -> bool:
        return (
            kind == self.kind
            and (self.device is None or message["deviceId"] == self.device)
            and (not self.networks or message["networkId"] in self.networks)
            and (not self.types or message["deviceTypeId"] in self.types)
            and (not self.names or message[kind] in self.names)
        )


@dataclass
class Principal:
    """A connection: who it is, and what it subscribed to."""

    login: str | None = None
    push: Push | None = None
    subscriptions: dict[int, Filter] = field(default_factory=dict)


class Hive:
    """Users, tokens, networks, devices, notifications and commands."""

    def __init__(self, clock: Callable[[], datetime] = lambda: datetime.now(UTC)) -> None:
        self._clock = clock
        self.access: dict[str, str] = {}
        self.refresh: dict[str, str] = {}
        self.networks: dict[int, Document] = {1: {"id": 1, "name": "Default network", "description": None}}
        self.devices: dict[str, Document] = {}
        self.messages: list[tuple[str, Document]] = []
        self.principals: list[Principal] = []
        self.told: list[Callable[[str, Document], Awaitable[None]]] = []
        """Called with the kind of each message and the message (MQTT finds its listeners by topics)."""
        self._ids = count(1)
        self._news = asyncio.Event()

    def now(self) -> str:
        return self._clock().strftime("%Y-%m-%dT%H:%M:%S.%f")[:-3]

    def login_of(self, token: str) -> str:
        if token not in self.access:
            raise RefusedError(401, "Invalid credentials")
        return self.access[token]

    async def act(self, who: Principal, action: str, given: Document) -> Document:
        """The answer to one action, without its status."""
        known = getattr(self, "on_" + action.replace("/", "_"), None)
        if known is None or action.count("/") > 1:
            raise RefusedError(404, "Unknown action requested: " + action)
        if who.login is None and action not in NEEDS_NO_TOKEN:
            raise RefusedError(401, "Invalid credentials")
        answer: Document = await known(who, given)
        return answer

    async def on_token(self, who: Principal, given: Document) -> Document:
        login, password = given.get("login"), given.get("password")
        if ADMIN.get(str(login)) != password:
            raise RefusedError(401, "Invalid credentials")
        return self._tokens(str(login))

    async def on_token_create(self, who: Principal, given: Document) -> Document:
        return self._tokens(str(who.login))

    def _tokens(self, login: str) -> Document:
        access, refresh = f"access.{secrets.token_hex(24)}", f"refresh.{secrets.token_hex(24)}"
        self.access[access] = self.refresh[refresh] = login
        return {"accessToken": access, "refreshToken": refresh}

    async def on_token_refresh(self, who: Principal, given: Document) -> Document:
        login = self.refresh.get(given.get("refreshToken", ""))
        if login is None:
            raise RefusedError(401, "Invalid credentials")
        return {"accessToken": self._tokens(login)["accessToken"]}

    async def on_authenticate(self, who: Principal, given: Document) -> Document:
        who.login = self.login_of(given.get("token", ""))
        return {}

    async def on_server_info(self, who: Principal, given: Document) -> Document:
        return {"info": {"apiVersion": "3.5.0", "serverTimestamp": self.now(), "about": "a contract server for tests"}}

    async def on_cluster_info(self, who: Principal, given: Document) -> Document:
        return {"clusterInfo": {}}

    async def on_network_insert(self, who: Principal, given: Document) -> Document:
        asked = given.get("network") or {}
        if not asked.get("name"):
            raise RefusedError(400, "Validation failed: network name is empty")
        if any(network["name"] == asked["name"] for network in self.networks.values()):
            raise RefusedError(403, "Network cannot be created. Network with such name already exists.")
        identity = max(self.networks) + 1
        made = {"id": identity, "name": asked["name"], "description": asked.get("description")}
        self.networks[identity] = made
        return {"network": {"id": identity}}

    async def on_network_list(self, who: Principal, given: Document) -> Document:
        found = self.networks.values()
        return {"networks": [network for network in found if given.get("name") in (None, network["name"])]}

    async def on_network_get(self, who: Principal, given: Document) -> Document:
        return {"network": self._network(given.get("networkId"))}

    async def on_network_delete(self, who: Principal, given: Document) -> Document:
        network = self._network(given.get("networkId"))
        inside = [name for name, device in self.devices.items() if device["networkId"] == network["id"]]
        if inside and not given.get("force"):
            raise RefusedError(403, "Failed to delete network with id = " + str(network["id"]))
        for name in inside:
            del self.devices[name]
        del self.networks[network["id"]]
        return {}

    def _network(self, identity: Any) -> Document:
        try:
            return self.networks[int(identity)]
        except (KeyError, TypeError, ValueError):
            raise RefusedError(404, f"Network with id = {identity} not found") from None

    async def on_device_save(self, who: Principal, given: Document) -> Document:
        identity, asked = given.get("deviceId"), given.get("device")
        if not identity:
            raise RefusedError(400, "Device id is wrong or empty")
        if not isinstance(asked, dict) or not asked.get("name"):
            raise RefusedError(400, "Validation failed: device name is empty")
        network = self._network(asked.get("networkId") or 1)
        self.devices[identity] = {
            "id": identity,
            "name": asked["name"],
            "data": asked.get("data"),
            "networkId": network["id"],
            "deviceTypeId": asked.get("deviceTypeId") or 1,
            "isBlocked": bool(asked.get("isBlocked")),
        }
        return {}

    async def on_device_get(self, who: Principal, given: Document) -> Document:
        return {"device": self._device(given.get("deviceId"))}

    async def on_device_list(self, who: Principal, given: Document) -> Document:
        found = self.devices.values()
        return {"devices": [device for device in found if given.get("name") in (None, device["name"])]}

    async def on_device_delete(self, who: Principal, given: Document) -> Document:
        del self.devices[self._device(given.get("deviceId"))["id"]]
        return {}

    def _device(self, identity: Any) -> Document:
        if not identity:
            raise RefusedError(400, "Device id is wrong or empty")
        if identity not in self.devices:
            raise no_device(identity)
        return self.devices[identity]

    async def on_notification_insert(self, who: Principal, given: Document) -> Document:
        return await self._insert("notification", who, given)

    async def on_command_insert(self, who: Principal, given: Document) -> Document:
        return await self._insert("command", who, given)

    async def _insert(self, kind: str, who: Principal, given: Document) -> Document:
        device, asked = self._device(given.get("deviceId")), given.get(kind)
        if not isinstance(asked, dict) or not asked.get(kind):
            raise RefusedError(400, f"{kind.capitalize()} is empty")
        if device["isBlocked"]:
            raise RefusedError(403, "Access is denied")
        message = {
            "id": next(self._ids),
            kind: asked[kind],
            "deviceId": device["id"],
            "networkId": device["networkId"],
            "deviceTypeId": device["deviceTypeId"],
            "timestamp": self.now(),
            "parameters": asked.get("parameters"),
        }
        self.messages.append((kind, message))
        self._news.set()
        self._news = asyncio.Event()
        for principal in [*self.principals]:
            for identity, wanted in [*principal.subscriptions.items()]:
                if principal.push is not None and wanted.fits(kind, message):
                    await principal.push({"action": f"{kind}/insert", kind: message, "subscriptionId": identity})
        for tell in self.told:
            await tell(kind, message)
        return {kind: {"id": message["id"], "timestamp": message["timestamp"]}}

    async def on_notification_list(self, who: Principal, given: Document) -> Document:
        return {"notifications": self._list("notification", given)}

    async def on_command_list(self, who: Principal, given: Document) -> Document:
        return {"commands": self._list("command", given)}

    def _list(self, kind: str, given: Document) -> list[Document]:
        wanted = Filter(kind, self._device(given.get("deviceId"))["id"])
        return [message for known, message in self.messages if wanted.fits(known, message)][: given.get("take") or 100]

    async def on_notification_subscribe(self, who: Principal, given: Document) -> Document:
        return await self._subscribe("notification", who, given)

    async def on_command_subscribe(self, who: Principal, given: Document) -> Document:
        return await self._subscribe("command", who, given)

    async def _subscribe(self, kind: str, who: Principal, given: Document) -> Document:
        wanted = self.filter(kind, given)
        identity = next(self._ids)
        who.subscriptions[identity] = wanted
        since = given.get("timestamp")
        if since and who.push is not None:
            for message in self.after(wanted, since):
                await who.push({"action": f"{kind}/insert", kind: message, "subscriptionId": identity})
        return {"subscriptionId": identity}

    async def on_notification_unsubscribe(self, who: Principal, given: Document) -> Document:
        if who.subscriptions.pop(given.get("subscriptionId", 0), None) is None:
            raise RefusedError(404, "Subscription with such id not found")
        return {}

    on_command_unsubscribe = on_notification_unsubscribe

    def filter(self, kind: str, given: Document) -> Filter:
        device = given.get("deviceId")
        if device is not None:
            self._device(device)
        networks = [self._network(each)["id"] for each in given.get("networkIds") or []]
        types = [int(each) for each in given.get("deviceTypeIds") or []]
        return Filter(kind, device, networks, types, list(given.get("names") or []))

    def after(self, wanted: Filter, timestamp: str) -> list[Document]:
        """Newest messages are at the end, so it is enough to look back until one is too old."""
        found = []
        for kind, message in reversed(self.messages):
            if message["timestamp"] <= timestamp:
                break
            if wanted.fits(kind, message):
                found.append(message)
        return found[::-1]

    async def poll(self, wanted: Filter, timestamp: str | None, wait_s: float, limit: int) -> list[Document]:
        """What came after a moment; waits for the first one when there is none. A limit of 0, the client's, is none."""
        since = timestamp or self.now()
        deadline = asyncio.get_running_loop().time() + wait_s
        while True:
            news = self._news
            found = self.after(wanted, since)
            left = deadline - asyncio.get_running_loop().time()
            if found or left <= 0:
                return found[: limit or None]
            try:
                await asyncio.wait_for(news.wait(), left)
            except TimeoutError:
                return []
