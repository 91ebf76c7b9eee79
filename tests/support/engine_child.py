"""A program that is one engine process: connects a scenario's nodes to a port, runs the load, tells what it counted.

`python -m support.engine_child SCENARIO PORT FOLDER`: prints counters and the most memory it ever had, as JSON.
"""

from __future__ import annotations

import asyncio
import json
import resource
import sys
from pathlib import Path

from battlebrokers.clock import Anchor
from battlebrokers.processes import boot_id
from battlebrokers.run.engine import Engine
from battlebrokers.run.messages import Prepare
from battlebrokers.scenario.plan import build_plan
from battlebrokers.scenario.reader import read_scenario


async def run(scenario: str, port: int, folder: Path) -> None:
    """The whole life of an engine."""
    here = Anchor.take()
    plan = build_plan(read_scenario(scenario, "test").scenario, 1, "abcde")
    order = Prepare(
        run="abcde", worker="worker-0", plan=plan.to_message(), share=0, of=1,
        endpoints={"tcp": f"mqtt://127.0.0.1:{port}", "ws": f"ws://127.0.0.1:{port}/mqtt"}, evidence=str(folder),
        boot_id=boot_id(), anchor_monotonic_ns=here.monotonic_ns, anchor_wall_ns=here.wall_ns, processes=1,
    )  # fmt: skip
    engine = Engine(order, here, lambda _message: None)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    await engine.prepare()
    finished = await engine.go(here.now_ns())
    grown_bytes = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) * 1024
    print(json.dumps({"counters": finished.counters, "grown_bytes": grown_bytes, "failure": finished.failure}))


if __name__ == "__main__":
    asyncio.run(run(Path(sys.argv[1]).read_text(encoding="utf-8"), int(sys.argv[2]), Path(sys.argv[3])))
