from __future__ import annotations

import json
import math
import re

import pytest

from battlebrokers.analysis.conclusion import draw_conclusion
from battlebrokers.clock import SECOND_NS
from battlebrokers.errors import UsageError
from battlebrokers.report.html import json_island, render_report, write_report
from battlebrokers.tables.manifest import BattleFacts
from battlebrokers.tables.operations import OPERATIONS
from support.browser import in_a_browser, show

HOSTILE = "</script><script>document.title='owned'</script><img src=x onerror=alert(1)>{{ 7*7 }}"


def page(*runs):
    return render_report([draw_conclusion(run.write()) for run in runs])


def battle(make_run, blocks=2):
    return [
        make_run(run=f"r{b}{o}", contender=name, battle=BattleFacts("b1", b, o)).lifelike(
            rate=20, dice_seed=b, base_ms=1.0 + o
        )
        for b in range(blocks)
        for o, name in enumerate(["mosquitto", "amqtt"])
    ]


def island(html):
    found = re.search(r'<script type="application/json" id="report-data">(.*?)</script>', html, re.DOTALL)
    assert found is not None
    return json.loads(found[1])


def text_of(html):
    """What a reader sees: the page without styles, scripts and tags."""
    bare = re.sub(r"<(style|script)\b.*?</\1>", " ", html, flags=re.DOTALL)
    return " ".join(re.sub(r"<[^>]+>", " ", bare).split())


def test_the_page_is_one_small_file_that_fetches_nothing(make_run):
    html = page(make_run().lifelike(rate=50))
    assert len(html.encode()) < 3_000_000
    without_data = re.sub(r"<script>.*?</script>", "", html, flags=re.DOTALL)
    loaded = re.findall(r"""(?:src|href|action|url\()\s*=?\s*["']?((?:https?:)?//[^"'\s)]+)""", without_data)
    assert loaded == []
    assert "default-src 'none'" in html
    assert not re.search(r"""<(?:link|script|img|iframe)[^>]+(?:src|href)=["'](?!data:|#)""", without_data)


def test_the_verdict_comes_first_in_a_sentence(make_run):
    text = text_of(page(make_run(run="k3f9a", expect=["delivery_p99 < 1ms"]).healthy()))
    assert text.index("FAIL") < text.index("missed 1 of 2 expectations: delivery_p99 &lt; 1ms, but it was 2.")
    assert "smart-city on mosquitto 2.1.2" in text


def test_the_page_of_scaled_runs_says_the_scale(make_run):
    scaled = "smart-city at scale 0.1"
    one = page(make_run(title=scaled).healthy())
    assert f"<title>PASS · {scaled} on mosquitto" in one
    assert f"{scaled} on mosquitto 2.1.2" in text_of(one)
    many = page(*(make_run(run=f"r{n}", contender=n, title=scaled).healthy(300) for n in ("mosquitto", "amqtt")))
    assert f"<title>{scaled}: amqtt, mosquitto" in many
    assert f"{scaled} among " in text_of(many)


def test_the_sections_are_in_the_promised_order(make_run):
    html = page(make_run().lifelike(rate=20))
    ids = re.findall(r'<section id="([^"]+)"', html)
    assert ids == ["latency", "time", "resources", "cost", "ledger", "findings", "trust", "method", "data"]


def test_a_battle_says_whose_lines_cannot_be_trusted(make_run):
    runs = [make_run(run=name, contender=name).healthy() for name in ("aaaaa", "bbbbb")]
    runs[1].state = "interrupted"
    untrusted = re.findall(r"What is drawn of (\w+) was recorded", page(*runs))
    assert untrusted == ["bbbbb"]


def test_a_void_run_keeps_and_breaks_no_promise_in_its_ledger(make_run):
    void, trusted = (
        text_of(page(make_run(counters=counters).healthy())) for counters in ({"recorder_overflow": 3}, {})
    )
    assert "✓ kept" in trusted
    assert "✓ kept" not in void


def test_a_void_run_says_why_it_cannot_be_trusted(make_run):
    text = text_of(page(make_run(counters={"recorder_overflow": 9}).healthy()))
    assert "This measurement cannot be trusted: 9 events did not fit into the recorder." in text


