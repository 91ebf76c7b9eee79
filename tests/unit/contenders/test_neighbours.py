"""Services that somebody else runs here are found by what a contender's file says of them."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from battlebrokers.contenders import neighbours as module
from battlebrokers.contenders.neighbours import Neighbours, is_here, listeners
from battlebrokers.contenders.running import RunningContender
from battlebrokers.contenders.services import Service
from battlebrokers.record.cgroup import GroupUse
from battlebrokers.run.hosting import sampler_of
from battlebrokers.tables import RESOURCES

SERVE = (
    "import socket, sys, time\n"
    "kind = {'tcp': socket.SOCK_STREAM, 'udp': socket.SOCK_DGRAM}[sys.argv[1]]\n"
    "s = socket.socket(socket.AF_INET, kind); s.bind(('127.0.0.1', 0))\n"
    "s.listen() if sys.argv[1] == 'tcp' else None\n"
    "print(s.getsockname()[1], flush=True); time.sleep(600)\n"
)


@pytest.fixture(params=["tcp", "udp"])
def server(request: pytest.FixtureRequest) -> Iterator[tuple[subprocess.Popen[str], int]]:
    """Somebody who waits at a port, and the port."""
    words = [sys.executable, "-c", SERVE, request.param]
    with subprocess.Popen(words, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        yield process, int(process.stdout.readline())
        process.kill()


def test_who_waits_at_a_port_is_found_and_who_only_calls_is_not(server: tuple[subprocess.Popen[str], int]) -> None:
    process, port = server
    assert listeners([port]) == [process.pid]
    assert listeners([]) == []
    with socket.create_server(("127.0.0.1", 0)) as ours:
        assert listeners([ours.getsockname()[1]]) == [], "we are no service"


def test_a_service_is_known_by_its_port_until_it_ends(server: tuple[subprocess.Popen[str], int]) -> None:
    process, port = server
    found = Neighbours({"db": Service(ports=[port]), "far": Service()}, {"db": (port,), "far": ()})
    assert found.pids() == {"db": [process.pid]}
    process.kill()
    process.wait()
    assert found.pids() == {}


def test_a_named_group_wins_over_the_port(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    asked: list[str] = []

    def named_group(name: str) -> Path | None:
        asked.append(name)
        return tmp_path if name == "system.slice/redis.service" else None

    monkeypatch.setattr(module, "named_group", named_group)
    monkeypatch.setattr(module, "read_group", lambda _: GroupUse(1.0, 2, 3, 4, 5, (10, 11)))
    services = {"redis": Service(cgroup="system.slice/redis.service"), "gone": Service(cgroup="system.slice/gone")}
    found = Neighbours(services, {})
    assert found.pids() == {"redis": [10, 11]}
    assert found.group_of("redis") == "system.slice/redis.service"
    assert asked == ["system.slice/redis.service", "system.slice/gone"]


@pytest.fixture
def engine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A `docker` that knows one container, `db`, whose process is ours; and its log."""
    program = tmp_path / "bin" / "docker"
    program.parent.mkdir()
    program.write_text(
        f'#!/bin/sh\necho "$@" >> {tmp_path}/asked\n[ "$4" = db ] || exit 1\n'
        f'echo \'[{{"State": {{"Pid": {os.getpid()}}}, "NetworkSettings": {{}}}}]\'\n'
    )
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{program.parent}{os.pathsep}{os.environ['PATH']}")
    return tmp_path / "asked"


def test_a_container_is_found_through_its_engine_and_not_asked_for_every_second(
    engine: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "named_group", lambda _: None)
    found = Neighbours({"db": Service(container="db"), "other": Service(container="nobody")}, {})
    for _ in range(3):
        pids = found.pids()
        assert set(pids) == {"db"}
        assert pids["db"][0] == os.getpid()
    assert engine.read_text().count("inspect --type container db") <= 2
    assert engine.read_text().count("inspect --type container nobody") <= 2


def test_services_of_others_are_sampled(server: tuple[subprocess.Popen[str], int], tmp_path: Path) -> None:
    process, port = server
    services = {"db": Service(ports=[port])}
    contender = RunningContender(
        "theirs", "unknown", "external", {}, described=services, neighbours=Neighbours(services, {"db": (port,)})
    )
    assert contender.services == [("db", [process.pid])]
    sampler = sampler_of(contender, os.getpid(), tmp_path, time.time_ns)
    sampler.start()
    sampler.stop()
    rows = [row for file in (tmp_path / RESOURCES.folder).glob("*.parquet") for row in pq.read_table(file).to_pylist()]
    [row] = [row for row in rows if row["service"] == "db"]
    assert (row["role"], row["processes"]) == ("contender", 1)
    assert row["rss_bytes"] > 0


def test_this_machine_is_known_by_its_addresses() -> None:
    assert is_here("127.0.0.1")
    assert is_here("localhost")
    assert not is_here("192.0.2.1")
    assert not is_here("nowhere.invalid")
