from __future__ import annotations

import os
import signal
import subprocess
from pathlib import Path

from battlebrokers.contenders.containers import compose_command, container_command
from support.waiting import until


def test_a_container_publishes_its_ports_where_we_look_and_leaves_nothing() -> None:
    command = container_command(
        "docker",
        "bb-thing-4711",
        "vendor/thing:1.2",
        ["--verbose"],
        host="127.0.0.1",
        published={4711: 1883},
        env={"A": "b c"},
        mounts={"/etc/thing.conf": "/tmp/it/thing.conf"},
    )
    assert command == [
        *("docker", "run", "--rm", "--init", "--name", "bb-thing-4711"),
        *("--publish", "127.0.0.1:4711:1883/tcp", "--publish", "127.0.0.1:4711:1883/udp"),
        *("--volume", "/tmp/it/thing.conf:/etc/thing.conf", "--env", "A=b c", "vendor/thing:1.2", "--verbose"),
    ]


def test_a_composition_is_taken_down_after_it_was_told_to_end(tmp_path: Path) -> None:
    """An engine that notes what it is asked, and whose `up` ends when it is told to, as compose does."""
    said = tmp_path / "said"
    engine = tmp_path / "engine"
    engine.write_text(
        f'#!/bin/sh\necho "$@" >> {said}\n'
        'case "$*" in *" up "*) trap "exit 0" TERM; while :; do sleep 0.05; done ;; esac\n'
    )
    engine.chmod(0o755)
    started = subprocess.Popen(compose_command(str(engine), "bb-thing", "file.yaml"), start_new_session=True)
    try:
        until(said.exists)
        os.kill(started.pid, signal.SIGTERM)
        assert started.wait(60) is not None
    finally:
        if started.poll() is None:
            os.killpg(started.pid, signal.SIGKILL)
    assert said.read_text().splitlines() == [
        "compose -p bb-thing -f file.yaml up --abort-on-container-exit",
        "compose -p bb-thing -f file.yaml down --volumes --remove-orphans",
    ]
