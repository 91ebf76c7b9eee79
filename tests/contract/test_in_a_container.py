"""A contender in a container, through an engine that keeps Docker's words: its control group tells what it uses."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from pyarrow.dataset import dataset

from battlebrokers.contenders.availability import container_engine
from battlebrokers.contenders.contained import Contained
from battlebrokers.contenders.container_wires import container_wires
from battlebrokers.contenders.lifecycle import start_contender
from battlebrokers.contenders.reader import parse_contender
from battlebrokers.record.cgroup import hierarchy, named_group, read_group
from battlebrokers.record.wire import Wire
from support import contract_engine
from support.runs import run_for_real, write_scenario

pytestmark = [pytest.mark.broker, pytest.mark.root]

FILE = """\
name: boxed
about: Mosquitto in a container.
run: {container: "eclipse-mosquitto:2"}
ports: {mqtt: 1883}
endpoints: {tcp: "mqtt://${host}:${port.mqtt}"}
"""
SCENARIO = """\
name: boxed
fleets:
  air: {devices: 5, topic: "a/{device}", payload: {random_bytes: 30}, every: 20/s}
clients:
  all: {count: 1, subscribe: "a/#"}
phases: {measure: 4s, drain: 5s}
"""


@pytest.fixture
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, require_broker: Callable[[str], str]) -> Iterator[str]:
    require_broker("mosquitto")
    if hierarchy() is None or not os.access(str(hierarchy()), os.W_OK):
        pytest.skip("control groups of version 2 cannot be made here")
    folder = contract_engine.install(tmp_path / "engine")
    monkeypatch.setenv("PATH", str(folder), prepend=os.pathsep)
    container_engine.cache_clear()
    (tmp_path / "boxed.yaml").write_text(FILE)
    yield str(tmp_path / "boxed.yaml")
    container_engine.cache_clear()


def test_its_processes_are_those_of_the_container_and_not_the_client_we_started(file: str, tmp_path: Path) -> None:
    with start_contender(file, "stock", tmp_path / "run") as boxed:
        group = boxed.group_of("boxed")
        folder = named_group(group)
        assert re.fullmatch(r"/bb-test-bb-boxed-\d+\.scope", group)
        assert folder is not None
        use = read_group(folder)
        assert use is not None
        assert len(use.pids) == 1
        assert boxed.service_pids() == {"boxed": list(use.pids)}
        assert Path(f"/proc/{use.pids[0]}/comm").read_text() == "mosquitto\n"
        assert boxed.process is not None
        assert use.pids[0] != boxed.process.pid
    assert named_group(group) is None


def test_who_listens_is_told_the_container_before_anybody_talks_to_it(file: str, tmp_path: Path) -> None:
    told: list[Wire] = []

    class Listener:
        def before_start(self, wires: list[Wire]) -> None:
            told.extend(wires)

        def after_start(self) -> None:
            pass

        def inside(self, wire: Wire) -> None:
            told.append(wire)

        def called_off(self) -> None:
            pytest.fail("it starts")

    with start_contender(file, "stock", tmp_path / "run", listener=Listener()) as boxed:
        port = int(boxed.known["port.mqtt"])
    assert told == [
        Wire("boxed", (port,), ("127.0.0.1",), "lo"),
        Wire("boxed", (1883,), container=f"bb-boxed-{port}"),
    ]


def test_a_run_records_what_the_container_used(file: str, tmp_path: Path) -> None:
    folder = run_for_real(write_scenario(tmp_path, SCENARIO), file, tmp_path / "runs")
    rows = dataset(folder.path / "recorded" / "resources").to_table().to_pylist()
    boxed = [row for row in rows if row["service"] == "boxed"]
    assert len(boxed) >= 3
    assert {row["processes"] for row in boxed} == {1}
    # The client is busy all the time, as one thread can be; the broker hardly is.
    host = [row for row in rows if row["service"] == "host"]
    assert max(row["cpu_percent"] for row in boxed) < max(row["cpu_percent"] for row in host) / 2


def test_services_of_a_composition_are_asked_for_by_name() -> None:
    asked: list[list[str]] = []

    def ask(command: list[str]) -> str:
        asked.append(list(command))
        if command[1] == "compose":
            return "4f1e\n" if command[-1] == "redis" else ""
        return json.dumps(contract_engine.inspected("4f1e", os.getpid()))

    contained = Contained("docker", "bb-thing-1883", "/tmp/thing.yaml", ask)  # type: ignore[arg-type]
    for _ in range(2):
        contained.group_of("redis")
        assert contained.group_of("proxy") == ""
    project = ["docker", "compose", "-p", "bb-thing-1883", "-f", "/tmp/thing.yaml", "ps", "--quiet"]
    assert asked == [[*project, "redis"], ["docker", "inspect", "--type", "container", "4f1e"], [*project, "proxy"]]


def test_wires_of_a_composition_come_with_its_containers() -> None:
    text = FILE.replace('container: "eclipse-mosquitto:2"', 'compose: "${dir}/thing.yaml"')
    text += 'services: {broker: {processes: ["*"]}, redis: [], late: [], db: {container: theirs}}\n'
    contender = parse_contender(text, "thing.yaml")
    ids = {"redis": "4f1e", "broker": "77aa"}
    asked: list[str] = []

    def ask(command: list[str]) -> str:
        if command[1] == "compose":
            asked.append(command[-1])
            return ids.get(command[-1], "") if asked.count(command[-1]) > 1 else ""
        return json.dumps(contract_engine.inspected(command[-1], os.getpid()))

    contained = Contained("docker", "bb-thing-1883", "/tmp/thing.yaml", ask)  # type: ignore[arg-type]
    # A service that never comes is waited for until the contender ends, or somebody gives up.
    found = list(container_wires(contender, contained, lambda: asked.count("late") < 4))
    assert found == [Wire("broker", container="77aa"), Wire("redis", container="4f1e")]
    assert set(asked) == {"broker", "redis", "late"}, "one that its file puts into a container is found by that"


def test_an_engine_that_knows_nothing_leaves_the_client() -> None:
    contained = Contained("/nowhere/docker", "bb-thing-1883")
    assert contained.group_of("thing") == ""
    assert contained.pids_of("thing") is None
