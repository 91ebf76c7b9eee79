from __future__ import annotations

import re

import pytest

from battlebrokers.analysis.conclusion import draw_conclusion
from battlebrokers.analysis.wire import read_wire
from battlebrokers.report.captures_page import render_captures
from battlebrokers.report.html import render_report
from battlebrokers.report.pool import make_pools
from battlebrokers.report.wire import wire_view
from battlebrokers.report.wire_battle import battle_wire
from battlebrokers.tables.manifest import BattleFacts
from support.browser import in_a_browser, show
from support.wires import MS, START_NS, Wires, small_system

HOSTILE = "</script><script>document.title='owned'</script><img src=x onerror=alert(1)>{{ 7*7 }}"
CHARTS = {"wire-delays", "wire-protocols", "wire-services"}
NOTHING_SEEN = {
    "packets": 0,
    "streams": 0,
    "messages": {},
    "exchanges": {},
    "tcp": {"retransmissions": 0, "lost_segments": 0},
    "malformed": 0,
    "undecoded_bytes": 0,
    "defects": [],
    "seconds": 0.1,
}
SEEN = NOTHING_SEEN | {
    "packets": 1372,
    "streams": 6,
    "messages": {"mqtt": {"PUBLISH": 100, "PUBACK": 100}, "redis": {"message": 100}},
    "exchanges": {"mqtt": {"answered": 101, "unanswered": 0, "uncertain": 0}},
    "tcp": {"retransmissions": 3, "lost_segments": 0},
    "defects": [{"file": "broken.pcap", "reason": "ends in the middle of a packet"}],
}


def text_of(html):
    bare = re.sub(r"<(style|script)\b.*?</\1>", " ", html, flags=re.DOTALL)
    return " ".join(re.sub(r"<[^>]+>", " ", bare).split())


def captured_run(make_run):
    run = make_run().lifelike(rate=20)
    folder = run.write()
    small_system().write(folder.path)
    return folder


def test_boxes_are_one_per_peer_and_direction_and_exact_for_one_kind(tmp_path):
    chart = wire_view(read_wire(small_system().write(tmp_path)))["charts"]["wire-delays"]
    boxes = {(box["name"], box["what"]): box for box in chart["boxes"]["peer"]}
    assert boxes["gateway → redis", "redis"]["points"] == [0.04, 0.06, 0.08, 0.11, 0.3, None, 4.0]
    assert boxes["gateway → redis", "redis"]["needed"] == [0, 0, 0, 0, 0, 299, 0]  # 99 answers do not carry a p99
    assert boxes["gateway → redis", "redis"]["unanswered"] == 1
    assert ("dispatcher → outside", "websocket") not in boxes  # never answered: no delay to draw
    kinds = {box["what"] for box in chart["boxes"]["kind"]}
    assert {"mqtt PUBLISH", "mqtt CONNECT", "http GET"} <= kinds


def test_seconds_of_a_run_count_from_the_start_of_its_load(tmp_path):
    wire = read_wire(small_system().write(tmp_path))
    assert wire_view(wire)["charts"]["wire-protocols"]["first_second"] == 0
    shifted = wire_view(wire, origin_second=wire.traffic.first_second - 6)
    assert shifted["charts"]["wire-protocols"]["first_second"] == 6


def test_what_was_said_before_the_charts_begin_is_left_out(tmp_path):
    wire = read_wire(small_system().write(tmp_path))
    origin = wire.traffic.first_second + 5
    whole = wire_view(wire, origin_second=origin)["charts"]["wire-protocols"]
    cut = wire_view(wire, origin_second=origin, since=-2)["charts"]["wire-protocols"]
    assert (whole["first_second"], cut["first_second"]) == (-5, -2)
    assert cut["columns"] == whole["columns"] - 3
    assert [line["data"] for line in cut["series"]] == [line["data"][3:] for line in whole["series"]]


def test_a_protocol_has_one_colour_in_all_charts(tmp_path):
    charts = wire_view(read_wire(small_system().write(tmp_path)))["charts"]
    slots = {line["name"]: line["slot"] for line in charts["wire-protocols"]["series"]}
    assert slots["redis, unasked"] == slots["redis"]
    assert all(box["slot"] == slots[box["what"]] for box in charts["wire-delays"]["boxes"]["peer"])


