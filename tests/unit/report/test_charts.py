from __future__ import annotations

import json
import math

import pytest

from battlebrokers.analysis.conclusion import draw_conclusion
from battlebrokers.clock import SECOND_NS
from battlebrokers.report.charts import all_charts, heat, spectrum, time_charts
from battlebrokers.report.pool import make_pools
from battlebrokers.tables.manifest import BattleFacts
from battlebrokers.tables.operations import OPERATIONS


def pools(*runs):
    return make_pools([draw_conclusion(run.write()) for run in runs])


def test_one_run_shows_its_kinds_of_latency(make_run):
    chart = spectrum(pools(make_run().healthy(3000)))
    assert [line["name"] for line in chart["series"]] == ["delivery", "service", "publish", "generator lag"]
    points = chart["series"][0]["points"]
    assert points[0][0] == 1
    assert points[-1][0] == pytest.approx(1002, abs=1)  # the highest percentile that 3000 messages carry
    assert points == sorted(points)


def test_the_nines_of_a_known_distribution(make_run):
    run = make_run().healthy(0)
    run.latency("response", [1.0] * 900 + [10.0] * 90 + [100.0] * 10)
    (line,) = spectrum(pools(run))["series"]
    assert [[round(x), y] for x, y in line["points"]] == [[1, 1], [10, 1], [100, 10], [334, 100]]
    assert line["lost"] == 0


def test_a_curve_ends_where_the_lost_begin(make_run):
    run = make_run().healthy(0)
    run.latency("response", [1.0] * 990 + [math.inf] * 10)
    (line,) = spectrum(pools(run))["series"]
    assert line["points"][-1] == [pytest.approx(100, rel=1e-3), 1.0]
    assert line["lost"] == 0.01


def test_several_runs_are_pooled_by_contender(make_run):
    runs = [
        make_run(run=f"r{b}{o}", contender=name, battle=BattleFacts("b1", b, o)).healthy(600, 2.0 + o)
        for b in range(3)
        for o, name in enumerate(["one", "two"])
    ]
    made = pools(*runs)
    assert [pool.label for pool in made] == ["one", "two"]
    assert made[0].latency("response").total == 1800
    assert made[0].timeline("publish", "messages")[6] == 20
    chart = spectrum(made)
    assert [(line["name"], line["slot"]) for line in chart["series"]] == [("one", 0), ("two", 1)]


def test_void_runs_are_left_out_of_a_pool(make_run):
    (pool,) = pools(make_run(run="r1").healthy(600), make_run(run="r2", counters={"recorder_overflow": 1}).healthy(600))
    assert (len(pool.conclusions), pool.left_out) == (1, 1)


def test_time_charts_share_one_axis(make_run):
    charts = time_charts(pools(make_run().lifelike(rate=20)))
    assert [chart["id"] for chart in charts] == ["rates", "latency", "in-flight", "cpu", "memory"]
    axes = {tuple(chart["seconds"]) for chart in charts}
    assert len(axes) == 1
    for chart in charts:
        for line in chart["series"]:
            assert len(line["data"]) == len(chart["seconds"])


@pytest.mark.parametrize(("connected_s", "first_second"), [(4, -2), (29, -30)])
def test_charts_begin_with_connecting_unless_everybody_only_waited_for_the_load(make_run, connected_s, first_second):
    run = make_run(connect_s=30).lifelike(rate=20)
    ended_ns = run.started_ns + connected_s * SECOND_NS
    run.add(
        OPERATIONS, worker="w0", role="device", node=0, kind="connect", started_ns=ended_ns - 1, ended_ns=ended_ns,
        outcome="ok", detail="", persistent=False, attempt=1,
    )  # fmt: skip
    found = pools(run)
    charts = time_charts(found)
    assert {chart["seconds"][0] for chart in charts} == {first_second}
    assert heat(found[0], 0, charts[0]["seconds"])["first_second"] == first_second


def test_a_second_with_an_infinite_p99_is_marked(make_run):
    run = make_run().healthy(3000)
    run.latency("response", [math.inf] * 50, second=7)
    chart = next(chart for chart in time_charts(pools(run)) if chart["id"] == "latency")
    high = chart["series"][1]
    index = chart["seconds"].index(7)
    assert high["name"] == "p95"
    assert high["infinite"] == [index]
    assert high["data"][index] is None


@pytest.mark.parametrize(("per_second", "name"), [(400, "p99"), (100, "p95"), (40, "p90"), (10, "slowest")])
def test_each_second_shows_the_highest_percentile_its_messages_carry(make_run, per_second, name):
    run = make_run(measure_s=5).healthy(5 * per_second)
    chart = next(chart for chart in time_charts(pools(run)) if chart["id"] == "latency")
    assert [line["name"] for line in chart["series"]] == ["p50", name]
    assert sum(value is not None for value in chart["series"][1]["data"]) == 5


def test_the_heat_counts_every_message_once(make_run):
    run = make_run().healthy(3000)
    run.latency("response", [math.inf] * 50, second=7)
    (pool,) = pools(run)
    chart = heat(pool, 0, [0, 40])
    assert sum(n for _, _, n in chart["cells"]) == 3000
    assert chart["lost"] == [[7, 50]]
    assert chart["columns"] == 41
    assert all(0 <= band < len(chart["bins"]) - 1 for _, band, _ in chart["cells"])


def test_long_runs_have_wider_heat_columns(make_run):
    run = make_run(measure_s=1000).healthy(0)
    run.latency("response", [1.0] * 1000, second=list(range(5, 1005)))
    (pool,) = pools(run)
    chart = heat(pool, 0, [])
    assert chart["columns"] <= 240
    assert sum(n for _, _, n in chart["cells"]) == 1000


def test_an_empty_run_has_no_charts(make_run):
    run = make_run()
    run.publishing(planned=0)
    assert all_charts(pools(run)) == {}


def test_charts_are_plain_json(make_run):
    json.dumps(all_charts(pools(make_run().lifelike(rate=20, lost_share=0.05))), allow_nan=False)
