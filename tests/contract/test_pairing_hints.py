"""The pairing hints of shipped files, read from them and tried on conversations that contract servers really had."""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import aiohttp
import pytest

from battlebrokers.contenders.reader import SPECS, read_pairing
from battlebrokers.pipeline.captures import hints_of
from battlebrokers.tables.manifest import PairingFacts
from support.conversation import CLIENT, Heard, Turn, heard
from support.middleware.process import contract_server
from support.recorder import recorded

pytestmark = pytest.mark.broker


@asynccontextmanager
async def connected(port: int, path: str) -> AsyncIterator[tuple[aiohttp.ClientWebSocketResponse, list[Turn]]]:
    """A WebSocket to a server, and all that passes."""
    async with (
        recorded(port) as (relay, turns),
        aiohttp.ClientSession() as session,
        session.ws_connect(f"http://127.0.0.1:{relay}{path}") as socket,
    ):
        yield socket, turns


def paired(turns: list[Turn], spec: str, *, hints: bool = True) -> Heard:
    told = PairingFacts(**read_pairing(SPECS / f"{spec}.yaml").model_dump()) if hints else None
    return heard(turns, 3000, hints=hints_of(told), protocol="websocket")


async def test_meshblu_pairs_arrays_by_their_first_element() -> None:
    with contract_server("meshblu") as ports:
        async with connected(ports["http"], "/ws/v2") as (socket, turns):
            await socket.send_json(["register", {"type": "bb"}])
            _, node = await socket.receive_json()
            known = {"uuid": node["uuid"], "token": node["token"]}
            await socket.send_json(["identity", known])
            assert (await socket.receive_json())[0] == "ready"
            await socket.send_json(["message", {"devices": [node["uuid"]], "payload": 1}])
            assert (await socket.receive_json())[0] == "message"
            await socket.send_json(["device", {"uuid": "nobody"}])
            assert (await socket.receive_json())[0] == "error"
            await socket.send_json(["unregister", known])
            assert (await socket.receive_json())[0] == "unregistered"
    said = paired(turns, "meshblu")
    assert Counter(
        pair for pair in said.pairs if pair[0] in ("register", "identity", "message", "unregister")
    ) == Counter([("register", "registered"), ("identity", "ready"), ("unregister", "unregistered")])
    assert said.kinds.count("message") == 2
    assert [told.found.kind for told in said.messages if told.found.failed] == ["error"]
    # Without hints nobody can know: these are texts, and none of them answers another.
    assert [pair for pair in paired(turns, "meshblu", hints=False).pairs if "TEXT" in pair] == []


async def test_devicehive_pairs_actions_by_their_ids_and_pushes_stay_alone() -> None:
    with contract_server("devicehive") as ports:
        async with connected(ports["http"], "/api/websocket") as (socket, turns):

            async def ask(action: str, number: int, **more: Any) -> dict[str, Any]:
                await socket.send_json({"action": action, "requestId": number, **more})
                while (answer := await socket.receive_json()).get("requestId") != number:
                    continue
                assert answer["status"] == "success", answer
                return dict(answer)

            tokens = await ask("token", 1, login="dhadmin", password="dhadmin_#911")
            await ask("authenticate", 2, token=tokens["accessToken"])
            await ask("device/save", 3, deviceId="d", device={"name": "d"})
            await ask("notification/subscribe", 4, deviceId="d", names=["bb"])
            for number in (5, 6):
                await ask("notification/insert", number, deviceId="d", notification={"notification": "bb"})
            await ask("device/delete", 7, deviceId="d")
    said = paired(turns, "devicehive")
    actions = ["token", "authenticate", "device/save", "notification/subscribe"]
    actions += ["notification/insert", "notification/insert", "device/delete"]
    assert [pair for pair in said.pairs if pair[0] in actions] == [(action, action) for action in actions]
    assert {row.rule for row in said.exchanges if row.request.found.kind in actions} == {"hint"}
    assert all(row.request.found.sender == CLIENT for row in said.exchanges)
    pushes = said.kinds.count("notification/insert") - 4
    assert pushes == 2