def test_a_waterfall_places_every_leg_on_the_whole_time(tmp_path):
    journey = wire_view(read_wire(small_system().write(tmp_path)))["journeys"][0]
    legs = {leg["sender"]: leg for leg in journey["legs"]}
    # 31.3 ms in all: redis got it after 0.6 ms, kept it for 30.2 ms and sent it within 0.1 ms.
    assert journey["took"] == "31.3 ms"
    assert legs["redis"]["kept_left"] == pytest.approx(100 * 0.6 / 31.3, abs=0.001)
    assert legs["redis"]["kept_width"] == pytest.approx(100 * 30.2 / 31.3, abs=0.001)
    assert legs["redis"]["left"] == pytest.approx(100 * 30.8 / 31.3, abs=0.001)
    assert (legs["outside"]["left"], legs["outside"]["kept_width"]) == (0.0, 0.0)
    assert (legs["redis"]["inside"], legs["redis"]["wire"]) == ("30.2 ms", "100 µs")


def test_beside_the_slowest_a_usual_and_the_lost_messages_can_be_looked_at(tmp_path):
    journeys = wire_view(read_wire(small_system().write(tmp_path)))["journeys"]
    assert [one["remark"] for one in journeys] == [
        "the slowest", *[""] * 9, "the median", "lost, last seen going to redis",
    ]  # fmt: skip
    assert journeys[-2]["took"] == "1.3 ms"


def test_a_captured_run_has_a_section_after_resources(make_run):
    html = render_report([draw_conclusion(captured_run(make_run))])
    ids = re.findall(r'<section id="([^"]+)"', html)
    assert ids == ["latency", "time", "resources", "wire", "cost", "ledger", "findings", "trust", "method", "data"]
    assert '<a href="#wire">On the wire</a>' in html
    assert len(html.encode()) < 3_000_000


def test_a_run_without_captures_says_nothing_about_wires(make_run):
    html = render_report([draw_conclusion(make_run().lifelike(rate=20).write())])
    assert 'id="wire"' not in html
    assert "reportKinds = " not in html


def test_the_page_of_captures_tells_what_was_seen(tmp_path):
    text = text_of(render_captures(small_system().write(tmp_path / "town"), SEEN))
    assert "CAPTURES town" in text
    assert "1 372 packets in 6 streams: 300 messages in 2 protocols." in text
    assert "holds them back" not in text
    assert "broken.pcap: ends in the middle of a packet" in text
    assert (
        "gateway → redis 10.0.0.2:40002 → 10.0.0.3:6379 redis 200 in 200 packets 400 12.1 KiB 100 99 1 0 0 0 0" in text
    )
    assert "1 message last seen going to redis" in text


def test_the_page_of_captures_names_who_keeps_slow_messages(tmp_path):
    text = text_of(render_captures(small_system(400).write(tmp_path / "town"), SEEN))
    assert "redis holds them back: 30.2 ms inside it" in text


def test_a_kind_of_message_is_one_row_and_its_names_stand_below(tmp_path):
    wires = Wires()
    wires.stream(1, "gateway", "redis", "redis", last_ns=START_NS + 2_000 * MS)
    wires.said(1, "redis", 6, kind="PUBLISH", name="air", bytes=100)
    wires.said(1, "redis", 2, kind="PUBLISH", name="noise", bytes=100)
    wires.said(1, "redis", 8, kind="INTEGER", sender="server")
    wires.asked(1, "redis", "answered", 8, kind="PUBLISH", answer="INTEGER", answered_ns=START_NS)
    wires.response("gateway", "redis", "redis", "PUBLISH", 8, [100] * 7)
    for number in range(3):
        wires.leg(number, 1, "gateway", "redis", 0, 1, protocol="redis", kind="PUBLISH", name="air")
    text = text_of(render_captures(wires.write(tmp_path), NOTHING_SEEN))
    assert "gateway → redis redis PUBLISH 2 names 8 4/s 800 B 100 µs – (n≥299) 37.5 % air 6 3/s 600 B" in text
    assert "redis → gateway redis INTEGER" not in text  # answers count with what they answer


def test_the_page_stays_small_however_many_streams_peers_and_names_there_are(tmp_path):
    wires = Wires()
    for number in range(3_000):
        wires.stream(number, f"client-{number}", f"service-{number % 700}", "redis", client_bytes=number)
        wires.said(number, "redis", 1, kind="SET", name=f"key:{number:050}")
        wires.response(f"client-{number}", f"service-{number % 700}", "redis", "SET", 1, [100] * 7)
        wires.talk(number % 60, f"client-{number}", f"service-{number % 700}", "redis", "request", 1, 100)
    html = render_captures(wires.write(tmp_path), NOTHING_SEEN)
    assert len(html.encode()) < 3_000_000
    assert "The busiest 200 of 3 000 streams" in text_of(html)


