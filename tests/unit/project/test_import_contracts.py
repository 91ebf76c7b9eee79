"""The contracts of import-linter name every sibling there is: a new one cannot be forgotten."""

from __future__ import annotations

import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
CODE = ROOT / "src" / "battlebrokers"
CONTRACTS = {
    contract["name"]: contract
    for contract in tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]["contracts"]
}


@pytest.mark.parametrize(
    ("contract", "folder", "siblings"),
    [
        (
            "Protocols do not know each other",
            "protocols",
            {path.parent.name for path in CODE.glob("protocols/*/__init__.py")} | {"loopback"},
        ),
        (
            "Paces do not know each other",
            "pacing",
            {path.stem for path in CODE.glob("pacing/*.py")} - {"__init__", "schedule"},
        ),
    ],
)
def test_every_sibling_is_named(contract: str, folder: str, siblings: set[str]) -> None:
    assert set(CONTRACTS[contract]["modules"]) == {f"battlebrokers.{folder}.{name}" for name in siblings}


def test_spark_is_kept_out_of_every_package_but_the_pipeline() -> None:
    packages = {f"battlebrokers.{path.parent.name}" for path in CODE.glob("*/__init__.py")}
    assert set(CONTRACTS["Spark lives in the pipeline only"]["source_modules"]) == packages - {"battlebrokers.pipeline"}
