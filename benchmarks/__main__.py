"""`make bench`: measure, print a table, write latest.json; 0 when every target is met, 1 when not.

Progress goes to stderr, the table to stdout. `--only engine` runs one group, `--only engine.qos1` a part of it.
"""

from __future__ import annotations

import argparse
import importlib
import shutil
import signal
import sys
import tempfile
from pathlib import Path

from battlebrokers.errors import BattleError
from benchmarks.bench import Bench
from benchmarks.figure import Figure, merged, read, table, write

GROUPS = ("engine", "verdict", "analyze", "capture", "links", "sdn")
LATEST = Path(__file__).with_name("latest.json")


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description="Measure ourselves beside peers.")
    parser.add_argument("--only", default="", metavar="GROUP", help=f"one of {', '.join(GROUPS)}, or a figure's name")
    parser.add_argument("--quick", action="store_true", help="tiny sizes: does everything work? Writes nothing.")
    parser.add_argument("--output", type=Path, help="where to write (default: latest.json beside the benchmarks)")
    told = parser.parse_args(arguments)
    wanted = [group for group in GROUPS if group == told.only.partition(".")[0] or not told.only]
    if not wanted:
        parser.error(f"no group {told.only!r}; there are: {', '.join(GROUPS)}")
    # Whoever ends us, brokers and switches go too.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    folder = Path(tempfile.mkdtemp(prefix="bench-"))
    output = told.output or (None if told.quick else LATEST)
    if output is not None:
        output.parent.mkdir(parents=True, exist_ok=True)
    found: list[Figure] = []
    try:
        bench = Bench(folder, told.quick, told.only, output)
        for group in wanted:
            for figure in importlib.import_module(f"benchmarks.{group}").figures(bench):
                if figure.name.startswith(told.only):
                    found.append(figure)
                    bench.say(table([figure]).splitlines()[1])
                    # Written after each figure: an interrupted hour is not lost.
                    if output is not None:
                        write(output, merged(read(output), found))
    except BattleError as error:
        print(f"error: {error}", file=sys.stderr)
        return int(error.exit_code)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    print(table(found))
    return 0 if found and all(figure.met for figure in found) else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
