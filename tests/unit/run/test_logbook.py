"""What a run keeps of its contender's logs: every one of them, under a name that tells whose it is."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from battlebrokers.contenders.contained import Contained
from battlebrokers.contenders.place import Place
from battlebrokers.contenders.running import RunningContender
from battlebrokers.contenders.services import Service
from battlebrokers.run.logbook import Logbook
from battlebrokers.tables.run_folder import RunFolder


def running(name: str, folder: Path, logs: dict[str, str], **more: object) -> RunningContender:
    place = Place(folder, "127.0.0.1", [], ["logs/**/*.log"])
    for log, text in logs.items():
        (place.folder / log).parent.mkdir(parents=True, exist_ok=True)
        (place.folder / log).write_text(text)
    return RunningContender(name, "1", "stock", {}, place=place, **more)  # type: ignore[arg-type]


def kept(contender: RunningContender, tmp_path: Path) -> dict[str, str]:
    folder = RunFolder(tmp_path / "run")
    contender.stop()
    contender.stop()
    Logbook(folder, None, None).keep_logs(contender)  # type: ignore[arg-type]
    return {path.name: path.read_text() for path in folder.logs.iterdir()} if folder.logs.exists() else {}


def test_logs_of_those_beside_it_do_not_overwrite_its_own(tmp_path: Path) -> None:
    redis = running("redis", tmp_path / "redis", {"output.log": "I am redis"})
    twin = running("mosquitto", tmp_path / "twin", {"output.log": "I am another"})
    main = running(
        "mosquitto",
        tmp_path / "main",
        {"output.log": "I am first", "logs/a/x.log": "a", "logs/b/x.log": "b"},
        beside=[redis, twin],
    )
    assert kept(main, tmp_path) == {
        "mosquitto-output.log": "I am first",
        "mosquitto-x.log": "a",
        "mosquitto-x-2.log": "b",
        "redis-output.log": "I am redis",
        "mosquitto-output-2.log": "I am another",
    }


@pytest.fixture
def engine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A `docker` in the documented form: containers `db` and `4f1e`, which is the composition's `cache`."""
    program = tmp_path / "bin" / "docker"
    program.parent.mkdir()
    program.write_text(
        f'#!/bin/sh\necho "$@" >> {tmp_path}/asked\n'
        'for last; do :; done\n'
        'case "$1 $last" in\n'
        '  "compose cache") echo 4f1e ;;\n'
        '  "compose "*) ;;\n'
        '  "logs db") echo "db says"; echo "db complains" >&2 ;;\n'
        '  "logs 4f1e") echo "cache says" ;;\n'
        '  *) echo "No such container: $last" >&2; exit 1 ;;\n'
        'esac\n'
    )  # fmt: skip
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{program.parent}{os.pathsep}{os.environ['PATH']}")
    return tmp_path / "asked"


def test_services_in_containers_leave_what_they_printed(tmp_path: Path, engine: Path) -> None:
    services = {"database": Service(container="db"), "gone": Service(container="nobody"), "cache": Service()}
    theirs = RunningContender("theirs", "unknown", "external", {}, described=services)
    assert kept(theirs, tmp_path) == {"database-container.log": "db says\ndb complains\n"}
    assert f"--since {theirs.since} db" in engine.read_text(), "what others printed before we came is not about us"


def test_services_of_a_composition_leave_a_log_each(tmp_path: Path, engine: Path) -> None:
    ours = running(
        "town",
        tmp_path / "town",
        {"output.log": "both of them"},
        contained=Contained("docker", "bb-town-1", "/town.yaml"),
        service_names={"cache": ["*"], "web": []},
    )
    assert kept(ours, tmp_path) == {"town-output.log": "both of them", "cache-container.log": "cache says\n"}
    assert engine.read_text().count("logs ") == 1, "a second stop asks nobody"
