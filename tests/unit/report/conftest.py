"""The same made-up runs as in `analysis`."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path

_NAME = "made_up_runs"
if _NAME not in sys.modules:
    _spec = importlib.util.spec_from_file_location(_NAME, Path(__file__).parents[1] / "analysis" / "conftest.py")
    assert _spec is not None
    assert _spec.loader is not None
    sys.modules[_NAME] = importlib.util.module_from_spec(_spec)
    _spec.loader.exec_module(sys.modules[_NAME])

make_run = sys.modules[_NAME].make_run
