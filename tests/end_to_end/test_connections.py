"""Scenarios that only connect, or only subscribe: judged by what they do."""

from __future__ import annotations

import pytest

from support.runs import bb, write_scenario

pytestmark = [pytest.mark.broker, pytest.mark.spark, pytest.mark.slow]

IDLE = """
name: idle
clients:
  idle: {{count: {count}{subscribe}}}
phases: {{connect: 500/s, measure: 2s, drain: 0s}}
expect: ["connect_failures == 0", "connect_p99 < {limit}"]
"""


@pytest.mark.parametrize("subscribe", ["", ", subscribe: 'nobody/speaks/here'"], ids=["connects", "subscribes"])
def test_idle_connections_that_none_failed_pass(tmp_path, require_broker, subscribe):
    require_broker("mosquitto")
    scenario = write_scenario(tmp_path, IDLE.format(count=400, subscribe=subscribe, limit="60s"))
    result = bb("run", str(scenario), "--broker", "mosquitto", "--json", cwd=tmp_path)
    summary = result.json()
    assert (summary["verdict"], summary["reasons"], result.code) == ("PASS", [], 0)
    assert summary["trust"]["samples"] == 400
    printed = bb("report", summary["run"], cwd=tmp_path).out
    assert "connects 400   failed 0   broken 0" in printed
    assert "from asking to the answer" in printed


def test_connects_slower_than_expected_fail(tmp_path, require_broker):
    require_broker("mosquitto")
    scenario = write_scenario(tmp_path, IDLE.format(count=400, subscribe="", limit="1us"))
    result = bb("run", str(scenario), "--broker", "mosquitto", "--json", cwd=tmp_path)
    assert (result.json()["verdict"], result.code) == ("FAIL", 10)


def test_the_shipped_connection_scenario_passes_on_its_connects(tmp_path, require_broker):
    require_broker("mosquitto")
    settings = ("--set", "clients.idle.count=400", "--set", "phases.connect=500/s", "--set", "phases.measure=2s")
    result = bb(
        "run", "singlenode-conn-tcp-10K-100", *settings, "--set", 'expect=["connect_failures == 0"]',
        "--broker", "mosquitto", "--json", cwd=tmp_path,
    )  # fmt: skip
    assert (result.json()["verdict"], result.code) == ("PASS", 0)
