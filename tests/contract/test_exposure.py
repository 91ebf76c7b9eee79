"""Every shipped contender this machine can start listens on loopback only, and is root only where its file says so."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from battlebrokers.contenders import account
from battlebrokers.contenders.lifecycle import RunningContender, TlsServerFiles, start_contender, start_described
from battlebrokers.contenders.reader import load_contenders, parse_contender
from support.certificates import Authority
from support.exposure import exposed, of_root
from support.waiting import until

from .test_contenders import contender_params, must_be_here, speaks_plain_mqtt

pytestmark = [
    pytest.mark.broker,
    pytest.mark.skipif(shutil.which("ss") is None, reason="ss (iproute2) is not installed"),
]
AS_ROOT = {"sdn", "sdn-direct", "sdn-group", "sdn-mqtt", "sdn-reactive"}
"""They make switches and network namespaces."""


def shipped() -> list[object]:
    """All that are started here: those the contract suite shares in their groups, then the others."""
    started = [each for each in load_contenders() if not (each.run.external or each.run.container or each.run.compose)]
    others = [pytest.param(each.name, id=each.name) for each in started if not speaks_plain_mqtt(each)]
    return [*contender_params(together=True), *others]


def test_only_those_that_build_networks_may_be_root() -> None:
    assert {each.name for each in load_contenders() if each.run.as_root} == AS_ROOT


@pytest.fixture(params=shipped())
def contender(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[RunningContender]:
    must_be_here(request.param)
    tmp_path.chmod(0o700)  # as run folders are
    with start_contender(request.param, "stock", tmp_path / "contender") as running:
        yield running


def test_it_listens_on_loopback_only_and_is_not_root(contender: RunningContender) -> None:
    assert exposed(contender) == []
    if os.geteuid() == 0 and contender.name not in AS_ROOT:
        assert of_root(contender) == []
        assert contender.warnings == []


@pytest.mark.parametrize("name", [each.name for each in load_contenders() if each.tls])
def test_its_listeners_for_tls_are_on_loopback_too(name: str, tmp_path: Path) -> None:
    must_be_here(name)
    tls = TlsServerFiles(*Authority(tmp_path).sign("server", server=True))
    with start_contender(name, "stock", tmp_path / "contender", tls=tls) as running:
        assert exposed(running) == []
        assert os.geteuid() != 0 or of_root(running) == []


OPEN = f"""\
name: open
about: Listens on all addresses.
needs: {{python: {{executable: "{sys.executable}"}}}}
ports: [http]
run: {{command: ["${{python}}", -m, http.server, --bind, "0.0.0.0", "${{port.http}}"]}}
endpoints: {{http: "http://${{host}}:${{port.http}}"}}
ready: {{get: /, within_s: 30}}
speak: {{http: {{publish: {{post: /, text: "${{payload}}"}}}}}}
"""


def test_one_that_listens_on_all_addresses_is_found_out(tmp_path: Path) -> None:
    with start_described(parse_contender(OPEN, "open.yaml"), "stock", tmp_path) as running:
        [line] = exposed(running)
        assert f"0.0.0.0:{running.known['port.http']}" in line


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become somebody else")
def test_a_file_may_say_that_root_is_needed(tmp_path: Path) -> None:
    text = OPEN.replace("run: {command", "run: {as_root: true, command")
    with start_described(parse_contender(text, "open.yaml"), "stock", tmp_path) as running:
        assert len(of_root(running)) == 1
    with start_described(parse_contender(OPEN, "open.yaml"), "stock", tmp_path) as running:
        assert of_root(running) == []


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become somebody else")
def test_what_an_account_cannot_reach_makes_it_root_with_a_warning(tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_text("x")
    secret.chmod(0o600)
    text = OPEN.replace("needs: {", f"needs: {{secret: {{file: [{secret}]}}, ")
    with start_described(parse_contender(text, "open.yaml"), "stock", tmp_path / "run") as running:
        assert len(of_root(running)) == 1
        assert running.warnings == [f"open runs as root: it cannot run as nobody here (it may not read: {secret})"]


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become somebody else")
def test_where_there_is_nobody_to_become_it_is_root_with_a_warning(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(account, "UNPRIVILEGED", "no-such-account")
    with start_described(parse_contender(OPEN, "open.yaml"), "stock", tmp_path) as running:
        assert len(of_root(running)) == 1
        assert running.warnings[0].endswith("(there is no such account)")


WITHOUT_MOUNTING = """
import os, signal, sys
from pathlib import Path
import psutil
from battlebrokers.contenders.lifecycle import start_contender
with start_contender("mosquitto", "stock", Path(sys.argv[1])) as running:
    process = psutil.Process(running.process.pid)
    print(process.uids().effective, running.place.folder, running.warnings, sep="|", flush=True)
    if sys.argv[2] == "killed":
        os.kill(os.getpid(), signal.SIGKILL)
"""


@pytest.mark.skipif(os.geteuid() != 0 or not shutil.which("setpriv"), reason="needs root and setpriv")
@pytest.mark.parametrize("end", ["stopped", "killed"])
def test_root_without_the_right_to_mount_lets_it_work_elsewhere_and_keeps_its_files(tmp_path: Path, end: str) -> None:
    must_be_here("mosquitto")
    tmp_path.chmod(0o700)
    limited = ["setpriv", "--bounding-set", "-sys_admin", sys.executable, "-c", WITHOUT_MOUNTING]
    told = subprocess.run(
        [*limited, str(tmp_path / "run"), end], capture_output=True, text=True, timeout=120, check=False
    )
    user, elsewhere, warnings = told.stdout.strip().split("|")
    assert (user, warnings) == ("65534", "[]"), told.stderr
    assert Path(elsewhere) != tmp_path / "run"
    until(lambda: not Path(elsewhere).exists())
    assert "listener" in (tmp_path / "run" / "mosquitto.conf").read_text()
    assert "running" in (tmp_path / "run" / "output.log").read_text()


def test_its_logs_are_in_the_folder_it_was_given_also_when_it_was_killed(tmp_path: Path) -> None:
    must_be_here("mosquitto")
    with start_contender("mosquitto", "stock", tmp_path) as running:
        running.kill()
        assert (tmp_path / "mosquitto.conf").is_file()
        assert until(lambda: "running" in (tmp_path / "output.log").read_text())
