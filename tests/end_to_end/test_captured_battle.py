"""A battle with captures, from the command to its page: the contenders' wires side by side, and the ways from there."""

from __future__ import annotations

import re
from pathlib import Path
from urllib.parse import unquote

import pytest

from support.packets import require_capturing
from support.runs import bb, write_scenario

pytestmark = [pytest.mark.broker, pytest.mark.root, pytest.mark.slow, pytest.mark.spark]

TALK = """
name: talk
fleets:
  sensor: {devices: 4, topic: "talk/{device}", payload: {random_bytes: 64}, every: 25/s, qos: 1}
clients:
  listener: {count: 1, subscribe: ["talk/#"], qos: 1}
phases: {measure: 3s, drain: 5s, quiet: 1s}
"""


def test_a_captured_battle_tells_both_wires_and_leads_to_each_run(tmp_path: Path, require_broker) -> None:
    require_capturing()
    require_broker("mosquitto")
    scenario = write_scenario(tmp_path, TALK)
    command = ("battle", str(scenario), "mosquitto", "amqtt", "--capture", "--repeat", "1", "--runs", "runs", "--json")
    done = bb(*command, cwd=tmp_path, timeout=280)
    told = done.json()
    page = Path(tmp_path, told["report"])
    section = page.read_text().split('<section id="wire">')[1].split("</section>")[0]
    assert section.count('<svg class="map"') == 2
    drawn = set(re.findall(r'data-chart="([^"]+)"', section))
    assert drawn == {"wire-delays", "wire-protocols-0", "wire-protocols-1"}
    links = re.findall(r'href="([^"#]+)#wire"', section)
    assert len(links) == 2
    for link in links:
        assert '<section id="wire">' in (page.parent / unquote(link)).read_text()

    run = told["runs"][0]
    slowest = bb("trace", run, "--slowest", "1", "--runs", "runs", cwd=tmp_path)
    assert re.match(r" *3\d\d messages followed; the slowest:\n", slowest.out.replace("\u202f", "")), slowest.out
    assert "inside" in bb("explain", run, "--runs", "runs", cwd=tmp_path).out
    lost = bb("trace", run, "--lost", "--runs", "runs", cwd=tmp_path)
    assert "No message was lost on its way" in lost.out
    unknown = bb("trace", run, "--id", "999:1", "--runs", "runs", cwd=tmp_path)
    assert unknown.code == 3
    assert "no followed message is 999:1" in unknown.err
