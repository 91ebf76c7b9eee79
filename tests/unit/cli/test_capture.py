from __future__ import annotations

from pathlib import Path

import pytest
import typer
from typer.testing import CliRunner

from battlebrokers.cli.capture import capture, wires_of_options
from battlebrokers.cli.options import parse_limits
from battlebrokers.errors import EnvironmentNotReady, QuantityError, UsageError
from battlebrokers.record.wire import Wire


def test_an_option_is_for_all_services_or_for_the_one_it_names() -> None:
    assert wires_of_options(["a=1", "b=2", "c"], ["b=eth1", "eth0"], [], ["c=box"]) == [
        Wire("a", (1,), interface="eth0"),
        Wire("b", (2,), interface="eth1"),
        Wire("c", (), interface="eth0", container="box"),
    ]


def test_a_stranger_is_refused() -> None:
    with pytest.raises(UsageError, match="no --service is called 'x'"):
        wires_of_options(["a=1"], ["x=eth1"], [], [])


def test_a_service_is_named_once() -> None:
    with pytest.raises(UsageError, match="twice"):
        wires_of_options(["a=1", "a=2"], [], [], [])


def test_limits_are_sizes() -> None:
    limits = parse_limits("128", "1GB")
    assert (limits.snap_bytes, limits.total_bytes) == (128, 1_000_000_000)


@pytest.mark.parametrize(("snap", "limit"), [("20", "1GB"), ("0", "10kB"), ("-1", "1GB"), ("0", "much")])
def test_limits_that_keep_nothing_are_refused(snap: str, limit: str) -> None:
    with pytest.raises((UsageError, QuantityError)):
        parse_limits(snap, limit)


def test_without_a_program_it_says_how_to_get_one(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    app = typer.Typer()
    app.command()(capture)
    said = CliRunner().invoke(app, ["--service", "a=1", "--out", str(tmp_path / "c"), "--seconds", "1"])
    assert isinstance(said.exception, EnvironmentNotReady)
    assert "apt-get install" in said.exception.hint
