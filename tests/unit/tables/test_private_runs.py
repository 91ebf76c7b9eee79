"""Run folders belong to their owner, and manifests show no secrets, old ones included."""

from __future__ import annotations

import json
import os
import stat
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

import pytest

from battlebrokers.tables.run_folder import new_run_folder
from support.made_up_runs import MadeUpRun, make_run

__all__ = ["make_run"]

NOW = datetime(2026, 11, 15, tzinfo=UTC)


@pytest.mark.parametrize("umask", [0o000, 0o022, 0o777])
def test_a_run_folder_is_its_owners_alone_whatever_the_umask(tmp_path: Path, umask: int) -> None:
    (tmp_path / "runs").mkdir()
    before = os.umask(umask)
    try:
        folder = new_run_folder(tmp_path / "runs", "s", "mosquitto", NOW)
    finally:
        os.umask(before)
    assert stat.S_IMODE(folder.path.stat().st_mode) == 0o700


@pytest.mark.parametrize(
    ("broker", "name"),
    [
        ("mqtt://me:hunter2@host:1883", "mqtt-host-1883"),
        ("ws://host:9001/mqtt?token=hunter2", "ws-host-9001-mqtt"),
        ("mqtt://me:hunt/er2@host:1883", "mqtt-host-1883"),
        ("mosquitto", "mosquitto"),
        ("orion@10.0.0.5", "orion-10.0.0.5"),
    ],
)
def test_a_run_folder_is_named_without_secrets(tmp_path: Path, broker: str, name: str) -> None:
    found = new_run_folder(tmp_path, "scenario", broker, NOW).path.name
    assert found.startswith(f"20261115T000000-scenario-{name}-")
    assert "hunt" not in found


def test_manifests_of_older_versions_are_read_masked(make_run: Callable[..., MadeUpRun]) -> None:
    folder = make_run().healthy().write()
    document = json.loads(folder.manifest_path.read_text())
    document["scenario"] |= {
        "text": "defaults:\n  credentials: {username: a, password: hunter2}\n",
        "resolved": {"fleets": {"air": {"credentials": {"username": "a", "password": "hunter2"}, "devices": 3}}},
        "overrides": ["defaults.credentials.password=hunter2"],
        "title": "s on mqtt://me:hunter2@host",
    }
    document["contender"] |= {
        "name": "mqtt://me:hunter2@host",
        "endpoints": {"ws": "ws://host/mqtt?token=hunter2"},
        "config_text": "remote_password hunter2\n",
    }
    document["state_detail"] = "mqtt://me:hunter2@host cannot be reached"
    document["tags"] = {"api_key": "hunter2", "kernel": "6.1"}
    folder.manifest_path.write_text(json.dumps(document))
    manifest = folder.read_manifest()
    assert "hunter2" not in repr(manifest)
    assert manifest.scenario.secrets_masked
    assert manifest.scenario.resolved["fleets"]["air"]["devices"] == 3
    assert manifest.tags["kernel"] == "6.1"
    folder.write_manifest(manifest)
    assert "hunter2" not in folder.manifest_path.read_text()
    assert folder.read_manifest() == manifest