def test_every_chart_is_described_and_has_a_table(tmp_path):
    html = render_captures(small_system().write(tmp_path), SEEN)
    drawn = re.findall(r'data-chart="([^"]+)" role="img" aria-label="([^"]+)"', html)
    assert {name for name, _ in drawn} == CHARTS
    assert "gateway to redis in redis: median 80 µs, p95 300 µs" in dict(drawn)["wire-delays"]
    assert set(re.findall(r'<details data-table="([^"]+)"', html)) == CHARTS
    assert re.search(r'<svg class="map" role="img" aria-label="Service map: dispatcher to outside in websocket;', html)


def test_an_empty_capture_still_has_a_page(tmp_path):
    text = text_of(render_captures(Wires().write(tmp_path), NOTHING_SEEN))
    assert "No stream was captured." in text
    assert "None that a dissector could read." in text


def hostile_system():
    wires = Wires()
    wires.stream(1, HOSTILE, HOSTILE, HOSTILE, client_bytes=9)
    wires.said(1, HOSTILE, 2)
    wires.response(HOSTILE, "b", HOSTILE, HOSTILE, 3, [0, 0, 0, 0, 0, 0, 0])
    wires.talk(0, HOSTILE, "b", HOSTILE, "other", 2, 10)
    wires.leg(1, 1, HOSTILE, "b", 0, 0, name=HOSTILE, kind=HOSTILE, protocol=HOSTILE)
    return wires


def test_hostile_names_are_only_text(tmp_path):
    html = render_captures(hostile_system().write(tmp_path), NOTHING_SEEN | {"messages": {HOSTILE: {HOSTILE: 1}}})
    assert "<script>document" not in html
    assert "<img src=x" not in html
    assert "{{ 7*7 }}" in html


USE_IT = """
<script>
const said = {};
const chart = (id) => document.querySelector(`[data-chart="${id}"]`);
for (const details of document.querySelectorAll("details")) details.open = true;
const table = document.querySelector("table[data-sortable]");
const firsts = () => [...table.tBodies[0].rows].map((row) => row.cells[2].dataset.value);
const sort = (column) => table.tHead.rows[1].cells[column].querySelector("button").click();
sort(2); said.most = firsts()[0]; said.sorted = table.tHead.rows[1].cells[2].getAttribute("aria-sort");
sort(2); said.least = firsts()[0];
const choice = document.getElementById("journey");
choice.value = "5"; choice.dispatchEvent(new Event("change"));
const shown = [...document.querySelectorAll("[data-journey]")].filter((one) => !one.hidden);
said.journeys = shown.map((one) => one.dataset.journey);
setTimeout(() => {
  const rowsOf = () => document.querySelectorAll('details[data-table="wire-delays"] tbody tr').length;
  said.peers = rowsOf();
  const before = chart("wire-delays").style.height;
  document.querySelector("[data-boxes=kind]").click();
  said.kinds = rowsOf();
  said.grew = parseInt(chart("wire-delays").style.height) - parseInt(before);
  const inner = chart("wire-protocols").querySelector("div");
  const box = inner.getBoundingClientRect();
  const at = { bubbles: true, clientX: box.left + box.width / 2, clientY: box.top + box.height / 2 };
  inner.dispatchEvent(new MouseEvent("mousemove", at));
}, 500);
setTimeout(() => {
  const read = (id) => chart(id).closest("figure").querySelector("output").textContent;
  said.protocols = read("wire-protocols"); said.services = read("wire-services");
  said.drawn = [...document.querySelectorAll(".chart")].every((one) => one.querySelectorAll("svg path").length > 3);
  said.tables = document.querySelectorAll("details[data-table] table").length;
  document.body.dataset.said = JSON.stringify(said);
}, 1500);
</script>"""


@in_a_browser
@pytest.mark.parametrize("kind", ["captures", "run", "battle", "hostile", "empty"])
def test_a_real_browser_draws_the_section_without_an_error(make_run, tmp_path, kind):
    if kind == "run":
        html = render_report([draw_conclusion(captured_run(make_run))])
    elif kind == "battle":
        html = render_report(captured_battle(make_run), tmp_path)
    else:
        wires = {"captures": small_system, "hostile": hostile_system, "empty": Wires}[kind]()
        html = render_captures(wires.write(tmp_path / "c"), NOTHING_SEEN)
    shown = show(html, tmp_path)
    assert 'data-charts="drawn"' in shown.page, shown.log[-2000:]
    assert "data-error" not in shown.opening
    assert shown.complaints == []
    assert "<title>owned" not in shown.page


