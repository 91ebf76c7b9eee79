"""Middlewares for real: publishing over one protocol, listening on another, registered and removed over HTTP."""

from __future__ import annotations

import pyarrow.parquet as pq
import pytest

from battlebrokers.analysis.summary import build_summary
from battlebrokers.tables import OPERATIONS, PUBLISHES
from support.runs import run_for_real

pytestmark = [pytest.mark.broker, pytest.mark.slow]


@pytest.mark.spark
def test_ponte_takes_messages_over_http_and_gives_them_over_mqtt(tmp_path, analyst, require_broker):
    require_broker("ponte")
    folder = run_for_real("middleware-small", "ponte", tmp_path / "runs", scale=0.01)
    manifest = folder.read_manifest()
    assert manifest.state == "finished"
    assert manifest.settings["protocols"] == {"sensors": "http", "dashboard": "mqtt"}
    # It ends when the device has said its 200 messages, long before the 210 s are over.
    measured = next(phase for phase in manifest.phases if phase.name == "measure")
    assert measured.end_ns - measured.start_ns < 60 * 10**9
    analyst.analyze(str(folder.path))
    summary = build_summary(folder)
    assert (summary.messages.sent, summary.messages.acked, summary.messages.delivered) == (200, 200, 200)
    cost = summary.middleware
    assert (cost.successful, cost.failed, cost.payload_bytes, cost.structure_bytes) == (200, 0, 22, 22)
    assert cost.url_bytes > 22
    assert cost.wire_bytes > cost.structure_bytes + cost.url_bytes
    assert cost.overhead == pytest.approx(cost.wire_bytes / 22, rel=0.01)
    assert cost.publish_ms.n == 200


def test_acme_is_registered_with_and_everything_is_removed_again(tmp_path, require_broker):
    require_broker("acme-onem2m")
    folder = run_for_real("middleware-small", "acme-onem2m", tmp_path / "runs", scale=0.01)
    assert folder.read_manifest().state == "finished"
    rows = pq.read_table(folder.table(OPERATIONS)).to_pylist()
    calls = [(row["role"], row["kind"], row["outcome"]) for row in rows]
    for call, times in (
        (("controller", "login", "ok"), 1), (("resource", "register", "ok"), 4), (("resource", "remove", "ok"), 4),
        (("client", "subscribe", "ok"), 4),
    ):  # fmt: skip
        assert calls.count(call) == times, call
    subscribed = [row for row in rows if row["kind"] == "subscribe"]
    assert {row["detail"] for row in subscribed} == {"one of the topics of middleware/#"}
    assert {row["filter"] for row in subscribed} == {row["filter"] for row in rows if row["kind"] == "register"}
    published = pq.read_table(folder.table(PUBLISHES)).to_pylist()
    assert {row["outcome"] for row in published} == {"acked"}
    assert all(row["structure_bytes"] > row["payload_bytes"] for row in published)
