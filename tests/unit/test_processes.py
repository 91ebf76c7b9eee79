"""Whether a process that left its mark is gone: by id, start of the machine, start of the process, and place."""

from __future__ import annotations

import os
import subprocess
import sys

import msgspec
import pytest

from battlebrokers.processes import is_gone, own_identity


def _ended_pid() -> int:
    with subprocess.Popen([sys.executable, "-c", ""]) as child:
        child.wait()
        return child.pid


def test_this_process_is_not_gone() -> None:
    assert not is_gone(own_identity())


def test_a_process_that_ended_is_gone() -> None:
    assert is_gone(msgspec.structs.replace(own_identity(), pid=_ended_pid()))


def test_a_process_that_ended_and_was_not_waited_for_is_gone() -> None:
    with subprocess.Popen([sys.executable, "-c", ""], stdout=subprocess.PIPE) as child:
        assert child.stdout is not None
        child.stdout.read()
        mark = msgspec.structs.replace(own_identity(), pid=child.pid, started_ticks=0)
        os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)
        assert is_gone(mark)


@pytest.mark.parametrize(
    ("change", "gone"),
    [
        ({"boot_id": "another start of this machine"}, True),
        ({"started_ticks": 1}, True),
        ({"host": "another-machine", "boot_id": "its own", "pid": 0x7FFFFFF0}, False),
        ({"pid_namespace": "pid:[1]", "pid": 0x7FFFFFF0}, False),
        ({"pid": 0}, False),
    ],
    ids=["restarted", "id given again", "elsewhere", "another container", "unknown"],
)
def test_the_same_id_is_another_process_after_a_restart_and_unknown_elsewhere(
    change: dict[str, object], gone: bool
) -> None:
    assert is_gone(msgspec.structs.replace(own_identity(), **change)) is gone