def test_a_run_in_ticks_says_so_among_its_doubts_and_in_its_environment(make_run):
    text = text_of(page(make_run(tick_ns=4_000_000).healthy()))
    assert "handled sends and arrivals every 4 ms" in text
    assert "1 process on lab, in ticks of 4 ms" in text


def test_a_dead_broker_is_told(make_run):
    text = text_of(page(make_run(state="broker-failed", state_detail="killed by signal 9").healthy()))
    assert "did not survive: the broker failed: killed by signal 9." in text


def test_every_chart_is_described_and_has_a_table(make_run):
    html = page(make_run().lifelike(rate=20))
    drawn = re.findall(r'data-chart="([^"]+)" role="img" aria-label="([^"]+)"', html)
    assert {name for name, _ in drawn} == {"spectrum", "rates", "latency", "in-flight", "cpu", "memory", "heat-0"}
    assert all(len(description) > 20 for _, description in drawn)
    assert set(re.findall(r'data-table="([^"]+)"', html)) == {name for name, _ in drawn}
    assert set(island(html)["charts"]) == {name for name, _ in drawn}


def test_a_battle_has_a_ranking_and_overlays(make_run):
    html = page(*battle(make_run))
    text = text_of(html)
    assert "BATTLE" in text
    assert "in delivery p99" in text
    assert [line["name"] for line in island(html)["charts"]["spectrum"]["series"]] == ["mosquitto", "amqtt"]
    assert set(island(html)["summaries"]) == {"r00", "r01", "r10", "r11"}
    assert "All 4 runs" in text


def test_hostile_names_are_only_text(make_run):
    run = make_run(scenario=HOSTILE, contender=HOSTILE, version=HOSTILE, host={"hostname": HOSTILE}, expect=[])
    run.healthy()
    run.ledger(fleet=HOSTILE, client_fleet=HOSTILE, expected=5, delivered=4, lost=1, qos=0)
    run.latency("response", [math.inf], fleet=HOSTILE, client_fleet=HOSTILE, qos=0)
    html = page(run)
    assert "<script>document" not in html
    assert "<img src=x" not in html
    assert "{{ 7*7 }}" in html
    assert island(html)["summaries"]["run0a"]["scenario"] == HOSTILE


def test_an_island_cannot_be_left():
    text = str(json_island({"x": "</script><!-- \u2028 & <script>"}))
    assert not set("<>&\u2028") & set(text)
    assert json.loads(text) == {"x": "</script><!-- \u2028 & <script>"}


def test_a_run_in_which_nobody_listens_still_has_a_page(make_run):
    run = make_run()
    run.latency("lag", [0.05] * 100, second=6)
    run.publishing(planned=100, sent=100, qos=0)
    text = text_of(page(run))
    assert "Nobody listened." in text
    assert "nobody listened and nothing was acknowledged" in text


def test_a_broker_that_died_before_the_load_still_has_a_page(make_run):
    run = make_run(state="broker-failed", warm_up_s=0, measure_s=0, cool_down_s=0, drain_s=0)
    run.publishing(planned=0)
    assert "did not survive" in text_of(page(run))


def test_no_run_is_a_usage_error():
    with pytest.raises(UsageError):
        render_report([])


def test_the_report_is_written_whole(make_run, tmp_path):
    out = tmp_path / "deep" / "report.html"
    write_report([make_run().healthy().write()], out)
    assert out.read_text().rstrip().endswith("</html>")
    assert [path.name for path in out.parent.iterdir()] == ["report.html"]


@in_a_browser
@pytest.mark.parametrize("kind", ["single", "battle", "hostile"])
def test_a_real_browser_draws_every_chart_without_an_error(make_run, tmp_path, kind):
    runs = {
        "single": lambda: [make_run().lifelike(rate=50, lost_share=0.02, stall=(12.0, 2.0))],
        "battle": lambda: battle(make_run),
        "hostile": lambda: [make_run(scenario=HOSTILE, contender=HOSTILE).lifelike(rate=20)],
    }[kind]()
    shown = show(page(*runs), tmp_path)
    assert 'data-charts="drawn"' in shown.page, shown.log[-2000:]
    assert "data-error" not in shown.opening
    assert 'data-theme="dark"' in shown.opening
    assert shown.complaints == []
    assert shown.page.count("<svg") > 10
    assert "<title>owned" not in shown.page


