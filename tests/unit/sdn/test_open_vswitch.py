"""Who switches a lab's packets: the kernel where it is free for us, else the daemon; never somebody else's switch."""

from __future__ import annotations

from pathlib import Path

import pytest

from battlebrokers.sdn.lab import open_vswitch
from battlebrokers.sdn.lab.open_vswitch import OpenVSwitch


@pytest.fixture
def started(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, ...]]:
    """The commands a start would run, on a machine whose kernel has the module."""
    commands: list[tuple[str, ...]] = []

    def note(_: OpenVSwitch, *words: str, said: str | None = None) -> str:
        commands.append(words)
        return ""

    monkeypatch.setattr(OpenVSwitch, "run", note)
    monkeypatch.setattr(open_vswitch, "_MODULE", tmp_path)
    return commands


def devices(monkeypatch: pytest.MonkeyPatch, *names: str) -> None:
    monkeypatch.setattr(open_vswitch, "if_nameindex", lambda: list(enumerate(names, 1)))


def test_a_free_kernel_switches(
    started: list[tuple[str, ...]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    devices(monkeypatch, "lo", "eth0")
    switching = OpenVSwitch(tmp_path / "ovs")
    switching.start()
    assert switching.datapath == "system"
    assert "--disable-system" not in started[-1]


def test_what_the_kernel_switches_for_somebody_else_is_not_touched(
    started: list[tuple[str, ...]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    devices(monkeypatch, "lo", "ovs-system", "br0")
    switching = OpenVSwitch(tmp_path / "ovs")
    switching.start()
    assert switching.datapath == "netdev"
    assert "ovs-vswitchd" in started[-1]
    assert "--disable-system" in started[-1]
