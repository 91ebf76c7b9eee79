"""What the contract server for Meshblu remembers: devices, tokens, and who listens to whom.

A contract server for tests, not Meshblu. No sockets here: its four sides (HTTP, WebSocket, MQTT, CoAP) share it.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

Tell = Callable[[dict[str, Any]], Awaitable[None]]
OPEN = ["*"]


class FailedError(Exception):
    """An error as Meshblu says it."""

    def __init__(self, code: int, message: str) -> None:
        super().__init__(message)
        self.code = code
        self.message = message

    def told(self) -> Any:
        return self.message if self.code == 401 else {"message": self.message, "code": self.code}


@dataclass
class Device:
    uuid: str
    token: str
    properties: dict[str, Any]
    tokens: set[str] = field(default_factory=set)
    data: list[dict[str, Any]] = field(default_factory=list)

    def told(self, *, with_token: bool = False) -> dict[str, Any]:
        shown = {**self.properties, "uuid": self.uuid, "meshblu": {"hash": f"contract-{self.uuid}"}}
        return shown | {"token": self.token} if with_token else shown

    def lets(self, other: Device, what: str) -> bool:
        """Whether a list (`discoverWhitelist`, `sendWhitelist`, …) has the other one."""
        allowed = self.properties.get(what, OPEN if what != "configureWhitelist" else [])
        owner = self.properties.get("owner")
        return other.uuid in (self.uuid, owner) or "*" in allowed or other.uuid in allowed


class Devices:
    """Everything there is."""

    def __init__(self, new_uuid: Callable[[], str], new_token: Callable[[], str]) -> None:
        self._new_uuid = new_uuid
        self._new_token = new_token
        self._devices: dict[str, Device] = {}
        self._own: dict[str, list[Tell]] = {}
        self._broadcasts: dict[str, list[Tell]] = {}
        self.everywhere: Callable[[str, dict[str, Any]], Awaitable[None]] | None = None
        """Told of each message with its target (MQTT knows its listeners by itself)."""

    def register(self, given: dict[str, Any], address: str) -> Device:
        if not isinstance(given, dict):
            raise FailedError(400, "invalid device")
        identity, token = str(given.get("uuid") or self._new_uuid()), str(given.get("token") or self._new_token())
        if identity in self._devices:
            raise FailedError(500, "Device not updated")
        properties = {name: value for name, value in given.items() if name not in ("uuid", "token")}
        properties = {"online": False, "ipAddress": address} | properties
        device = self._devices[identity] = Device(identity, token, properties, {token})
        return device

    def known(self, identity: str) -> Device:
        found = self._devices.get(identity)
        if found is None:
            raise FailedError(404, "Devices not found")
        return found

    def authenticated(self, identity: str, token: str) -> Device:
        found = self._devices.get(identity)
        if found is None or token not in found.tokens:
            raise FailedError(401, "unauthorized")
        return found

    def seen_by(self, asker: Device, identity: str) -> Device:
        found = self.known(identity)
        if not found.lets(asker, "discoverWhitelist"):
            raise FailedError(404, "Devices not found")
        return found

    def changeable_by(self, asker: Device, identity: str) -> Device:
        found = self.known(identity)
        if not found.lets(asker, "configureWhitelist"):
            raise FailedError(401, "unauthorized")
        return found

    def update(self, asker: Device, identity: str, changes: dict[str, Any]) -> Device:
        device = self.changeable_by(asker, identity)
        device.properties |= {name: value for name, value in changes.items() if name not in ("uuid", "token")}
        return device

    def unregister(self, asker: Device, identity: str) -> None:
        self.changeable_by(asker, identity)
        del self._devices[identity]

    async def send(self, sender: Device, given: dict[str, Any], *, to_itself: bool = True) -> None:
        """To each device named, or to all who listen to the sender's broadcasts."""
        named = given.get("devices")
        targets = named if isinstance(named, list) else [named]
        message = {name: value for name, value in given.items() if name not in ("callbackId", "token")}
        message["fromUuid"] = sender.uuid
        if "*" in targets or "all" in targets:
            for tell in [*self._broadcasts.get(sender.uuid, [])]:
                await tell(message)
            if self.everywhere is not None:
                await self.everywhere(f"{sender.uuid}_bc", message)
        for identity in targets:
            target = self._devices.get(identity) if isinstance(identity, str) else None
            if target is None or not target.lets(sender, "sendWhitelist"):
                continue
            for tell in [*self._own.get(target.uuid, [])]:
                await tell(message)
            if self.everywhere is not None:
                await self.everywhere(target.uuid, message)

    @contextmanager
    def listening(self, identity: str, tell: Tell, *, own: bool) -> Iterator[None]:
        """While it lasts: a device's own messages, or only what it broadcasts."""
        table = self._own if own else self._broadcasts
        table.setdefault(identity, []).append(tell)
        try:
            yield
        finally:
            if tell in table.get(identity, []):
                table[identity].remove(tell)

    def forget(self, identity: str, tell: Tell) -> None:
        for table in (self._own, self._broadcasts):
            if tell in table.get(identity, []):
                table[identity].remove(tell)
