"""Running scenarios for real in tests: scenario text in, run folder or `bb` result out."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from battlebrokers.run.glimpse import Glimpse
from battlebrokers.run.orchestrator import Orchestrator, RunRequest
from battlebrokers.scenario.reader import load_scenario
from battlebrokers.tables.run_folder import RunFolder

BB = Path(sys.executable).with_name("bb")


def write_scenario(folder: Path, text: str) -> Path:
    """A scenario file."""
    path = folder / "scenario.yaml"
    path.write_text(text)
    return path


def run_for_real(
    scenario: Path | str, broker: str, runs: Path, *, watch: Any = None, say: Any = None, **request: Any
) -> RunFolder:
    """One orchestrated run in this process's loop, without analysis."""
    loaded = load_scenario(str(scenario), request.pop("overrides", []), request.pop("scale", 1.0))
    order = RunRequest(loaded=loaded, broker=broker, seed=loaded.scenario.seed, runs=runs, **request)
    orchestrator = Orchestrator(order, watch or (lambda _glimpse: None), say=say or (lambda _words: None))
    return asyncio.run(orchestrator.run())


@dataclass(frozen=True)
class Result:
    """What a `bb` command did."""

    code: int
    out: str
    err: str

    def json(self) -> Any:
        return json.loads(self.out)


def bb(*arguments: str, cwd: Path, timeout: float = 280) -> Result:
    """Run the real command."""
    done = subprocess.run(
        [str(BB), *arguments],
        cwd=cwd,
        capture_output=True,
        text=True,
        timeout=timeout,
        env={**os.environ, "NO_COLOR": "1", "COLUMNS": "160"},
        check=False,
    )
    return Result(done.returncode, done.stdout, done.stderr)


def start_bb(*arguments: str, cwd: Path, log: Path) -> subprocess.Popen[bytes]:
    """Start the real command and leave it running."""
    with log.open("wb") as sink:
        return subprocess.Popen(
            [str(BB), *arguments], cwd=cwd, stdin=subprocess.DEVNULL, stdout=sink, stderr=sink, start_new_session=True
        )


__all__ = ["Glimpse", "Result", "bb", "run_for_real", "start_bb", "write_scenario"]
