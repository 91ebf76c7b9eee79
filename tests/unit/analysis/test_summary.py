from __future__ import annotations

import json
import math
import shutil

import msgspec
import numpy as np
import pytest

from battlebrokers import tables
from battlebrokers.analysis.model import Summary, summary_schema
from battlebrokers.analysis.summary import build_summary, write_summary
from battlebrokers.clock import SECOND_NS
from battlebrokers.errors import RunFolderError
from battlebrokers.tables.manifest import BattleFacts

STABLE = {
    "run", "verdict", "reasons", "scenario", "contender", "messages", "latency_ms", "rates", "bytes", "trust",
    "expectations",
}  # fmt: skip


def test_a_healthy_run_passes_and_adds_up(make_run):
    summary = build_summary(make_run(run="k3f9a", expect=["lost == 0", "delivery_p99 < 50ms"]).healthy(3000).write())
    assert (summary.verdict, summary.reasons) == ("PASS", [])
    assert summary.run == "k3f9a"
    assert (summary.messages.planned, summary.messages.sent, summary.messages.delivered) == (3000, 3000, 3000)
    assert summary.rates.sent == 100
    assert summary.rates.goodput_bytes == 10_000
    assert summary.latency_ms.response.p50 == pytest.approx(2.0, rel=0.02)
    assert summary.latency_ms.response.mean == pytest.approx(2.0, rel=0.001)
    assert summary.latency_ms.response.max == pytest.approx(2.2, rel=0.001)
    assert summary.bytes.publication == 360_000
    assert summary.bytes.total == 2 * 3000 * 130
    assert summary.bytes.useful_share == pytest.approx(100 / 130, abs=1e-4)
    assert summary.times_s.publish == 30
    assert summary.times_s.total == pytest.approx(30.01)
    assert (summary.devices, summary.clients) == (10, 2)
    assert [phase.name for phase in summary.phases] == ["connect", "warm_up", "measure", "cool_down", "drain"]
    assert [phase.start_s for phase in summary.phases] == [-1, 0, 5, 35, 37]
    assert summary.duration_s == 41


def test_the_json_has_the_stable_names_and_round_trips(make_run):
    summary = build_summary(make_run().healthy().write())
    decoded = json.loads(summary.to_json())
    assert decoded.keys() >= STABLE
    assert decoded["contender"].keys() >= {"name", "version"}
    assert decoded["messages"].keys() >= {
        "planned", "sent", "acked", "expected", "delivered", "lost", "indeterminate", "duplicates", "reordered",
        "unexpected",
    }  # fmt: skip
    for kind in ("response", "service", "lag", "publish"):
        assert decoded["latency_ms"][kind].keys() >= {"p50", "p90", "p99", "p999", "max", "mean"}
    assert decoded["rates"].keys() >= {"sent", "delivered"}
    assert msgspec.json.decode(summary.to_json(), type=Summary) == summary


def test_a_scaled_run_keeps_its_name_and_says_the_scale_in_its_title(make_run):
    scaled = build_summary(make_run(title="smart-city at scale 0.1").healthy().write())
    assert (scaled.scenario, scaled.title) == ("smart-city", "smart-city at scale 0.1")
    before_there_were_titles = build_summary(make_run(title="").healthy().write())
    assert before_there_were_titles.title == "smart-city"


def test_summary_json_is_written_whole(make_run):
    folder = make_run().healthy().write()
    summary = build_summary(folder)
    write_summary(folder, summary)
    assert msgspec.json.decode(folder.summary_path.read_bytes(), type=Summary) == summary
    assert [path.name for path in folder.path.iterdir() if path.name.endswith(".tmp")] == []


def test_the_schema_describes_every_field(make_run):
    schema = summary_schema()
    definitions = schema["$defs"]
    described = definitions["Summary"]["properties"]
    decoded = json.loads(build_summary(make_run().healthy().write()).to_json())
    assert described.keys() == decoded.keys()
    assert set(definitions["Summary"]["required"]) >= STABLE
    for name, definition in definitions.items():
        assert definition.get("description"), name
    _conforms(decoded, schema, schema)


