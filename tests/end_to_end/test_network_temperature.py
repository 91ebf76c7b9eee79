"""The temperature application through real switches: who hears what, and nothing is left behind."""

from __future__ import annotations

import json
import signal
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest

from battlebrokers.sdn.lab.open_vswitch import what_is_missing
from support.apart import WHAT_IS_LEFT, inside, script_apart, start_apart

_MISSING = what_is_missing()
pytestmark = [
    pytest.mark.root,
    pytest.mark.slow,
    pytest.mark.skipif(_MISSING is not None, reason=f"{_MISSING.message}: {_MISSING.hint}" if _MISSING else ""),
]
DEMO = "bb sdn demo temperature --interval 50ms --seconds 2"


def events(lines: Iterable[str]) -> list[tuple[str, str]]:
    """Host and what, of every line of a log."""
    return [(parts[2], parts[5].strip()) for parts in (line.split(maxsplit=5) for line in lines) if len(parts) == 6]


def heard_by(log: list[tuple[str, str]], host: str) -> list[str]:
    """The readings a host heard, in their order."""
    return [what.split()[1] for who, what in log if who == host and what.startswith("hears ")]


def test_every_monitor_hears_every_reading_actuators_every_trigger_and_nobody_else_anything(tmp_path: Path) -> None:
    done = script_apart(f"{DEMO}; code=$?; {WHAT_IS_LEFT}; exit $code", tmp_path)
    assert done.code == 0, done.out + done.err
    assert done.out.splitlines()[-1].split() == ["left:"]
    log = events((tmp_path / "temperature/temperature.log").read_text().splitlines())
    published = [what.split()[1] for who, what in log if who == "sensor"]
    assert len(published) == 40
    assert heard_by(log, "monitor1") == heard_by(log, "monitor2") == published
    kinds = Counter((who, what.partition(":")[0]) for who, what in log)
    fired = kinds["monitor1", "threshold of 24.5 °C crossed"]
    assert fired >= 1
    assert kinds["actuator1", "hears the trigger"] == kinds["actuator2", "hears the trigger"] == fired
    assert not any("not for it" in what for _, what in log)
    root = ET.parse(tmp_path / "temperature/temperature.svg").getroot()
    texts = {element.text for element in root.iter()}
    assert {"1.1.1.1", "monitoring, tree", "40 in, 80 copies out"} <= texts
    assert {"1.1.1.2", "actuators, tree", f"{fired} in, {2 * fired} copies out"} <= texts


def test_interrupted_it_leaves_log_and_picture_of_what_happened_until_then_and_nothing_else(tmp_path: Path) -> None:
    # The controller it starts asks for the token, and the demo sends it.
    demo = "export BB_SDN_TOKEN=0123456789abcdef-token; bb sdn demo temperature --interval 50ms --seconds 600"
    script = f"{demo}; code=$?; {WHAT_IS_LEFT}; exit $code"
    running = start_apart(script, tmp_path)
    try:
        assert running.stdout is not None
        told = []
        for line in running.stdout:
            told.append(line)
            if "hears the trigger" in line:
                break
        inside(running, "demo temperature").send_signal(signal.SIGINT)
        told += list(running.stdout)
        assert running.wait(60) == 130, told
    finally:
        running.kill()
        running.communicate()
    assert told[-1].split() == ["left:"]
    log = events((tmp_path / "temperature/temperature.log").read_text().splitlines())
    readings = [what for who, what in log if who == "sensor"]
    root = ET.parse(tmp_path / "temperature/temperature.svg").getroot()
    assert sum(element.get("class") == "dot" for element in root.iter()) == len(readings) + 1  # one in the legend


def test_a_lab_and_a_controller_that_are_there_are_used_and_left_as_they_were(tmp_path: Path) -> None:
    script = f"""
        bb sdn controller --state state.json > controller.log &
        until grep -q REST controller.log; do sleep 0.05; done
        bb sdn lab up sensors > /dev/null || exit 90
        {DEMO} --mode reactive || exit 91
        bb sdn status --json > status.json
        bb sdn lab up ring > /dev/null
        {DEMO}; echo "code $?"
    """
    done = script_apart(script, tmp_path)
    assert done.code == 0, done.out + done.err
    assert " 0 copies lost, 0 datagrams astray" in done.out
    left = json.loads((tmp_path / "status.json").read_text())
    assert [one["connected"] for one in left["topology"]["switches"]] == [True, True, True]
    assert left["statistics"]["resources"] == {}
    assert "another lab is up: ring" in done.err
    assert done.out.endswith("code 3\n")
