"""The short version of `make chaos`: some faults of every group, on the real command and real brokers."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from chaos.place import ROOT

pytestmark = [pytest.mark.broker, pytest.mark.slow, pytest.mark.alone]


@pytest.mark.timeout(600)
def test_the_short_version_holds(tmp_path: Path, require_broker) -> None:
    require_broker("mosquitto")
    told = tmp_path / "chaos.json"
    words = [sys.executable, "-m", "chaos", "--short", "--jobs", "3", "--output", str(told)]
    surroundings = {**os.environ, "PYTHONPATH": str(ROOT), "TMPDIR": str(tmp_path)}
    done = subprocess.run(words, cwd=ROOT, env=surroundings, capture_output=True, text=True, timeout=580, check=False)
    facts = json.loads(told.read_text())
    lost = {one["fault"]: one["complaints"] for one in facts["faults"] if "complaints" in one}
    assert lost == {}, done.stdout[-8000:]
    assert done.returncode == 0
    assert facts["tried"] >= 15
    assert facts["held"] == facts["tried"]