def _conforms(value, schema, root, path="$"):
    """A small JSON Schema check: enough for what msgspec writes."""
    if "$ref" in schema:
        schema = root["$defs"][schema["$ref"].removeprefix("#/$defs/")]
    if "anyOf" in schema:
        errors = []
        for option in schema["anyOf"]:
            try:
                return _conforms(value, option, root, path)
            except AssertionError as error:
                errors.append(str(error))
        raise AssertionError(errors)
    kinds = {
        "object": dict,
        "array": list,
        "string": str,
        "integer": int,
        "number": (int, float),
        "boolean": bool,
        "null": type(None),
    }
    if "type" in schema:
        assert isinstance(value, kinds[schema["type"]]), f"{path}: {value!r} is not {schema['type']}"
    if "enum" in schema:
        assert value in schema["enum"], path
    for name in schema.get("required", []):
        assert name in value, f"{path}.{name} is missing"
    for name, inner in schema.get("properties", {}).items():
        if name in value:
            _conforms(value[name], inner, root, f"{path}.{name}")
    if isinstance(value, list) and "items" in schema:
        for index, item in enumerate(value):
            _conforms(item, schema["items"], root, f"{path}[{index}]")
    return None


def test_lost_messages_make_percentiles_infinite_and_json_null(make_run):
    run = make_run().healthy(0)
    run.latency("response", [2.0] * 980 + [math.inf] * 20)
    run.latency("service", [2.0] * 980 + [math.inf] * 20)
    run.ledger(expected=1000, delivered=980, lost=20, qos=0)
    run.publishing(planned=1000, sent=1000)
    summary = build_summary(run.write())
    response = summary.latency_ms.response
    assert response.p90 == pytest.approx(2.0)
    assert (response.p99, response.p999) == (None, None)
    assert response.infinite == ["p99", "p999"]
    assert response.of_delivered["p99"] == pytest.approx(2.0)
    assert response.needed_of_delivered == {"p999": 2995}
    assert (response.n, response.lost, response.max) == (1000, 20, pytest.approx(2.0))
    assert b"Infinity" not in summary.to_json()
    assert b"NaN" not in summary.to_json()


def test_only_the_measure_phase_counts(make_run):
    run = make_run().healthy(3000)
    run.ledger(phase="warm_up", expected=500, delivered=400, lost=100)
    run.publishing(phase="warm_up", planned=500, sent=500)
    run.latency("response", [900.0] * 500, phase="warm_up", second=1)
    summary = build_summary(run.write())
    assert (summary.messages.expected, summary.messages.lost) == (3000, 0)
    assert summary.latency_ms.response.max < 10
    assert summary.verdict == "PASS"


def test_groups_split_ledger_and_latency(make_run):
    run = make_run().healthy(3000)
    run.ledger(fleet="cameras", client_fleet="archive", qos=0, expected=100, delivered=90, lost=10)
    run.latency("response", [40.0] * 90 + [math.inf] * 10, fleet="cameras", client_fleet="archive", qos=0)
    groups = {(g.fleet, g.client_fleet, g.qos): g for g in build_summary(run.write()).groups}
    assert groups["cameras", "archive", 0].lost == 10
    assert groups["cameras", "archive", 0].response.p50 == pytest.approx(40.0)
    assert groups["air", "app", 1].delivered == 3000


def test_actions_are_timed_exactly_from_the_operations(make_run):
    run = make_run().healthy()
    for node in range(300):
        run.add(
            tables.OPERATIONS,
            worker="w", role="device", node=node, kind="connect", started_ns=0, ended_ns=(node + 1) * 1_000_000,
            outcome="ok", reason=0, detail="", filter=None, share=None, asked_qos=None, granted_qos=None,
            session_present=None, persistent=False, attempt=1,
        )  # fmt: skip
    run.action("connect", outcome="refused", n=3)
    connect = build_summary(run.write()).actions["connect"]
    assert (connect.n, connect.failed) == (13, 3)
    assert (connect.latency_ms.p50, connect.latency_ms.p99, connect.latency_ms.max) == (150, 297, 300)


