"""The shipped files of middlewares that cannot be installed, spoken for real to their contract servers.

Registration, links and templates are those of a run. What is published arrives exactly once, byte for byte.
"""

from __future__ import annotations

import asyncio
import json
import random
from collections import Counter
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from urllib.request import Request, urlopen

import pytest
from pyarrow.dataset import dataset

from battlebrokers.contenders.lifecycle import RunningContender, start_contender
from battlebrokers.protocols.base import Link, Outgoing, Subscription
from battlebrokers.run.linking import Linking
from battlebrokers.run.messages import Prepare
from battlebrokers.run.registering import Registering
from battlebrokers.scenario.plan import Plan, build_plan
from battlebrokers.scenario.reader import read_scenario
from support.links import Ear, until
from support.middleware.described import described
from support.middleware.process import contract_server
from support.runs import run_for_real, write_scenario

pytestmark = pytest.mark.broker

WITHIN_S = 60.0
MILLISECOND_S = 0.001
SCENARIO = """\
name: small
protocol: {protocol}
fleets:
  air: {{devices: 3, topic: "city/{{device}}/air", payload: {{random_bytes: 30}}, every: 1s}}
clients:
  all: {{count: 1, subscribe: "city/#"}}
  one: {{count: 1, subscribe: "city/air-2/air"}}
phases: {{measure: 1s}}
"""
DIALECTS = [
    ("fiware-orion", "orion", "http"),
    ("fiware-orion-memory", "orion", "http"),
    ("devicehive", "devicehive", "http"),
    ("devicehive", "devicehive", "websocket"),
    ("devicehive", "devicehive", "mqtt"),
    ("meshblu", "meshblu", "http"),
    ("meshblu", "meshblu", "websocket"),
    ("meshblu", "meshblu", "mqtt"),
    ("meshblu", "meshblu", "coap"),
    ("om2m", "om2m", "http"),
]


@dataclass
class World:
    """One registered run, and the links of its nodes."""

    contender: RunningContender
    plan: Plan
    registering: Registering
    order: Prepare

    def device_links(self, ear: Ear) -> list[tuple[Link, str]]:
        linking = Linking(self.order, self.plan, ear)
        links = [linking.link("device", device) for device in self.plan.devices()]
        return [(link, topic) for link, topic in zip(links, self.plan.matching.topics, strict=True)]

    def client_links(self) -> list[tuple[Link, list[Subscription], Ear]]:
        found = []
        for client in self.plan.clients():
            ear = Ear()
            linking = Linking(self.order, self.plan, ear)
            wanted = [Subscription(each.filter, each.qos) for each in linking.subscriptions(client)]
            found.append((linking.link("client", client), wanted, ear))
        return found


async def registered(spec: str, protocol: str, ports: dict[str, int], folder: Path) -> World:
    contender = await asyncio.to_thread(start_contender, str(described(spec, ports, folder)), "stock", folder)
    plan = build_plan(read_scenario(SCENARIO.format(protocol=protocol), "f").scenario, run_id="r1")
    registering = Registering(contender, plan, lambda: 0, lambda _done, _of: None)
    known = await registering.register()
    order = Prepare(
        run="r1",
        worker="worker-0",
        plan=b"",
        share=0,
        of=1,
        endpoints=dict(contender.endpoints),
        evidence="",
        boot_id="",
        anchor_monotonic_ns=0,
        anchor_wall_ns=0,
        username=contender.credentials[0],
        password=contender.credentials[1].reveal() if contender.credentials[1] else None,
        scripts=dict(contender.scripts),
        known_by_all=known.by_all,
        known=known.nodes,
        known_of_topics=known.topics,
    )
    return World(contender, plan, registering, order)


def payloads(seed: int) -> list[bytes]:
    """All bytes there are, what looks like something else, and sizes up to some KiB; no two alike."""
    dice = random.Random(seed)
    made = [bytes(range(256)), b'{"payload": "${payload}"}', b"\x00", b"%2F&=+;<>'()", "größe ± €".encode()]
    made += [dice.randbytes(dice.randrange(1, 3000)) for _ in range(15)]
    return [seed.to_bytes(2, "big") + number.to_bytes(2, "big") + data for number, data in enumerate(made)]