@in_a_browser
def test_sorting_choosing_a_journey_and_the_boxes_by_kind_work(tmp_path):
    shown = show(render_captures(small_system().write(tmp_path / "c"), SEEN), tmp_path, USE_IT)
    said = shown.said
    assert (said["most"], said["sorted"], said["least"]) == ("420", "descending", "2")
    assert said["journeys"] == ["5"]
    assert (said["peers"], said["kinds"], said["grew"]) == (5, 6, 36)
    assert said["protocols"] == "1.21 KiB/s"  # requests and responses of redis, in every second but the first
    assert said["services"].endswith("KiB/s")  # one cursor reads all
    assert said["drawn"] is True
    assert said["tables"] == len(CHARTS)
    assert shown.complaints == []


def test_cpu_and_memory_stand_beside_the_services_that_were_sampled(make_run):
    folder = captured_run(make_run)
    assert (
        "CPU mean</th><th class"
        not in render_report([draw_conclusion(folder)]).split('id="wire"')[1].split("Ledger")[0]
    )
    run = make_run().lifelike(rate=20)
    run.service("redis", "contender", 20.0, cpu_mean_percent=37.4, cpu_max_percent=50.0, rss_max_bytes=12 << 20)
    folder = run.write()
    small_system().write(folder.path)
    told = text_of(render_report([draw_conclusion(folder)]))
    assert "redis 2 11.1 KiB 11.8 KiB 0 101 0 1 80.5 µs – (n≥299) 100 B 40.4 B 37 % 12 MiB" in told


def captured_battle(make_run, captured=("mosquitto", "amqtt"), blocks=2):
    conclusions = []
    for block in range(blocks):
        for order, name in enumerate(["mosquitto", "amqtt"]):
            run = make_run(run=f"r{block}{order}", contender=name, battle=BattleFacts("b1", block, order))
            run.lifelike(rate=20, dice_seed=block, base_ms=1.0 + order)
            run.service("redis", "contender", 20.0, cpu_mean_percent=30.0 + 10 * block, rss_max_bytes=12 << 20)
            folder = run.write()
            if name in captured:
                small_system().write(folder.path)
            conclusions.append(draw_conclusion(folder))
    return conclusions


def test_a_captured_battle_shows_the_contenders_wires_side_by_side(make_run, tmp_path):
    html = render_report(captured_battle(make_run), tmp_path)
    told = html.split('<section id="wire">')[1].split("</section>")[0]
    assert told.count('<svg class="map"') == 2
    drawn = set(re.findall(r'data-chart="([^"]+)" role="img" aria-label="[^"]{20,}"', told))
    assert drawn == {"wire-delays", "wire-protocols-0", "wire-protocols-1"}
    text = text_of(told)
    assert "redis 35 %" in text  # the mean of both runs
    assert len(html.encode()) < 3_000_000


def test_boxes_of_a_battle_stand_in_pairs_in_the_contenders_colours(make_run):
    pools = make_pools(captured_battle(make_run))
    boxes = battle_wire(pools, None)["charts"]["wire-delays"]["boxes"]["peer"]
    assert [(box["name"], box["slot"]) for box in boxes[:4]] == [
        ("mosquitto: outside → dispatcher", 0),
        ("amqtt: outside → dispatcher", 1),
        ("mosquitto: outside → gateway", 0),
        ("amqtt: outside → gateway", 1),
    ]
    assert {box["n"] for box in boxes if box["what"] == "redis" and "gateway → redis" in box["name"]} == {200}


def test_charts_of_a_battle_share_their_scales(make_run):
    charts = battle_wire(make_pools(captured_battle(make_run)), None)["charts"]
    first, second = charts["wire-protocols-0"], charts["wire-protocols-1"]
    assert (first["axis"], first["top"]) == (second["axis"], second["top"])
    assert first["top"] > 0


def test_a_battle_links_to_the_reports_of_its_runs_that_exist(make_run, tmp_path):
    conclusions = captured_battle(make_run)
    for conclusion in conclusions[:2]:
        conclusion.folder.report_path.write_text("<html>")
    html = render_report(conclusions, conclusions[0].folder.path.parent)
    name = conclusions[0].folder.path.name
    assert f'href="{name}/report.html#wire"' in html
    assert f'<a href="{name}/report.html">r00</a>' in html
    assert "r10</a>" not in html


def test_contenders_without_a_capture_are_named(make_run):
    html = render_report(captured_battle(make_run, captured=("amqtt",)))
    assert "Without a capture: mosquitto." in text_of(html)


def test_a_battle_without_captures_says_nothing_about_wires(make_run):
    assert 'id="wire"' not in render_report(captured_battle(make_run, captured=()))
