"""Scratch folders: removed by whoever comes next when their owner was killed, and never before."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from battlebrokers.scratch import Scratch, sweep

OWNER = """
import sys, tempfile
tempfile.tempdir = sys.argv[1]
from battlebrokers.scratch import Scratch
scratch = Scratch("bb-x-")
(scratch.path / "left").write_text("behind")
print(scratch.path, flush=True)
sys.stdin.read()
"""


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    return tmp_path


@pytest.fixture
def owner(here: Path) -> Iterator[tuple[subprocess.Popen[str], Path]]:
    words = [sys.executable, "-c", OWNER, str(here)]
    with subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        yield process, Path(process.stdout.readline().strip())
        process.kill()


def test_what_a_killed_process_left_is_removed_at_the_next_start_and_not_before(
    owner: tuple[subprocess.Popen[str], Path],
) -> None:
    process, folder = owner
    Scratch("bb-x-").close()
    assert (folder / "left").exists(), "its owner lives"
    process.send_signal(signal.SIGKILL)
    process.wait()
    next_one = Scratch("bb-x-")
    assert not folder.exists()
    assert next_one.path.is_dir()
    next_one.close()
    next_one.close()
    assert not next_one.path.exists()


def test_a_child_that_was_given_the_lock_keeps_the_folder(here: Path) -> None:
    scratch = Scratch("bb-x-")
    words = [sys.executable, "-c", "import sys; sys.stdin.read()"]
    with subprocess.Popen(words, stdin=subprocess.PIPE, pass_fds=(scratch.lock_fd,)) as child:
        os.close(scratch.lock_fd)
        sweep("bb-x-")
        assert scratch.path.is_dir()
        child.kill()
        child.wait()
        sweep("bb-x-")
        assert not scratch.path.exists()
    scratch.lock_fd = -1


def test_what_a_dying_process_adds_meanwhile_is_removed_by_the_next_sweep(
    here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    scratch = Scratch("bb-x-")
    (scratch.path / "inside").mkdir()
    remove = shutil.rmtree

    def remove_while_somebody_writes(folder: Path, **more: bool) -> None:
        remove(folder, **more)
        if folder.name == "inside":
            (folder.parent / "late").write_text("from a process that is being killed")

    monkeypatch.setattr(shutil, "rmtree", remove_while_somebody_writes)
    scratch.close()
    monkeypatch.undo()
    monkeypatch.setattr(tempfile, "tempdir", str(here))
    assert (scratch.path / "late").exists()
    sweep("bb-x-")
    assert not scratch.path.exists()


def test_what_has_no_lock_or_another_name_or_is_a_link_stays(here: Path) -> None:
    strangers = [here / "bb-x-old", here / "bb-y-1"]
    for folder in strangers:
        folder.mkdir()
    (here / "bb-y-1" / "lock").touch()
    (here / "bb-x-link").symlink_to(here / "bb-y-1")
    (here / "bb-x-file").touch()
    sweep("bb-x-")
    assert all(folder.is_dir() for folder in strangers)
    assert (here / "bb-x-link").is_symlink()
    assert (here / "bb-x-file").exists()
