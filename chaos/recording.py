"""`bb` with the analysis left out: `python -m chaos.recording run …`, for faults of starting, measuring and ending.

Command line, signals, orchestrator, workers, brokers and evidence are the real ones. Where the analysis would begin
it ends with the exit code of the run's state.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any, Final

from battlebrokers.run.background import NoBackground

_CODES: Final = {"finished": 0, "interrupted": 130, "broker-failed": 5}


class _NoAnalyst(NoBackground):
    """Answers for the analyst: ready at once, and done with the first run."""

    pid = 0

    def __enter__(self) -> _NoAnalyst:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def wait_until_ready(self, *_: Any, **__: Any) -> None:
        pass

    def rest(self) -> None:
        pass

    def close(self) -> None:
        pass

    def kill(self) -> None:
        pass

    def analyze(self, run: str | Path, *_: Any, **__: Any) -> None:
        from battlebrokers.tables.run_folder import RunFolder

        manifest = RunFolder(Path(run)).read_manifest()
        print(f"recorded: {manifest.state} {manifest.state_detail}".rstrip(), file=sys.stderr)
        if _CODES.get(manifest.state, 1) not in (0, 130):
            print(f"error: {manifest.state_detail}", file=sys.stderr)
        sys.exit(_CODES.get(manifest.state, 1))


def main() -> None:
    """Run the command line."""
    from battlebrokers.cli.main import main as bb
    from battlebrokers.pipeline.client import Analyst

    Analyst.start = classmethod(lambda *_, **__: _NoAnalyst())  # type: ignore[method-assign,assignment]
    sys.argv[0] = "bb"
    bb()


if __name__ == "__main__":
    main()