@pytest.mark.parametrize(("spec", "server", "protocol"), DIALECTS, ids=lambda part: part)
async def test_what_is_published_arrives_exactly_once(spec: str, server: str, protocol: str, tmp_path: Path) -> None:
    with contract_server(server) as ports:
        world = await registered(spec, protocol, ports, tmp_path)
        told = Ear()
        devices, clients = world.device_links(told), world.client_links()
        for link in [*(link for link, _ in devices), *(link for link, _, _ in clients)]:
            await link.open()
        for link, wanted, _ in clients:
            assert [granted.qos for granted in await link.subscribe(wanted)] == [0] * len(wanted)
        assert [len(wanted) for _, wanted, _ in clients] == [3, 1]
        said = [payloads(seed) for seed in range(len(devices))]
        tokens = iter(range(1000))
        for number in range(len(said[0])):
            if (spec, protocol) == ("devicehive", "http"):
                # A poll goes on from a millisecond, and never hears what else that one brings: the product's loss.
                heard_so_far = number * len(devices)
                await until(lambda ear=clients[0][2], n=heard_so_far: len(ear.messages) >= n)
                await asyncio.sleep(2 * MILLISECOND_S)
            for (link, topic), own in zip(devices, said, strict=True):
                await until(lambda link=link: link.room(0) > 0)
                written = link.publish(Outgoing(topic.encode(), [own[number]], 0, False, next(tokens)))
                assert written > link.structure_bytes > len(own[number])
        everything, of_one = Counter(chain.from_iterable(said)), Counter(said[1])
        for (_, _, ear), expected in zip(clients, (everything, of_one), strict=True):
            await until(lambda ear=ear, expected=expected: len(ear.messages) >= expected.total())
        for (_, _, ear), expected in zip(clients, (everything, of_one), strict=True):
            assert Counter(message.payload for message in ear.messages) == expected
            assert ear.closings == []
            assert ear.faults == []
        if 0 in devices[0][0].capabilities.acknowledges:
            await until(lambda: len(told.acked) == everything.total())
        assert told.refused == []
        assert told.closings == []
        for link in [*(link for link, _, _ in clients), *(link for link, _ in devices)]:
            await link.close()
        assert await world.registering.remove(tmp_path) == 0
        assert left_behind(spec, ports) == []


async def test_meshblu_tells_an_observer_of_one_topic_exactly_once(tmp_path: Path) -> None:
    with contract_server("meshblu") as ports:
        world = await registered("meshblu", "coap", ports, tmp_path)
        told = Ear()
        device, topic = world.device_links(told)[1]
        client, wanted, ear = world.client_links()[1]
        await device.open()
        await client.open()
        assert [granted.qos for granted in await client.subscribe(wanted)] == [0]
        said = payloads(1)
        for token, payload in enumerate(said):
            await until(lambda: device.room(0) > 0)
            device.publish(Outgoing(topic.encode(), [payload], 0, False, token))
            await until(lambda n=token + 1: len(told.acked) >= n and len(ear.messages) >= n)
        assert Counter(message.payload for message in ear.messages) == Counter(said)
        # Its server says nothing before the first message, which is no old one.
        assert not any(message.retain for message in ear.messages)
        assert ear.faults == []
        await client.close()
        await device.close()
        assert await world.registering.remove(tmp_path) == 0


def left_behind(spec: str, ports: dict[str, int]) -> list[object]:
    """What a middleware still has when everybody has left; the model with memory keeps its entities on purpose."""
    base = f"http://127.0.0.1:{ports['http']}"
    if spec.startswith("fiware-orion"):
        entities = [] if spec.endswith("memory") else fetched(f"{base}/v2/entities")
        return [*entities, *fetched(f"{base}/v2/subscriptions")]
    if spec == "devicehive":
        login = json.dumps({"login": "dhadmin", "password": "dhadmin_#911"}).encode()
        asked = Request(f"{base}/auth/rest/token", login, {"Content-Type": "application/json"})
        with urlopen(asked, timeout=WITHIN_S) as answer:
            token = json.load(answer)["accessToken"]
        return fetched(f"{base}/api/rest/device", Authorization=f"Bearer {token}")
    if spec == "om2m":
        asked = Request(f"{base}/~/in-cse?fu=1", headers={"X-M2M-Origin": "admin:admin", "Accept": "application/json"})
        with urlopen(asked, timeout=WITHIN_S) as answer:
            return list(json.load(answer)["m2m:uril"])
    return []


def fetched(url: str, **headers: str) -> list[object]:
    with urlopen(Request(url, headers=headers), timeout=WITHIN_S) as answer:
        return list(json.load(answer))


@pytest.fixture(autouse=True)
def _no_proxy(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("http_proxy", "HTTP_PROXY"):
        monkeypatch.delenv(name, raising=False)


RUN = """\
name: small-run
seed: 7
protocol: {protocol}
fleets:
  air: {{devices: 3, topic: "city/{{device}}/air", payload: {{random_bytes: 20..400}}, every: 0.1s}}
clients:
  all: {{count: 2, subscribe: "city/#"}}
phases: {{connect: 50/s, warm_up: 0.5s, measure: 2s, cool_down: 0.5s, drain: 2s}}
"""


@pytest.mark.slow
@pytest.mark.parametrize(
    ("spec", "server", "protocol"),
    [("fiware-orion", "orion", "http"), ("devicehive", "devicehive", "websocket"), ("meshblu", "meshblu", "mqtt")],
    ids=lambda part: part,
)
def test_a_whole_run_delivers_every_message_to_every_client_once(
    spec: str, server: str, protocol: str, tmp_path: Path
) -> None:
    scenario = write_scenario(tmp_path, RUN.format(protocol=protocol))
    with contract_server(server) as ports:
        folder = run_for_real(scenario, str(described(spec, ports, tmp_path)), tmp_path / "runs")
    columns = {"publishes": ["device", "seq"], "deliveries": ["client", "device", "seq"]}
    rows = {
        table: [tuple(row.values()) for row in dataset(folder.path / "recorded" / table).to_table(names).to_pylist()]
        for table, names in columns.items()
    }
    assert len(rows["publishes"]) > 3 * 10
    expected = Counter((client, *message) for client in range(2) for message in rows["publishes"])
    assert Counter(rows["deliveries"]) == expected