def test_shared_groups_have_a_fairness_index(make_run):
    run = make_run().healthy()
    for client, delivered in enumerate([100, 100, 0, 0]):
        run.add(tables.BALANCE, share="archive", client=client, client_fleet="archive", delivered=delivered)
    (found,) = build_summary(run.write()).balance
    assert (found.members, found.delivered, found.jain, found.least, found.most) == (4, 200, 0.5, 0, 100)


def test_the_battle_is_kept(make_run):
    summary = build_summary(make_run(battle=BattleFacts("b1", 2, 1)).healthy().write())
    assert summary.battle == {"id": "b1", "block": 2, "order": 1}


def test_a_run_without_measures_says_how_to_get_them(make_run):
    run = make_run()
    run.path.mkdir(parents=True)
    from battlebrokers.tables.run_folder import RunFolder

    folder = RunFolder(run.path)
    folder.write_manifest(run.manifest())
    with pytest.raises(RunFolderError, match="no measures") as caught:
        build_summary(folder)
    assert "bb analyze" in caught.value.hint


def test_a_damaged_measure_file_is_a_clear_error(make_run):
    folder = make_run().healthy().write()
    (folder.table(tables.LATENCIES) / "part-00000.parquet").write_bytes(b"PAR1 not really PAR1")
    with pytest.raises(RunFolderError, match="cannot be read"):
        build_summary(folder)


def test_a_damaged_resource_file_does_not_stop_the_analysis(make_run):
    folder = make_run().healthy().write()
    target = folder.table(tables.RESOURCES)
    target.mkdir(parents=True)
    (target / "broken.parquet").write_bytes(np.random.default_rng(1).bytes(500))
    assert build_summary(folder).verdict == "PASS"


def test_nobody_listening_is_judged_by_sends(make_run):
    run = make_run()
    run.latency("lag", np.full(3000, 0.05), second=5 + np.arange(3000) % 30)
    run.publishing(planned=3000, sent=3000, acked=0, qos=0, first_sent_ns=SECOND_NS, last_sent_ns=31 * SECOND_NS)
    run.service("worker-1", "generator", 20.0)
    summary = build_summary(run.write())
    assert summary.verdict == "PASS"
    assert summary.trust.samples == 3000
    assert summary.latency_ms.response.p50 is None
    assert summary.times_s.total is None


def test_a_killed_run_whose_last_phase_has_no_end_is_summed_up(make_run):
    run = make_run(state="running")
    folder = run.healthy().write()
    manifest = folder.read_manifest()
    manifest.phases[-1] = msgspec.structs.replace(manifest.phases[-1], end_ns=0)
    folder.write_manifest(manifest)
    summary = build_summary(folder)
    assert summary.verdict == "VOID"
    assert summary.phases[-1].duration_s == 0
    assert summary.duration_s == 38


@pytest.mark.parametrize("how", ["never begun", "begun"])
def test_a_run_analysed_only_in_part_is_not_told_as_one_that_lost_nothing(make_run, how):
    folder = make_run().healthy().write()
    ledger = folder.table(tables.LEDGER)
    if how == "begun":
        (ledger / "_temporary").mkdir()
    else:
        shutil.rmtree(ledger)
    with pytest.raises(RunFolderError, match="only in part: ledger missing") as caught:
        build_summary(folder)
    assert f"bb analyze {folder.path}" in caught.value.hint


def test_last_wills_are_counted_and_make_no_group_of_their_own(make_run):
    run = make_run(expect=["wills == 2", "unexpected == 0"]).healthy()
    run.ledger(fleet="", device=-1, topic="gone", wills=2)
    summary = build_summary(run.write())
    assert (summary.verdict, summary.messages.wills) == ("PASS", 2)
    assert [group.fleet for group in summary.groups] == ["air"]
