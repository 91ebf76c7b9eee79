"""`make chaos`: try every fault, print each as it ends and the sum; exit code 1 if anything was lost.

`--short` is the version of the tests, `--only kill` one group or `--only "kill/bb in measure"` one fault.
"""

from __future__ import annotations

import argparse
import importlib
import json
import shutil
import signal
import sys
import tempfile
import time
from pathlib import Path

from chaos.fault import Fault, Result
from chaos.pool import missing, try_all, write_class_archive
from chaos.telling import as_json, line, record, results_in, total

_GROUPS = ("kills", "pauses", "interrupts", "resources", "servers", "files")


def all_faults() -> list[Fault]:
    """Every fault there is."""
    found: list[Fault] = []
    for name in _GROUPS:
        found += importlib.import_module(f"chaos.groups.{name}").faults()
    return found


def main(arguments: list[str]) -> int:
    """Try, tell, and return the exit code."""
    parser = argparse.ArgumentParser(prog="python -m chaos", description=__doc__)
    parser.add_argument("--short", action="store_true", help="only some of each group, in at most two minutes")
    parser.add_argument("--only", default="", metavar="NAME", help="a group, or the beginning of a fault's name")
    parser.add_argument("--list", action="store_true", help="name the faults and try none")
    parser.add_argument("--jobs", type=int, default=3, help="how many at a time")
    parser.add_argument("--output", type=Path, help="write everything to this file, as JSON")
    parser.add_argument(
        "--record", type=Path, metavar="FOLDER", help="write chaos.json and the figures in robustness.md there"
    )
    parser.add_argument(
        "--again",
        type=Path,
        metavar="FILE",
        help="only what was lost in an earlier --output",
    )
    told = parser.parse_args(arguments)
    earlier = json.loads(told.again.read_text(encoding="utf-8")) if told.again else None
    kept = [one for one in results_in(earlier) if not one.complaints] if earlier else []
    known = {one.fault for one in kept}
    faults = [one for one in all_faults() if one.full_name.startswith(told.only) and (one.short or not told.short)]
    faults = [one for one in faults if one.full_name not in known]
    if not faults:
        parser.error(f"no fault begins with {told.only!r}: --list names them")
    if told.list:
        print("\n".join(one.full_name for one in faults))
        return 0
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # what is under way is ended and removed then, too
    folder = Path(tempfile.mkdtemp(prefix="chaos-"))
    began_s = time.monotonic()
    try:
        if any("java" in one.needs.split() and not missing(one) for one in faults):
            write_class_archive(folder)
        results = try_all(faults, folder, max(1, told.jobs), _tell)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    everything = as_json([*kept, *results], time.monotonic() - began_s + (earlier["seconds"] if earlier else 0))
    if earlier:
        everything["tried_again"] = [one.fault for one in results]
    if told.output:
        told.output.write_text(json.dumps(everything, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    if told.record:
        record(everything, told.record)
    lost = [one for one in results if one.complaints]
    print("\n".join(["", *(line(one) for one in lost), total(results)]))
    return 1 if lost else 0


def _tell(result: Result) -> None:
    print(line(result), flush=True)
    if result.complaints and result.said:
        print("".join(f"        | {words}\n" for words in result.said.strip().splitlines()[-6:]), end="", flush=True)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
