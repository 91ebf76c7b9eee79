"""The controller's REST as the gateway needs it: list, create, subscribe, unsubscribe. Asked by `topics` only.

Says `Away` when nobody answers and `NotForwarded` when the controller refuses; decides nothing.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final, Protocol

import aiohttp

from battlebrokers.sdn.gateway.settings import Away, NotForwarded

_ANSWER_S: Final = 15.0
_NO_CONTENT: Final = 204
_UNAUTHORIZED: Final = 401
_NOT_FOUND: Final = 404
_CONFLICT: Final = 409
_FIRST_REFUSAL: Final = 400
_FIRST_FAILURE: Final = 500


@dataclass(frozen=True, slots=True)
class Listed:
    """A named resource as the controller told it."""

    name: str
    address: str
    from_resource: bool
    """Whether copies come from the resource's own address, which is how a gateway tells topics apart."""
    subscribers: frozenset[str]
    """By MAC address."""


class Registry(Protocol):
    """Who knows the resources."""

    async def listed(self) -> list[Listed]:
        """Every resource that has a name."""
        ...

    async def obtain(self, name: str) -> Listed:
        """The resource of that name, created when there is none."""
        ...

    async def subscribe(self, address: str) -> bool:
        """Subscribe the gateway's host; False when the resource is gone."""
        ...

    async def unsubscribe(self, address: str) -> None:
        """End that."""
        ...


class RestRegistry:
    """A `Registry` over HTTP; `mac` and `ipv4` are the subscribing host's."""

    def __init__(self, url: str, mode: str, mac: str, ipv4: str, token: str | None = None) -> None:
        self._root = url.rstrip("/") + "/api/v1/resources"
        self._mode = mode
        self._mac = mac
        self._ipv4 = ipv4
        self._headers = {} if token is None else {"Authorization": f"Bearer {token}"}
        self._session: aiohttp.ClientSession | None = None
        self._closed = False

    async def close(self) -> None:
        """Hang up."""
        self._closed = True
        if self._session is not None:
            await self._session.close()
            self._session = None

    async def listed(self) -> list[Listed]:
        """Every resource that has a name."""
        _, told = await self._ask("GET", "")
        return [_listed(one) for one in told if one["name"]]

    async def obtain(self, name: str) -> Listed:
        """The resource of that name, created when there is none."""
        if found := await self._named(name):
            return found
        status, told = await self._ask("POST", "", {"name": name, "mode": self._mode, "source": "resource"})
        if status != _CONFLICT:
            return _listed(told)
        # Another gateway was quicker.
        if found := await self._named(name):
            return found
        raise Away("a resource came and went")

    async def subscribe(self, address: str) -> bool:
        """Subscribe the gateway's host; False when the resource is gone."""
        who = {"mac": self._mac, "ipv4": self._ipv4}
        status, told = await self._ask("POST", f"/{address}/subscribers", who)
        if status == _CONFLICT:
            status, resource = await self._ask("GET", f"/{address}")
            # Left by a gateway that was killed: as good as done.
            if status != _NOT_FOUND and self._mac not in _listed(resource).subscribers:
                raise NotForwarded("subscription refused", str(told["message"]))
        return status != _NOT_FOUND

    async def unsubscribe(self, address: str) -> None:
        """End that."""
        await self._ask("DELETE", f"/{address}/subscribers/{self._mac}")

    async def _named(self, name: str) -> Listed | None:
        _, told = await self._ask("GET", "", query={"name": name})
        return _listed(told[0]) if told else None

    async def _ask(
        self, method: str, path: str, body: dict[str, str] | None = None, query: dict[str, str] | None = None
    ) -> tuple[int, Any]:
        if self._closed:
            raise Away("the gateway ends")
        if self._session is None:
            self._session = aiohttp.ClientSession(headers=self._headers, timeout=aiohttp.ClientTimeout(total=_ANSWER_S))
        try:
            async with self._session.request(method, self._root + path, json=body, params=query) as answer:
                if answer.status >= _FIRST_FAILURE:
                    raise Away(f"the controller answered {answer.status}")
                told = await answer.json() if answer.status != _NO_CONTENT else None
                if answer.status == _UNAUTHORIZED:
                    # It may be given another one; whoever waits for it is refused in the end, with these words.
                    raise Away("it asks for another token than the gateway has: --token-file or BB_SDN_TOKEN")
        except (aiohttp.ClientError, TimeoutError, OSError, ValueError) as fault:
            raise Away(str(fault) or type(fault).__name__) from fault
        if answer.status >= _FIRST_REFUSAL and answer.status not in (_NOT_FOUND, _CONFLICT):
            raise NotForwarded("topic refused", f"the controller refuses: {str(told)[:200]}")
        return answer.status, told


def _listed(told: dict[str, Any]) -> Listed:
    subscribers = frozenset(str(one["mac"]) for one in told["subscribers"])
    return Listed(str(told["name"]), str(told["address"]), told["source"] == "resource", subscribers)
