"""Two runs on one broker at the same time: neither may pass as if it had been alone."""

from __future__ import annotations

import json
import os
import subprocess

import pytest

from support.runs import BB, bb, write_scenario

pytestmark = [pytest.mark.broker, pytest.mark.spark, pytest.mark.slow]

SCENARIO = """
name: shared
fleets:
  sensor: {devices: 4, topic: "shared/{device}", payload: {random_bytes: 64}, every: 50/s, qos: 1}
clients:
  listener: {count: 1, subscribe: ["shared/#"], qos: 1}
phases: {measure: 12s, drain: 5s, quiet: 1s}
"""


def test_messages_of_another_run_void_a_run_and_are_named(tmp_path, mosquitto):
    scenario = write_scenario(tmp_path, SCENARIO)
    url = mosquitto.endpoints["tcp"]
    command = [str(BB), "run", str(scenario), "--broker", url, "--json"]
    environment = {**os.environ, "NO_COLOR": "1"}
    running = [
        subprocess.Popen(
            [*command, "--runs", str(tmp_path / f"runs-{name}")],
            cwd=tmp_path, env=environment, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        )
        for name in ("a", "b")
    ]  # fmt: skip
    told = [one.communicate(timeout=240) for one in running]
    assert [one.returncode for one in running] == [6, 6], [errors.decode()[-500:] for _, errors in told]
    for out, _ in told:
        summary = json.loads(out)
        counts = summary["messages"]
        assert counts["unexpected"] == counts["foreign"] == counts["foreign_runs"] > 100
        assert counts["lost"] == 0, "ours arrived all the same"
        assert summary["verdict"] == "VOID"
        (reason,) = [reason for reason in summary["reasons"] if "this run never sent" in reason]
        assert "header of another BattleBrokers run" in reason
        assert "another run or publisher used the same broker and topics at the same time" in reason


def test_a_run_alone_on_a_broker_another_run_has_used_before_finds_nothing_foreign(tmp_path, mosquitto):
    scenario = write_scenario(tmp_path, SCENARIO.replace("12s", "2s"))
    for _ in range(2):
        result = bb("run", str(scenario), "--broker", mosquitto.endpoints["tcp"], "--json", cwd=tmp_path)
        assert result.json()["messages"]["unexpected"] == 0
        assert {check["id"]: check["level"] for check in result.json()["trust"]["checks"]}["foreign-messages"] == "ok"
