from __future__ import annotations

import csv
import json
from xml.etree import ElementTree as ET

import pytest

from battlebrokers.analysis.conclusion import draw_conclusion
from battlebrokers.analysis.stored import is_stored
from battlebrokers.errors import UsageError
from battlebrokers.report.export import (
    CSV_TABLES,
    WIRE_CSV_TABLES,
    to_json,
    to_junit,
    to_markdown,
    write_csv,
    write_wire_csv,
)
from battlebrokers.tables.manifest import BattleFacts
from support.wires import MS, START_NS, Wires, small_system


def test_every_table_becomes_a_csv_file(make_run, tmp_path):
    conclusion = draw_conclusion(make_run().healthy().write())
    written = write_csv(conclusion.facts, tmp_path / "out")
    assert [path.stem for path in written] == list(CSV_TABLES)
    with (tmp_path / "out" / "ledger.csv").open() as file:
        (row,) = csv.DictReader(file)
    assert (row["expected"], row["delivered"], row["promise_kept"]) == ("3000", "3000", "true")


def test_a_directory_that_cannot_be_made_is_a_usage_error(make_run, tmp_path):
    (tmp_path / "file").write_text("x")
    with pytest.raises(UsageError, match="cannot be made"):
        write_csv(draw_conclusion(make_run().healthy().write()).facts, tmp_path / "file")


def suite(run):
    (found,) = ET.fromstring(to_junit([draw_conclusion(run.write())]))
    return found


def test_junit_has_a_case_per_expectation(make_run):
    found = suite(make_run(expect=["lost == 0", "delivery_p99 < 1ms"]).healthy())
    assert (found.get("tests"), found.get("failures"), found.get("errors")) == ("4", "1", "0")
    failed = found.find("testcase[@name='delivery_p99 < 1ms']/failure")
    assert failed is not None
    assert "measured 2." in failed.get("message")


def test_junit_says_void_as_an_error_and_judges_nothing(make_run):
    found = suite(make_run(expect=["lost == 0"], counters={"recorder_overflow": 3}).healthy())
    assert (found.get("failures"), found.get("errors"), found.get("skipped")) == ("0", "1", "2")
    assert "3 events did not fit" in found.find("testcase[@name='verdict']/error").get("message")


def test_junit_says_a_dead_broker_as_an_error(make_run):
    found = suite(make_run(state="broker-failed", state_detail="killed").healthy())
    assert found.find("testcase[@name='verdict']/error").get("type") == "broker-failed"


def test_junit_survives_any_name(make_run):
    found = suite(make_run(contender="bro<ker>&\"'\x0b\x00\ufffe", version="\u2028").healthy())
    assert "bro<ker>&\"'" in found.get("name")


def test_json_is_the_summary_or_a_list(make_run):
    one, two = (draw_conclusion(make_run(run=name).healthy().write()) for name in ("aaaaa", "bbbbb"))
    assert json.loads(to_json([one]))["run"] == "aaaaa"
    assert [summary["run"] for summary in json.loads(to_json([one, two]))] == ["aaaaa", "bbbbb"]


def test_markdown_tells_a_run(make_run):
    text = to_markdown([draw_conclusion(make_run(expect=["lost == 0"]).healthy().write())])
    assert text.startswith("### PASS: smart-city on mosquitto 2.1.2")
    assert "| ✓ | lost == 0 | 0 of 3 000 |" in text
    assert "| delivery | 2" in text


def test_exports_of_a_scaled_run_say_the_scale(make_run):
    scaled = draw_conclusion(make_run(title="smart-city at scale 0.1").healthy().write())
    assert ET.fromstring(to_junit([scaled])).find("testsuite").get("name").startswith("smart-city at scale 0.1 on ")
    assert "smart-city at scale 0.1 on " in to_markdown([scaled])


