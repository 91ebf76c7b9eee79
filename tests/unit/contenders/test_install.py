from __future__ import annotations

import importlib.util
import json
import os
import shutil
import subprocess
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest

from battlebrokers.contenders import install as install_module
from battlebrokers.contenders.availability import Available, Missing, availability, installation_of
from battlebrokers.contenders.reader import find_contender, parse_contender
from battlebrokers.errors import EnvironmentNotReady

SCRIPT = Path(__file__).parents[3] / "scripts" / "install-brokers"
POLICY = Path("/usr/sbin/policy-rc.d")

pytestmark = pytest.mark.slow


@pytest.fixture
def program(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str, str], None]:
    """A function that puts a small shell program on an otherwise empty PATH."""
    folder = tmp_path / "bin"
    folder.mkdir()
    monkeypatch.setenv("PATH", str(folder))

    def add(name: str, script: str) -> None:
        (folder / name).write_text(f"#!/bin/sh\n{script}\n")
        (folder / name).chmod(0o755)

    return add


def test_what_is_here_is_not_installed_again(program: Callable[[str, str], None]) -> None:
    assert isinstance(install_module.install(find_contender("amqtt")), Available)


def test_node_modules_go_into_the_cache_without_scripts_or_lock(
    program: Callable[[str, str], None], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cache = tmp_path / "cache"
    monkeypatch.setenv("XDG_CACHE_HOME", str(cache))
    folder = installation_of(find_contender("aedes"))
    modules = folder / "node_modules"
    program("node", "echo v22.1.0")
    made = " && ".join(
        f'/bin/mkdir -p {modules}/{name} && echo \'{{"version": "1.2.3"}}\' > {modules}/{name}/package.json'
        for name in ("aedes", "ws")
    )
    program("npm", f'echo "$@" > {tmp_path}/asked; {made}')
    monkeypatch.setattr("battlebrokers.contenders.availability.shutil.which", _only_on(tmp_path / "bin"))
    here = install_module.install(find_contender("aedes"))
    assert here.version == "1.2.3"
    asked = (tmp_path / "asked").read_text()
    assert folder.parent == cache / "battlebrokers"
    assert f"--prefix {folder}" in asked
    assert "--no-package-lock" in asked
    assert "--ignore-scripts" in asked


THING = """
name: thing
about: A program of a package.
needs: {{thing: {{{kind}: thing}}}}
install: {install}
ports: [http]
endpoints: {{tcp: "mqtt://${{host}}:${{port.http}}"}}
run: {{command: ["${{thing}}", "${{thing.folder}}"]}}
"""


def test_what_node_packages_depend_on_can_be_pinned(
    program: Callable[[str, str], None], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    text = THING.format(kind="node", install='{npm: [thing@0.0.16], npm-overrides: [old@1.0.3, "@scope/x@2.2.4"]}')
    contender = parse_contender(text, "thing.yaml")
    folder = installation_of(contender)
    here = folder / "node_modules" / "thing"
    program("npm", f'/bin/mkdir -p {here} && echo \'{{"version": "0.0.16"}}\' > {here}/package.json')
    found = install_module.install(contender)
    assert (found.version, found.found["thing.folder"]) == ("0.0.16", str(here))
    assert json.loads((folder / "package.json").read_text())["overrides"] == {"old": "1.0.3", "@scope/x": "2.2.4"}


def test_a_python_program_may_have_an_environment_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    wheel = tmp_path / "thing-3.4-py3-none-any.whl"
    with zipfile.ZipFile(wheel, "w") as packed:
        packed.writestr("thing/__init__.py", "")
        packed.writestr("thing-3.4.dist-info/METADATA", "Metadata-Version: 2.1\nName: thing\nVersion: 3.4\n")
        packed.writestr("thing-3.4.dist-info/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        packed.writestr("thing-3.4.dist-info/RECORD", "")
    contender = parse_contender(THING.format(kind="python", install="{pip-own: [thing]}"), "thing.yaml")
    # A file may not name a local package; here one stands for the registry.
    contender = contender.model_copy(update={"install": {"pip-own": [str(wheel)]}})
    missing = availability(contender)
    assert isinstance(missing, Missing)
    assert missing.hint == "bb brokers install thing"
    found = install_module.install(contender)
    own = installation_of(contender) / "venv"
    assert own.parent.parent == tmp_path / "cache" / "battlebrokers"
    assert (found.version, found.found["thing"]) == ("3.4", str(own / "bin" / "python"))
    assert Path(found.found["thing.folder"]).is_dir()
    assert importlib.util.find_spec("thing") is None


@pytest.mark.parametrize(("one", "other"), [("acme-onem2m", "acme-onem2m-mqtt"), ("aedes", "aedes-redis")])
def test_contenders_that_want_the_same_packages_share_one_installation(
    one: str, other: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert installation_of(find_contender(one)) == installation_of(find_contender(other))


def test_other_packages_or_pins_go_elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    wishes = ["{npm: [thing@1]}", "{npm: [thing@2]}", "{npm: [thing@1, x@1]}", "{npm: [thing@1], npm-overrides: [y@1]}"]
    wishes += ["{pip-own: [thing@1]}", '{npm: ["@scope/thing@1"]}']
    texts = [THING.format(kind="node", install=wish) for wish in wishes]
    folders = [installation_of(parse_contender(text, "thing.yaml")) for text in texts]
    assert len(set(folders)) == len(folders)
    assert {folder.name.rpartition("-")[0] for folder in folders} == {"thing"}
    another_name = texts[2].replace("name: thing", "name: other")
    assert installation_of(parse_contender(another_name, "other.yaml")) == folders[2]


def test_what_was_installed_under_a_contenders_name_still_serves(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    contender = find_contender("acme-onem2m")
    shared = installation_of(contender)
    (tmp_path / "battlebrokers" / contender.name).mkdir(parents=True)
    assert installation_of(contender) == tmp_path / "battlebrokers" / contender.name
    shared.mkdir()
    assert installation_of(contender) == shared


def test_without_root_the_error_says_what_to_type(
    program: Callable[[str, str], None], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program("apt-get", "exit 1")
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    monkeypatch.setattr("battlebrokers.contenders.availability.shutil.which", _only_on(tmp_path / "bin"))
    with pytest.raises(EnvironmentNotReady) as caught:
        install_module.install(find_contender("nats"))
    assert caught.value.hint == "sudo apt-get install -y --no-install-recommends nats-server"


def test_an_installer_that_fails_is_told_with_its_command(
    program: Callable[[str, str], None], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program("apt-get", "exit 100")
    policy = tmp_path / "policy-rc.d"
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    monkeypatch.setattr(install_module, "_POLICY", policy)
    monkeypatch.setattr("battlebrokers.contenders.availability.shutil.which", _only_on(tmp_path / "bin"))
    with pytest.raises(EnvironmentNotReady, match="apt-get ended with status 100"):
        install_module.install(find_contender("nats"))
    assert not policy.exists()


def _only_on(folder: Path) -> Callable[..., str | None]:
    real = shutil.which
    return lambda name, path=None: real(name, path=str(folder))


class TestTheSetUpScript:
    """Java is made to be missing; which brokers are missing depends on the machine."""

    @pytest.fixture
    def environment(self, tmp_path: Path) -> dict[str, str]:
        folder = tmp_path / "stubs"
        folder.mkdir()
        for name, script in {
            "apt-get": f'echo "$@" >> {tmp_path}/apt',
            "apt-cache": '[ "$2" = openjdk-21-jre-headless ]',
            "npm": "exit 1",
            "node": "echo v4.0.0",
        }.items():
            (folder / name).write_text(f"#!/bin/sh\n{script}\n")
            (folder / name).chmod(0o755)
        return {"PATH": f"{folder}:/usr/bin:/bin", "JAVA_HOME": str(tmp_path / "no-java")}

    def run(self, environment: dict[str, str], user_id: int, *arguments: str) -> subprocess.CompletedProcess[str]:
        stub = Path(environment["PATH"].partition(":")[0]) / "id"
        stub.write_text(f"#!/bin/sh\necho {user_id}\n")
        stub.chmod(0o755)
        return subprocess.run([SCRIPT, *arguments], env=environment, capture_output=True, text=True, check=False)

    def test_without_root_it_tells_what_to_type_and_succeeds(self, environment: dict[str, str], tmp_path: Path) -> None:
        done = self.run(environment, 1000)
        assert done.returncode == 0
        assert "sudo apt-get install -y --no-install-recommends openjdk-17-jre-headless" in done.stderr
        assert not (tmp_path / "apt").exists()

    @pytest.mark.skipif(not POLICY.exists() and os.geteuid() != 0, reason="only root can keep services from starting")
    def test_as_root_it_installs_the_java_this_distribution_has(
        self, environment: dict[str, str], tmp_path: Path
    ) -> None:
        there_before = POLICY.exists()
        done = self.run(environment, 0, "--minimal")
        assert done.returncode == 0, done.stderr
        asked = (tmp_path / "apt").read_text()
        assert "DPkg::Lock::Timeout" in asked
        assert "--no-install-recommends openjdk-21-jre-headless" in asked
        assert POLICY.exists() is there_before

    def test_an_unknown_argument_is_refused(self, environment: dict[str, str]) -> None:
        assert self.run(environment, 1000, "--everything").returncode == 2

    def test_help_explains_it(self, environment: dict[str, str]) -> None:
        assert "--minimal" in self.run(environment, 1000, "--help").stdout
