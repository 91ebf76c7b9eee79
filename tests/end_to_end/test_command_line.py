"""The command line as a user types it: runs, battles, reports, mistakes, exit codes."""

from __future__ import annotations

import json
import re
import xml.etree.ElementTree as ET
from pathlib import Path

import pytest

from support.runs import bb, write_scenario

pytestmark = [pytest.mark.broker, pytest.mark.spark, pytest.mark.slow]

QUICK = """
name: quick
seed: 7
fleets:
  sensor: {devices: 4, topic: "quick/{device}", payload: {random_bytes: 40..400}, every: poisson 20ms, qos: 1}
clients:
  listener: {count: 2, subscribe: ["quick/#"], qos: 1}
phases: {measure: 3s, drain: 5s, quiet: 1s}
expect: ["lost == 0", "duplicates == 0"]
"""

STABLE = {
    "run", "verdict", "reasons", "scenario", "contender", "messages", "latency_ms", "rates", "bytes", "trust",
    "expectations",
}  # fmt: skip
MESSAGES = {
    "planned", "sent", "acked", "expected", "delivered", "lost", "indeterminate", "duplicates", "reordered",
    "unexpected",
}  # fmt: skip


@pytest.fixture(scope="module")
def workplace(tmp_path_factory) -> Path:
    """Two runs of one scenario on the embedded broker, made once for all tests here."""
    folder = tmp_path_factory.mktemp("workplace")
    write_scenario(folder, QUICK)
    twice = ("--set", "repetitions=2")
    result = bb("run", "scenario.yaml", "--broker", "amqtt", "--json", "--tag", "who=test", *twice, cwd=folder)
    assert result.code in (0, 6, 10), result.err
    (folder / "told.jsonl").write_text(result.out)
    return folder


of_the_workplace = pytest.mark.xdist_group("workplace")


@of_the_workplace
def test_the_summary_has_the_stable_names_and_is_the_file_too(workplace):
    runs = bb("list", "--json", cwd=workplace).json()
    newest = next(iter(sorted((workplace / "runs").iterdir(), reverse=True)))
    summary = json.loads((newest / "summary.json").read_text())
    assert summary.keys() >= STABLE
    assert summary["messages"].keys() >= MESSAGES
    assert summary["contender"].keys() >= {"name", "version"}
    assert summary["rates"].keys() >= {"sent", "delivered"}
    for kind in ("response", "service", "lag", "publish"):
        assert summary["latency_ms"][kind].keys() >= {"p50", "p90", "p99", "p999", "max", "mean"}
    assert summary["messages"]["lost"] == 0
    assert summary["messages"]["expected"] == 2 * summary["messages"]["sent"] > 0
    assert len(runs["runs"] if isinstance(runs, dict) else runs) == 2


@of_the_workplace
def test_several_runs_are_told_as_an_object_a_line_and_each_is_its_file(workplace):
    told = [json.loads(line) for line in (workplace / "told.jsonl").read_text().splitlines()]
    assert len(told) == 2
    for summary in told:
        (written,) = (workplace / "runs").glob(f"*-{summary['run']}/summary.json")
        assert summary == json.loads(written.read_text())
        assert (summary["scenario"], summary["title"]) == ("quick", "quick with repetitions=2")


@of_the_workplace
def test_the_report_opens_from_disk_and_is_small(workplace):
    report = next((workplace / "runs").glob("*/report.html"))
    text = report.read_text()
    assert report.stat().st_size < 3_000_000
    assert not re.findall(r"""(?:src|href)=["']?https?:""", text), "nothing is fetched from anywhere"
    assert "Content-Security-Policy" in text


@of_the_workplace
def test_exports_in_every_format(workplace):
    result = bb("report", "LAST", "--csv", "out", "--junit", "junit.xml", "--markdown", cwd=workplace)
    assert result.code == 0, result.err
    assert (workplace / "out" / "ledger.csv").read_text().startswith('"phase",')
    suites = ET.fromstring((workplace / "junit.xml").read_text())
    assert len(suites.findall(".//testcase")) >= 2
    assert "quick" in result.out


@of_the_workplace
def test_two_runs_compare_and_noise_is_an_answer(workplace):
    # A busy machine may have made one of them void: then it is asked for.
    result = bb("compare", "LAST~1", "LAST", "--json", "--anyway", cwd=workplace)
    assert result.code == 0, result.err
    assert result.json()


@of_the_workplace
def test_an_analysis_repeated_gives_the_same_figures(workplace):
    newest = next(iter(sorted((workplace / "runs").iterdir(), reverse=True)))
    before = json.loads((newest / "summary.json").read_text())
    result = bb("analyze", "LAST", "--json", cwd=workplace)
    assert result.json()["messages"] == before["messages"]
    assert result.json()["latency_ms"] == before["latency_ms"]
    assert result.out == (newest / "summary.json").read_text()


def test_a_battle_ranks_real_brokers(tmp_path, require_broker):
    require_broker("mosquitto")
    write_scenario(tmp_path, QUICK)
    result = bb("battle", "scenario.yaml", "mosquitto", "amqtt", "--json", cwd=tmp_path)
    assert result.code in (0, 6), result.err
    told = result.json()
    assert "mosquitto" in json.dumps(told)
    assert list((tmp_path / "runs").glob("battle-*.html"))
    assert len(list((tmp_path / "runs").glob("*/manifest.json"))) == 2


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        (["run", "nowhere.yaml"], 3, "nowhere.yaml"),
        (["run", "smart-citty"], 3, "smart-city"),
        (["run", "scenario.yaml", "--broker", "mosquito"], 2, "mosquitto"),
        (["run", "scenario.yaml", "--set", "fleets.sensr.devices=3"], 3, "sensor"),
        (["run", "scenario.yaml", "--set", "nonsense"], 3, "nonsense"),
        (["run", "scenario.yaml", "--tag", "nonsense"], 2, "key=value"),
        (["run", "scenario.yaml", "--profile", "wild"], 2, "stock"),
        (["run"], 2, "scenario"),
        (["battle", "scenario.yaml", "amqtt"], 2, "two"),
        (["analyze", "zzzz"], 3, "zzzz"),
        (["report", "/"], 3, "manifest"),
        (["compare", "LAST"], 2, ""),
        (["frobnicate"], 2, "frobnicate"),
        (["run", "scenario.yaml", "--broker", "nats", "--set", "fleets.sensor.qos=2"], 3, "QoS 2"),
    ],
)
def test_a_mistake_gets_one_clear_message_and_its_exit_code(tmp_path, require_broker, arguments, code, words):
    write_scenario(tmp_path, QUICK)
    if "nats" in arguments:
        require_broker("nats")
    result = bb(*arguments, cwd=tmp_path)
    assert result.code == code, result.err
    assert words in result.err + result.out
    assert "Traceback" not in result.err
    assert not list((tmp_path / "runs").glob("*")) if (tmp_path / "runs").exists() else True
