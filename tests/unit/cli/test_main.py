"""`bb` where it cannot be loaded, and where nobody reads what it prints."""

from __future__ import annotations

import os
import resource
import subprocess
from functools import partial
from pathlib import Path

import pytest

from support.runs import BB


@pytest.mark.slow
def test_too_little_memory_to_be_loaded_is_one_message_and_exit_code_4(tmp_path: Path) -> None:
    limit = partial(resource.setrlimit, resource.RLIMIT_AS, (64 << 20, 64 << 20))
    done = subprocess.run(
        [str(BB), "schema"], cwd=tmp_path, preexec_fn=limit, capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 4
    assert done.stderr.startswith("error: bb cannot be loaded")
    assert "Traceback" not in done.stderr


@pytest.mark.slow
@pytest.mark.parametrize("words", [("schema",), ("list",), ("run", "--help")])
def test_a_reader_that_has_gone_is_no_failure(tmp_path: Path, words: tuple[str, ...]) -> None:
    reading, writing = os.pipe()
    os.close(reading)
    done = subprocess.run(
        [str(BB), *words], cwd=tmp_path, stdout=writing, stderr=subprocess.PIPE, text=True, timeout=60, check=False
    )
    os.close(writing)
    assert (done.returncode, done.stderr) == (0, "")
