"""Every shipped scenario, tiny, against a real Mosquitto and through the real pipeline."""

from __future__ import annotations

import pytest

from battlebrokers.analysis.summary import build_summary
from battlebrokers.scenario.reader import load_scenario
from battlebrokers.scenario.shipped import shipped_scenarios
from battlebrokers.scenario.tiny import tiny_overrides
from support.runs import run_for_real

pytestmark = [pytest.mark.broker, pytest.mark.spark, pytest.mark.slow]


@pytest.mark.parametrize("name", shipped_scenarios())
def test_a_shipped_scenario_runs_and_its_ledger_adds_up(name, tmp_path, analyst, require_broker):
    require_broker("mosquitto")
    overrides = tiny_overrides(load_scenario(name).scenario)
    folder = run_for_real(name, "mosquitto", tmp_path / "runs", overrides=overrides)
    manifest = folder.read_manifest()
    assert (manifest.state, manifest.state_detail) == ("finished", "")
    analyst.analyze(str(folder.path))
    summary = build_summary(folder)
    messages = summary.messages
    assert messages.expected == messages.delivered + messages.lost + messages.overdue + messages.indeterminate
    assert messages.sent == messages.planned
    assert messages.unexpected == 0
    if name != "slow-subscriber":
        assert messages.lost == 0
    if not name.startswith("singlenode-conn"):
        assert messages.sent > 0
    if name != "many-publishers-no-subscriber" and not name.startswith("singlenode-conn"):
        assert messages.delivered > 0
