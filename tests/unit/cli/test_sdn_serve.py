"""`bb sdn serve` before anything is built: what does not make sense, and what is missing, is told at once."""

from __future__ import annotations

from pathlib import Path

import pytest

from battlebrokers.cli.sdn.serve import serve
from battlebrokers.errors import EnvironmentNotReady, InputError, UsageError


@pytest.mark.parametrize("prefix", ["", "toolong", "Bbs", "b-s", "b/s"])
def test_a_prefix_must_fit_into_the_name_of_an_interface(prefix: str) -> None:
    with pytest.raises(UsageError, match="no prefix"):
        serve(prefix=prefix)


def test_unknown_modes_and_topologies_are_told_with_those_there_are() -> None:
    with pytest.raises(UsageError, match="no mode 'flood'") as caught:
        serve(mode="flood")
    assert caught.value.hint == "one of reactive, direct, group, tree"
    with pytest.raises(InputError, match="no topology"):
        serve(topology="papper")


def test_without_rights_nothing_is_begun(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    missing = EnvironmentNotReady("network namespaces need root rights", hint="run it with sudo")
    monkeypatch.setattr("battlebrokers.sdn.serving.what_is_missing", lambda: missing)
    with pytest.raises(EnvironmentNotReady, match="root rights"):
        serve(folder=tmp_path / "lab")
    assert not (tmp_path / "lab").exists()
