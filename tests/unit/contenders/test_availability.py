from __future__ import annotations

from pathlib import Path

import pytest

from battlebrokers.contenders.availability import Available, Missing, availability, install_hint, installation_of
from battlebrokers.contenders.reader import find_contender, parse_contender
from battlebrokers.contenders.spec import Contender

FAKE = """
name: fake
about: A program that only tells its version.
needs: {{fake: {{executable: fake-broker, also_in: ["{folder}"], at_least: "2"}}}}
install: {{apt: [fake], commands: [fetch it]}}
version: [{{command: ["${{fake}}", --version], match: 'fake (\\S+)'}}]
capabilities: {{mqtt: ["3.1.1"], qos: 0, transports: [tcp]}}
ports: [mqtt]
endpoints: {{tcp: "mqtt://${{host}}:${{port.mqtt}}"}}
run: {{command: ["${{fake}}"]}}
profiles: {{stock: {{about: s}}, tuned: {{about: t}}}}
ready: {{within_s: 1}}
stop: {{within_s: 1}}
services: {{fake: ["*"]}}
"""


def fake(folder: Path) -> Contender:
    return parse_contender(FAKE.format(folder=folder), "fake.yaml")


def program(folder: Path, says: str) -> None:
    path = folder / "fake-broker"
    path.write_text(f"#!/bin/sh\necho {says}\nexit 3\n")
    path.chmod(0o755)


def test_amqtt_is_always_available_because_it_comes_with_us() -> None:
    here = availability(find_contender("amqtt"))
    assert isinstance(here, Available)
    assert here.version[0].isdigit()


def test_a_program_is_found_beside_path_and_asked_for_its_version(tmp_path: Path) -> None:
    program(tmp_path, "fake 2.5.1")
    here = availability(fake(tmp_path))
    assert here == Available("2.5.1", str(tmp_path / "fake-broker"), {"fake": str(tmp_path / "fake-broker")})


def test_a_program_that_is_not_there_is_named(tmp_path: Path) -> None:
    here = availability(fake(tmp_path))
    assert isinstance(here, Missing)
    assert here.what == "the program fake-broker"
    assert here.hint


def test_a_program_that_is_too_old_is_told_with_both_versions(tmp_path: Path) -> None:
    program(tmp_path, "fake 1.9")
    here = availability(fake(tmp_path))
    assert isinstance(here, Missing)
    assert here.what == "fake-broker 2 or newer (here: 1.9)"


def test_a_node_module_is_looked_for_in_the_users_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert installation_of(find_contender("aedes")).parent == tmp_path / "battlebrokers"
    here = availability(find_contender("aedes"))
    assert isinstance(here, Missing)
    assert "node" in here.what.lower()


def test_the_hint_fits_the_package_manager_that_is_here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    contender = fake(tmp_path)
    monkeypatch.setenv("PATH", str(tmp_path))
    assert install_hint(contender) == "fetch it"
    apt = tmp_path / "apt-get"
    apt.write_text("#!/bin/sh\n")
    apt.chmod(0o755)
    assert install_hint(contender).endswith("apt-get install -y --no-install-recommends fake")


def test_a_version_is_not_read_from_where_a_link_in_a_module_leads(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    (tmp_path / "secret.json").write_text('{"version": "1.2.3"}')
    aedes = find_contender("aedes-redis")
    module = installation_of(aedes) / "node_modules" / "aedes"
    for name in ("aedes", "mqemitter-redis", "aedes-persistence-redis"):
        (module.parent / name).mkdir(parents=True)
        (module.parent / name / "package.json").write_text('{"version": "4.5.6"}')
    here = availability(aedes)
    if isinstance(here, Missing):
        pytest.skip(f"{here.what} is missing")
    assert here.version == "4.5.6"
    (module / "package.json").unlink()
    (module / "package.json").symlink_to(tmp_path / "secret.json")
    assert availability(aedes) == Available("unknown", here.path, here.found)
