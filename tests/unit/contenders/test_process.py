from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import textwrap
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest

from battlebrokers.contenders.process import KeptProcess
from battlebrokers.errors import ContenderError
from support.waiting import until

STUBBORN = """
    import signal, time
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    print("up", flush=True)
    time.sleep(600)
"""
POLITE = """
    import signal, sys, time
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(7))
    print("up", flush=True)
    time.sleep(600)
"""
DAEMONISING = """
    import os, time
    if os.fork() == 0:
        os.setsid()
        if os.fork() == 0:
            os.write(1, f"daemon {os.getpid()};".encode())
            time.sleep(600)
        os._exit(0)
    os.wait()
    print("up", flush=True)
    time.sleep(600)
"""


def daemon_of(folder: Path) -> int:
    # Two processes write at the same time: their words may touch.
    told = re.compile(r"daemon (\d+);")
    found = until(lambda: told.search((folder / "output.log").read_text()), what="the daemon")
    return int(found[1])


@pytest.fixture
def keep(tmp_path: Path) -> Iterator[Callable[..., KeptProcess]]:
    kept: list[KeptProcess] = []

    def start(script: str, stop_within_s: float = 10.0, command: list[str] | None = None) -> KeptProcess:
        process = KeptProcess(
            command or [sys.executable, "-c", textwrap.dedent(script)],
            env=dict(os.environ),
            cwd=tmp_path,
            output=tmp_path / "output.log",
            stop_signal=signal.SIGTERM,
            stop_within_s=stop_within_s,
        )
        kept.append(process)
        if command is None:
            until(lambda: "up" in (tmp_path / "output.log").read_text() or process.poll() is not None)
        return process

    yield start
    for process in kept:
        process.kill()


def test_it_is_asked_to_stop_and_its_status_is_kept(keep: Callable[..., KeptProcess]) -> None:
    process = keep(POLITE)
    assert process.poll() is None
    process.stop()
    assert process.poll() == 7
    assert not psutil.pid_exists(process.pid)


def test_stopping_twice_is_the_same_as_once(keep: Callable[..., KeptProcess]) -> None:
    process = keep(POLITE)
    process.stop()
    process.stop()
    process.kill()
    assert process.poll() == 7


def test_who_does_not_listen_is_killed_after_its_grace(keep: Callable[..., KeptProcess]) -> None:
    process = keep(STUBBORN, stop_within_s=0.2)
    process.stop()
    assert process.poll() == -signal.SIGKILL


def test_killing_does_not_ask(keep: Callable[..., KeptProcess]) -> None:
    process = keep(POLITE)
    process.kill()
    assert process.poll() == -signal.SIGKILL


def test_a_frozen_process_can_be_stopped(keep: Callable[..., KeptProcess]) -> None:
    process = keep(POLITE)
    os.kill(process.pid, signal.SIGSTOP)
    process.stop()
    assert process.poll() == 7


def test_an_end_of_its_own_is_noticed(keep: Callable[..., KeptProcess]) -> None:
    process = keep("import sys; sys.exit(3)")
    until(lambda: process.poll() == 3)


def test_a_daemon_it_started_is_seen_and_ended_with_it(keep: Callable[..., KeptProcess], tmp_path: Path) -> None:
    process = keep(DAEMONISING)
    daemon = daemon_of(tmp_path)
    assert set(process.pids()) == {process.pid, daemon}
    process.stop()
    assert not psutil.pid_exists(daemon)


def test_a_daemon_is_ended_when_its_parent_dies_by_itself(keep: Callable[..., KeptProcess], tmp_path: Path) -> None:
    process = keep(DAEMONISING)
    daemon = daemon_of(tmp_path)
    os.kill(process.pid, signal.SIGKILL)
    until(lambda: process.poll() == -signal.SIGKILL)
    until(lambda: not psutil.pid_exists(daemon))


def test_it_outlives_the_thread_that_started_it(keep: Callable[..., KeptProcess]) -> None:
    started: list[KeptProcess] = []
    thread = threading.Thread(target=lambda: started.append(keep(POLITE)))
    thread.start()
    thread.join()
    time.sleep(0.1)
    assert started[0].poll() is None


def test_it_has_a_session_of_its_own_so_that_ctrl_c_does_not_reach_it(keep: Callable[..., KeptProcess]) -> None:
    process = keep(POLITE)
    assert os.getsid(process.pid) == process.pid


def test_a_program_that_is_not_there_is_told(keep: Callable[..., KeptProcess]) -> None:
    with pytest.raises(ContenderError, match="cannot be started: No such file"):
        keep("", command=["/nowhere/broker"])


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_it_does_not_survive_us_even_when_we_are_killed(tmp_path: Path, number: int) -> None:
    script = f"""
        import os, signal, sys, time
        from pathlib import Path
        from battlebrokers.contenders.process import KeptProcess
        here = Path({str(tmp_path)!r})
        process = KeptProcess([sys.executable, "-c", {textwrap.dedent(POLITE)!r}], env=dict(os.environ), cwd=here,
            output=here / "output.log", stop_signal=signal.SIGTERM, stop_within_s=5)
        print(process.pid, flush=True)
        time.sleep(600)
    """
    parent = subprocess.Popen([sys.executable, "-c", textwrap.dedent(script)], stdout=subprocess.PIPE, text=True)
    assert parent.stdout is not None
    broker = psutil.Process(int(parent.stdout.readline()))
    parent.send_signal(number)
    parent.wait()
    parent.stdout.close()
    until(lambda: not broker.is_running())


