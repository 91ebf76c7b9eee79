"""How the tests themselves are spread over processes: what shares something costly must meet in one."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).parents[2]
SHARED = """
import os, pytest
{mark}
@pytest.mark.parametrize("number", range(8))
def test_who(number):
    with open({log!r}, "a") as log:
        log.write(f"{{os.getpid()}}\\n")
"""


@pytest.mark.slow
@pytest.mark.parametrize("file", ["test_marked.py", "test_network_of_any_kind.py"])
def test_those_of_one_group_meet_in_one_process(tmp_path: Path, file: str) -> None:
    log = tmp_path / "log"
    mark = '@pytest.mark.xdist_group("brokers")' if file == "test_marked.py" else ""
    (tmp_path / file).write_text(SHARED.format(mark=mark, log=str(log)))
    words = ["-q", "-n", "2", "--dist", "loadgroup", "-p", "no:cacheprovider", "-p", "conftest", "--rootdir", tmp_path]
    around = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")}
    done = subprocess.run(
        [sys.executable, "-m", "pytest", *map(str, words), "-c", "/dev/null", str(tmp_path / file)],
        cwd=tmp_path,
        env={**around, "PYTHONPATH": f"{REPOSITORY / 'tests'}{os.pathsep}{REPOSITORY}"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert len(log.read_text().split()) == 8
    assert len(set(log.read_text().split())) == 1
