from __future__ import annotations

from battlebrokers import tables
from battlebrokers.analysis.conclusion import draw_conclusion
from battlebrokers.analysis.middleware import failure_kind
from battlebrokers.clock import SECOND_NS
from battlebrokers.protocols.base import Failure
from battlebrokers.tables.publishes import FAILURES


def test_every_failure_of_a_link_has_a_name_and_no_other():
    assert set(FAILURES) == {failure.value for failure in Failure}


def test_reasons_in_words():
    assert failure_kind(-2, "http") == "timeout"
    assert failure_kind(500, "http") == "status 500"
    assert failure_kind(151, "mqtt") == "reason 151"
    assert failure_kind(None, "mqtt") == "refused"
    assert failure_kind(-99, "http") == "failure -99"


def http_run(make_run):
    made = make_run()
    start = made.started_ns + 6 * SECOND_NS
    made.publishing(
        qos=0, planned=100, sent=90, acked=80, refused=4, failed=5, unacked=1, unsent=10,
        payload_bytes=90 * 22, structure_bytes=90 * 80, url_bytes=90 * 30, wire_bytes=90 * 220,
        first_sent_ns=start, last_sent_ns=start + SECOND_NS, last_acked_ns=start + 3 * SECOND_NS,
    )  # fmt: skip
    for outcome, reason, n in (("refused", 500, 4), ("failed", -2, 3), ("failed", -4, 2)):
        made.add(tables.FAILURES, phase="measure", fleet="air", outcome=outcome, reason=reason, n=n)
    made.add(tables.FAILURES, phase="warm_up", fleet="air", outcome="failed", reason=-3, n=7)
    made.action("subscribe", role="client", fleet="app", n=2, ms=1.0)
    made.add(tables.NODES, role="device", node=0, name="air-1", fleet="air", protocol="http", worker="w1")
    made.add(tables.NODES, role="client", node=0, name="app-1", fleet="app", protocol="mqtt 3.1.1 tcp", worker="w1")
    return made


def test_publishes_without_success_are_counted_by_kind(make_run):
    summary = draw_conclusion(http_run(make_run).write()).summary
    assert summary.messages.failures == {"status 500": 4, "timeout": 3, "truncated": 2}
    assert (summary.publishing.refused, summary.publishing.failed) == (4, 5)


def test_what_publishing_costs(make_run):
    cost = draw_conclusion(http_run(make_run).write()).summary.middleware
    assert cost.protocols == {"air": "http", "app": "mqtt"}
    assert (cost.successful, cost.failed) == (80, 20)
    assert (cost.payload_bytes, cost.structure_bytes, cost.url_bytes, cost.wire_bytes) == (22, 80, 30, 220)
    assert cost.overhead == 10
    assert cost.total_publish_s == 3
    assert cost.generated_bytes_per_s == 90 * 80 / 3
    assert cost.subscribe_ms.n == 2
    assert cost.register_ms.n == 0
