from __future__ import annotations

import io
import re

from msgspec.structs import replace
from rich.console import Console

from battlebrokers import tables
from battlebrokers.analysis.conclusion import draw_conclusion
from battlebrokers.analysis.model import Percentiles
from battlebrokers.analysis.ranking import rank
from battlebrokers.report.battle import print_battle
from battlebrokers.report.html import render_report
from battlebrokers.report.middleware import HEAD, costs, explain
from battlebrokers.report.terminal import run_lines

SIZES = {"mosquitto": (22, 22, 10, 36), "ponte": (22, 22, 25, 180), "acme": (22, 140, 30, 520)}


def run_of(make_run, contender: str):
    """A run of a contender; all but Mosquitto are spoken to over HTTP, and one publish of ponte's failed."""
    payload, structure, url, wire = SIZES[contender]
    made = make_run(run=f"{contender[:4]}1", contender=contender)
    made.publishing(
        qos=0, planned=200, sent=200, acked=199 if contender == "ponte" else 200, failed=int(contender == "ponte"),
        payload_bytes=200 * payload, structure_bytes=200 * structure, url_bytes=200 * url, wire_bytes=200 * wire,
        first_sent_ns=made.started_ns, last_sent_ns=made.started_ns + 10**9,
    )  # fmt: skip
    made.ledger(expected=200, delivered=200, qos=0, payload_bytes=200 * payload)
    made.latency("response", [2.0] * 200, second=[6] * 200)
    if contender == "ponte":
        made.add(tables.FAILURES, phase="measure", fleet="air", outcome="failed", reason=-4, n=1)
    protocol = "mqtt 3.1.1 tcp" if contender == "mosquitto" else "http"
    made.add(tables.NODES, role="device", node=0, name="air-1", fleet="air", protocol=protocol, worker="w1")
    made.add(tables.NODES, role="client", node=0, name="app-1", fleet="app", protocol=protocol, worker="w1")
    return draw_conclusion(made.write())


def test_the_sentence_names_the_dearest_the_cheapest_and_what_makes_the_difference(make_run):
    summaries = [run_of(make_run, name).summary for name in SIZES]
    sentence = explain(costs([(one.contender.name, [one]) for one in summaries]))
    assert sentence.startswith("acme writes 23.6 bytes for every byte of payload and mosquitto 1.64")
    assert "most of it is address, headers and framing (380 B a publish against 14 B)" in sentence
    assert "its structure has 140 B against 22 B, its address 30 B against 10 B" in sentence
    alone = explain(costs([("ponte", [summaries[1]])]))
    assert alone == "A payload of 22 B goes out as 180 B: 158 B of address, headers and framing on top of it."
    alike = explain(costs([("a", [summaries[0]]), ("b", [summaries[0]])]))
    assert alike.startswith("All write about the same, 1.64 bytes")
    assert explain([]) == ""


def test_a_battle_compares_all_contenders_on_the_page_and_in_the_terminal(make_run):
    conclusions = [run_of(make_run, name) for name in SIZES]
    html = render_report(conclusions)
    (section,) = re.findall(r'<section id="cost">.*?</section>', html, re.DOTALL)
    for name in SIZES:
        assert name in section
    assert "acme writes 23.6 bytes" in section
    assert "truncated" in html
    out = io.StringIO()
    print_battle(Console(file=out, width=250), rank([one.summary for one in conclusions]))
    assert "acme writes 23.6 bytes" in out.getvalue()
    assert re.search(r"ponte +http → http .* 199 +1 ", out.getvalue())


def test_the_table_has_the_middle_of_all_runs_of_a_contender(make_run):
    one = run_of(make_run, "ponte").summary

    def again(ms: float, size: float, per_s: float):
        spread = Percentiles(p50=ms, p99=10 * ms, n=100)
        cost = replace(
            one.middleware, publish_ms=spread, subscribe_ms=spread, structure_bytes=size, url_bytes=size,
            wire_bytes=size, generated_bytes_per_s=per_s, total_publish_s=ms,
        )  # fmt: skip
        return replace(one, middleware=cost)

    (cost,) = costs([("ponte", [again(9.0, 900, 90), again(2.0, 200, 20), again(1.0, 100, 10)])])
    cells = dict(zip(HEAD, cost.cells, strict=True))
    assert [cells[name] for name in ("publish p50", "publish p99", "subscribe p50")] == ["2 ms", "20 ms", "2 ms"]
    assert [cells[name] for name in ("structure", "address", "on the wire")] == ["200 B"] * 3
    assert (cells["generated"], cells["total publish time"]) == ("20 B/s", "2 s")
    assert (cells["ok"], cells["failed"]) == ("597", "3")
    (cost,) = costs([("ponte", [again(9.0, 900, 90), replace(one, middleware=None)])])
    assert dict(zip(HEAD, cost.cells, strict=True))["generated"] == "90 B/s"


def test_one_run_tells_what_failed_and_what_a_publish_costs(make_run):
    text = "\n".join(line.plain for line in run_lines(run_of(make_run, "ponte")))
    assert "publishes without success: truncated 1" in text
    assert re.search(
        r"PUBLISHING +structure 22 B   address 25 B   wire 180 B   8.18 × the payload   generated 4.3 KiB/s", text
    )
    assert "PUBLISHING" not in "\n".join(line.plain for line in run_lines(run_of(make_run, "mosquitto")))
