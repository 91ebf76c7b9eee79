from __future__ import annotations

import importlib.util
import re
from importlib.machinery import SourceFileLoader
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parents[3] / "scripts" / "check-budget"
_loader = SourceFileLoader("check_budget", str(SCRIPT))
_spec = importlib.util.spec_from_loader("check_budget", _loader)
assert _spec is not None
check_budget = importlib.util.module_from_spec(_spec)
_loader.exec_module(check_budget)

MACHINE = re.compile("/somewhere/checkout")


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("notes.md", "see files.python" + "hosted.org"),
        ("setup.cfg", "https://mirror.example/simp" + "le/"),
        ("package-lock.json", '{"resol' + 'ved": "x"}'),
        ("requirements.lock", "--index" + "-url x"),
        ("requirements.lock", "numpy>=2"),
        ("a.py", "open('/somewhere/checkout/x')"),
    ],
)
def test_addresses_and_machine_paths_are_refused(name: str, text: str) -> None:
    assert check_budget.complaints(name, text, MACHINE)


def test_plain_files_pass() -> None:
    assert check_budget.complaints("requirements.lock", "numpy==2.4.6\npyspark==4.3.0\n", MACHINE) == []
    assert check_budget.complaints("a.py", "a simple network/work folder, resolved later\n", MACHINE) == []