def test_markdown_tells_a_battle_and_escapes_names(make_run):
    made = [
        draw_conclusion(
            make_run(run=f"r{o}", contender=name, battle=BattleFacts("b", 0, o)).healthy(600, 2.0 + o).write()
        )
        for o, name in enumerate(["a|b", "<c>"])
    ]
    text = to_markdown(made)
    assert text.startswith("### Battle: smart-city")
    assert "| 1 | a\\|b |" in text
    assert "<c>" not in text.replace("\\<c\\>", "")


def test_what_captures_told_becomes_csv_too(make_run, tmp_path):
    folder = make_run().healthy().write()
    small_system().write(folder.path)
    written = write_csv(draw_conclusion(folder).facts, tmp_path / "out")
    names = [table.name for table in WIRE_CSV_TABLES if is_stored(folder, table)]
    assert {"streams", "hops", "responses", "traffic"} <= set(names)
    assert [path.stem for path in written] == [*CSV_TABLES, *names, "kinds"]
    with (tmp_path / "out" / "streams.csv").open() as file:
        rows = {row["stream"]: row for row in csv.DictReader(file)}
    assert (rows["2"]["client_service"], rows["2"]["packets"], rows["2"]["server_rtt_ns"]) == ("gateway", "400", "")
    with (tmp_path / "out" / "hops.csv").open() as file:
        assert sum(1 for _ in csv.DictReader(file)) == 100 + 100 + 99 + 99
    assert not list((tmp_path / "out").glob(".*"))


def test_kinds_of_messages_become_csv_with_their_names_below(tmp_path):
    wires = Wires()
    wires.stream(1, "gateway", "redis", "redis", last_ns=START_NS + 2_000 * MS)
    wires.said(1, "redis", 3, kind="PUBLISH", name="air, noise", bytes=100, payload_bytes=60)
    wires.said(1, "redis", 1, kind="PUBLISH", name="water", bytes=100)
    write_wire_csv(wires.write(tmp_path / "decoded"), tmp_path / "out")
    with (tmp_path / "out" / "kinds.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert [(row["name"], row["messages"], row["per_s"]) for row in rows] == [
        ("", "4", "2.0"),
        ("air, noise", "3", "1.5"),
        ("water", "1", "0.5"),
    ]
    assert (rows[0]["sender"], rows[0]["receiver"], rows[0]["kind"], rows[0]["p50_ns"]) == (
        "gateway", "redis", "PUBLISH", "",
    )  # fmt: skip


def test_a_percentile_that_too_few_samples_carry_is_empty_in_csv_and_tells_what_it_needs(make_run, tmp_path):
    folder = make_run().healthy().write()
    small_system().write(folder.path)
    write_csv(draw_conclusion(folder).facts, tmp_path / "out")
    counts = {"actions": "n", "responses": "answered", "passages": "n"}
    empty = 0
    for name, count in counts.items():
        with (tmp_path / "out" / f"{name}.csv").open() as file:
            rows = list(csv.DictReader(file))
        assert rows
        for row in rows:
            for column, needed in (("p50", 5), ("inside_p95", 59), ("p99", 299)):
                if f"{column}_ns" not in row:
                    continue
                few = int(row[count]) < needed
                assert not (few and row[f"{column}_ns"])
                assert row[f"{column}_needs"] in ("", str(needed))
                assert bool(row[f"{column}_needs"]) <= few
                empty += bool(row[f"{column}_needs"])
    assert empty


def test_kinds_of_messages_tell_in_csv_what_their_percentiles_need(tmp_path):
    wires = Wires()
    wires.stream(1, "gateway", "redis", "redis", last_ns=START_NS + 2_000 * MS)
    wires.said(1, "redis", 3, kind="PUBLISH", bytes=100, part="request")
    wires.response("gateway", "redis", "redis", "PUBLISH", 3, [1, 2, 3, 4, 5, 6, 7])
    write_wire_csv(wires.write(tmp_path / "decoded"), tmp_path / "out")
    with (tmp_path / "out" / "kinds.csv").open(newline="") as file:
        (row,) = csv.DictReader(file)
    assert (row["p50_ns"], row["p99_ns"], row["p50_needs"], row["p99_needs"]) == ("", "", "5", "299")