def test_it_does_not_survive_its_keeper(keep: Callable[..., KeptProcess]) -> None:
    process = keep(STUBBORN)
    os.kill(psutil.Process(process.pid).ppid(), signal.SIGKILL)
    until(lambda: process.poll() == -signal.SIGKILL)
    until(lambda: not psutil.pid_exists(process.pid) or psutil.Process(process.pid).status() == "zombie")


NOBODY = (65534, 65534)
as_another = pytest.mark.skipif(os.geteuid() != 0, reason="only root can become somebody else")


@pytest.fixture
def shut(tmp_path: Path) -> Path:
    """A folder nobody but root may enter, with a program, a folder for a broker, and something that is none of its."""
    home = tmp_path / "home"
    home.mkdir(mode=0o700)
    (home / "program").write_text("#!/bin/sh\nid -u; ls -A ..; cat ../secret; echo up; exec sleep 600\n")
    (home / "program").chmod(0o755)
    (home / "secret").write_text("secret")
    (home / "work").mkdir()
    os.chown(home / "work", *NOBODY)
    return home


def kept_as_nobody(shut: Path, **more: object) -> KeptProcess:
    work = shut / "work"
    return KeptProcess(
        [str(shut / "program")], env={"PATH": os.environ["PATH"]}, cwd=work, output=work / "output.log",
        stop_signal=signal.SIGTERM, stop_within_s=5, account=NOBODY,
        **{"needed": [str(work), str(shut / "program")], **more},  # type: ignore[arg-type]
    )  # fmt: skip


@as_another
def test_an_account_reaches_what_it_needs_and_nothing_else_of_a_shut_folder(shut: Path) -> None:
    output = shut / "work" / "output.log"
    process = kept_as_nobody(shut)
    try:
        until(lambda: "up" in output.read_text() or process.poll() is not None)
        assert process.as_root == ""
        told = output.read_text().splitlines()
        assert told[:3] == ["65534", "program", "work"], told
        assert "secret" not in told
        assert psutil.Process(process.pid).uids() == (65534, 65534, 65534)
        assert psutil.Process(process.pid).gids() == (65534, 65534, 65534)
        about = Path(f"/proc/{process.pid}/status").read_text()
        assert re.search(r"^NoNewPrivs:\s1$", about, re.MULTILINE)
        assert re.search(r"^CapEff:\s0+$", about, re.MULTILINE)
        assert re.search(r"^Groups:\s*$", about, re.MULTILINE)
    finally:
        process.kill()
    # What was laid over the folder was seen by the broker alone.
    assert {path.name for path in shut.iterdir()} == {"program", "secret", "work"}
    assert (shut / "secret").read_text() == "secret"


@as_another
def test_under_an_account_it_does_not_survive_its_keeper_either(shut: Path) -> None:
    process = kept_as_nobody(shut)
    until(lambda: "up" in (shut / "work" / "output.log").read_text())
    os.kill(psutil.Process(process.pid).ppid(), signal.SIGKILL)
    until(lambda: process.poll() == -signal.SIGKILL)
    until(lambda: not psutil.pid_exists(process.pid) or psutil.Process(process.pid).status() == "zombie")
    process.kill()


@as_another
def test_what_the_account_cannot_reach_is_told_and_it_stays_what_we_are(shut: Path) -> None:
    (shut / "secret").chmod(0o600)
    process = kept_as_nobody(shut, needed=[str(shut / "work"), str(shut / "secret")])
    try:
        assert process.as_root == f"it may not read: {shut / 'secret'}"
        assert psutil.Process(process.pid).uids().effective == 0
    finally:
        process.kill()


@as_another
def test_no_link_in_the_place_of_its_output_is_followed(shut: Path) -> None:
    (shut / "work" / "output.log").symlink_to(shut / "secret")
    with pytest.raises(ContenderError, match="cannot be started"):
        kept_as_nobody(shut)
    assert (shut / "secret").read_text() == "secret"


@pytest.mark.parametrize("kill_us", [False, True])
def test_what_it_wrote_elsewhere_is_brought_when_it_has_ended_also_when_we_are_killed(
    tmp_path: Path, kill_us: bool
) -> None:
    script = f"""
        import os, signal, sys, time
        from pathlib import Path
        from battlebrokers.contenders.process import KeptProcess
        here, there = Path({str(tmp_path)!r}) / "kept", Path({str(tmp_path)!r}) / "work"
        here.mkdir(), there.mkdir()
        shell = "mkdir data-x; echo a > data-x/a; echo log > own.log; ln -s /etc/passwd link; mkfifo pipe;" \\
            "echo up; exec sleep 600"
        process = KeptProcess(["/bin/sh", "-c", shell], env=dict(os.environ), cwd=there, output=here / "output.log",
            stop_signal=signal.SIGTERM, stop_within_s=5, bring_to=here)
        while "up" not in (here / "output.log").read_text(): time.sleep(0.01)
        print(process.pid, flush=True)
        os.kill(os.getpid(), signal.SIGKILL) if {kill_us} else process.stop()
    """
    with subprocess.Popen([sys.executable, "-c", textwrap.dedent(script)], stdout=subprocess.PIPE, text=True) as parent:
        parent.communicate(timeout=60)
    kept = tmp_path / "kept"
    until(lambda: (kept / "own.log").exists() and (kept / "link").is_symlink())
    assert sorted(path.name for path in kept.iterdir()) == ["link", "output.log", "own.log"]
    assert (kept / "own.log").read_text() == "log\n"
    until(lambda: not (tmp_path / "work").exists())