USE_IT = """
<script>
const said = {};
const count = (selector) => document.querySelectorAll(selector).length;
const move = (id, share) => {
  const inner = document.querySelector(`[data-chart="${id}"] > div`);
  const box = inner.getBoundingClientRect();
  const at = { bubbles: true, clientX: box.left + box.width * share, clientY: box.top + box.height / 2 };
  inner.dispatchEvent(new MouseEvent("mousemove", at));
};
const figure = (id) => document.querySelector(`[data-chart="${id}"]`).closest("figure");
const reading = (id) => figure(id).querySelector("output").textContent;
for (const details of document.querySelectorAll("details")) details.open = true;
document.querySelector("[data-span=measure]").click();
document.querySelector("[data-scale=linear]").click();
const legend = figure("rates").querySelector(".legend");
legend.click();
said.off = legend.getAttribute("aria-pressed");
legend.click();
said.on = legend.getAttribute("aria-pressed");
document.getElementById("theme").click();
said.theme = document.documentElement.dataset.theme;
setTimeout(() => { move("rates", 0.5); move("spectrum", 0.5); }, 500);
setTimeout(() => {
  said.rates = reading("rates"); said.cpu = reading("cpu"); said.spectrum = reading("spectrum");
  said.tables = count("details[data-table] table");
  document.body.dataset.said = JSON.stringify(said);
}, 1500);
</script>"""


@in_a_browser
def test_buttons_legends_tables_and_the_shared_cursor_work(make_run, tmp_path):
    shown = show(page(make_run().lifelike(rate=50)), tmp_path, USE_IT)
    said = shown.said
    assert (said["off"], said["on"], said["theme"]) == ("false", "true", "light")
    assert said["tables"] == 7
    assert said["rates"].endswith("/s")
    assert said["cpu"].endswith("%")
    assert said["spectrum"].endswith(("µs", "ms"))
    assert shown.complaints == []


def test_the_environment_is_told_in_words_and_units(make_run):
    host = {"cpu_cores": 2, "steal_visible": True, "local_ports": [32768, 60999], "open_files": {"soft": 20000}}
    text = text_of(page(make_run(host=host).healthy()))
    assert "steal visible yes local ports 32768, 60999 open files soft 20 000" in text


def test_a_battle_tells_once_what_its_contenders_share_and_each_where_they_differ(make_run):
    runs = battle(make_run, blocks=1)
    runs[1].measure_s, runs[1].workers = 20, 2
    runs = [runs[0], runs[1].lifelike(rate=20, base_ms=2.0)]
    text = text_of(page(*runs))
    assert "measure (mosquitto) 30 s, from 5 s measure (amqtt) 20 s, from 5 s" in text
    assert text.count("warm-up 5 s, from 0 s") == 1
    assert "worker w1 (mosquitto) – worker w1 (amqtt) 1 process on lab" in text
    assert text.count("cpu model Example CPU") == 1


def test_network_bytes_nobody_counted_are_not_shown_as_none(make_run):
    run = make_run().healthy()
    run.rows["services"] = []
    run.service("amqtt", "contender", 40.0, received_bytes=26, sent_bytes=26)
    run.service("worker-1", "generator", 30.0, received_bytes=400_000, sent_bytes=410_000)
    html = page(run)
    assert "amqtt contender 40 % 40 % 40 % 50 MiB – – 0 B" in text_of(html)
    assert "worker-1 generator 30 % 30 % 30 % 50 MiB 391 KiB 400 KiB 0 B" in text_of(html)
    assert "there it says –" in text_of(html)
    (summary,) = island(html)["summaries"].values()
    counted = {one["service"]: one["network_counted"] for one in summary["services"]}
    assert counted == {"amqtt": False, "worker-1": True}


def test_a_wait_between_connecting_and_the_load_is_told(make_run):
    run = make_run(connect_s=30).healthy()
    run.add(
        OPERATIONS, worker="w0", role="device", node=0, kind="connect", started_ns=run.started_ns,
        ended_ns=run.started_ns + 4 * SECOND_NS, outcome="ok", detail="", persistent=False, attempt=1,
    )  # fmt: skip
    assert "connect 30 s, from -30 s; everybody was connected for the last 26 s of it" in text_of(page(run))
