from __future__ import annotations

import json
import os
import resource
import socket
from pathlib import Path

from battlebrokers.run import host
from battlebrokers.run.machine import gather


def test_host_facts_can_be_written_as_json_and_hold_no_unknowns() -> None:
    facts = host.host_facts()
    assert json.loads(json.dumps(facts)) == facts
    assert None not in facts.values()
    assert {"kernel", "cpu_cores", "memory_bytes", "python", "boot_id", "open_files_soft"} <= set(facts)


def test_host_facts_tell_the_congestion_control_that_a_new_socket_gets() -> None:
    with socket.socket() as made:
        told = made.getsockopt(socket.IPPROTO_TCP, socket.TCP_CONGESTION, 16).rstrip(b"\0").decode()
    assert host.host_facts()["tcp_congestion_control"] == told


def test_the_boot_id_does_not_change_while_the_machine_runs() -> None:
    assert host.boot_id()
    assert host.boot_id() == host.boot_id()


def test_the_open_files_limit_is_raised_as_far_as_it_may_be() -> None:
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (min(256, before[1]) if before[1] > 0 else 256, before[1]))
        raised = host.raise_open_files_limit()
        assert raised == host.open_files_limit()[0]
        assert raised == (min(before[1], host.OPEN_FILES_WANTED) if before[1] > 0 else host.OPEN_FILES_WANTED)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, before)


def test_gathering_looks_at_the_nearest_folder_that_exists(tmp_path: Path) -> None:
    machine = gather(tmp_path / "not" / "yet" / "runs", programs=False)
    assert machine.runs_writable
    assert machine.disk_free_bytes > 0
    assert machine.tcp_congestion_control == host.tcp_congestion_control()
    assert machine.java is None
    assert machine.brokers == {}


def test_a_runs_folder_below_a_file_cannot_be_written(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    assert not gather(tmp_path / "file" / "runs", programs=False).runs_writable


def test_usable_cores_are_at_most_all_cores() -> None:
    assert 1 <= host.usable_cores() <= (os.cpu_count() or 1)
