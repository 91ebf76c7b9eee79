"""Counts, rates, volumes and times of the measure phase, added up from the measures. Pure: facts in, figures out."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from battlebrokers.analysis.attempts import failed_attempts, failures_of, wrong_arrivals
from battlebrokers.analysis.columns import numbers_of, sums_by
from battlebrokers.analysis.facts import MEASURE, Facts, total, where
from battlebrokers.analysis.latency import LEVELS, missing_samples, percentiles
from battlebrokers.analysis.middleware import failures
from battlebrokers.analysis.model import (
    Action,
    Balance,
    Bytes,
    Group,
    Messages,
    Percentiles,
    Publishing,
    Rates,
    Service,
    Times,
)
from battlebrokers.analysis.quantiles import Distribution, distributions, rank_of
from battlebrokers.analysis.strays import count_unrecorded
from battlebrokers.clock import MILLISECOND_NS, SECOND_NS

_LEDGER_COUNTS = (
    "expected", "delivered", "lost", "overdue", "indeterminate", "duplicates", "reordered", "late", "unexpected",
    "wrong_topic",
)  # fmt: skip
_MORE_COUNTS = ("recovered", "duplicates_flagged", "retained", "wills", "by_order", "foreign", "foreign_runs")


def messages(facts: Facts) -> Messages:
    """What became of the messages."""
    sending, ledger = where(facts.publishing, phase=MEASURE), where(facts.ledger, phase=MEASURE)
    return Messages(
        **{name: total(sending, name) for name in ("planned", "sent", "acked")},
        **{name: total(ledger, name) for name in (*_LEDGER_COUNTS, *_MORE_COUNTS)},
        failures=failures(facts),
        wrong_arrivals=wrong_arrivals(facts),
        unrecorded=count_unrecorded(facts),
    )


def publishing(facts: Facts) -> Publishing:
    """How publishing went."""
    rows = where(facts.publishing, phase=MEASURE)
    return Publishing(**{name: total(rows, name) for name in Publishing.__struct_fields__})


def rates(facts: Facts) -> Rates:
    """Per second of the measure phase; 0 if there was none. Deliveries count by their arrival, not by their plan."""
    sending = where(facts.publishing, phase=MEASURE)

    def per_second(count: int) -> float:
        return round(count / facts.measure_s, 3) if facts.measure_s > 0 else 0.0

    return Rates(
        planned=per_second(total(sending, "planned")),
        sent=per_second(total(sending, "sent")),
        delivered=per_second(total(facts.ledger, "in_measure")),
        goodput_bytes=per_second(total(facts.ledger, "in_measure_bytes")),
    )


def volumes(facts: Facts) -> Bytes:
    """Data volumes: the sending side by planned phase, the receiving side by time of arrival."""
    sending, ledger = where(facts.publishing, phase=MEASURE), where(facts.ledger, phase=MEASURE)
    receiving = where(facts.timeline, phase=MEASURE, side="deliver")
    payload, wire_sent = total(sending, "payload_bytes"), total(sending, "wire_bytes")
    structure = total(sending, "structure_bytes")
    wire_received = total(receiving, "wire_bytes")
    wire = wire_sent + wire_received
    useful = payload + total(receiving, "payload_bytes")
    return Bytes(
        payload=payload,
        marshalled=structure,
        publication=structure + total(sending, "url_bytes"),
        wire_sent=wire_sent,
        wire_received=wire_received,
        delivered=total(ledger, "payload_bytes"),
        total=wire,
        useful_share=round(useful / wire, 4) if wire else None,
    )


def times(facts: Facts) -> Times:
    """Total, publish, connect and subscribe time."""
    rows = where(facts.publishing, phase=MEASURE)
    first = pc.min(rows["first_sent_ns"]).as_py()

    def connecting(kind: str) -> float | None:
        done = where(facts.actions, kind=kind, outcome="ok")
        return _seconds(pc.min(done["first_ns"]).as_py(), pc.max(done["last_ns"]).as_py())

    return Times(
        total=_seconds(first, pc.max(rows["last_received_ns"]).as_py()),
        publish=_seconds(first, pc.max(rows["last_sent_ns"]).as_py()),
        connect=connecting("connect"),
        subscribe=connecting("subscribe"),
    )


def actions(facts: Facts) -> dict[str, Action]:
    """Connects, subscribes, … by kind, timed exactly from the recorded operations."""
    found, attempts = {}, failed_attempts(facts)
    for kind in sorted(set(facts.actions["kind"].to_pylist())):
        rows = where(facts.actions, kind=kind)
        good = where(rows, outcome="ok")
        found[kind] = Action(
            n=total(rows, "n"),
            failed=total(rows, "n") - total(good, "n"),
            latency_ms=_action_percentiles(facts, kind, good),
            failures=failures_of(attempts, kind),
        )
    return found


def _action_percentiles(facts: Facts, kind: str, good: pa.Table) -> Percentiles:
    recorded = where(facts.operations, kind=kind, outcome="ok")
    took_ns = np.sort(numbers_of(pc.subtract(recorded["ended_ns"], recorded["started_ns"]).drop_null()))
    if not len(took_ns):  # the evidence is gone: percentiles of several fleets cannot be merged, the slowest is safe
        n = total(good, "n")
        needed = missing_samples(n)
        p50, p99 = (
            None if name in needed else _milliseconds(pc.max(good[f"{name}_ns"]).as_py()) for name in ("p50", "p99")
        )
        return Percentiles(p50=p50, p99=p99, max=_milliseconds(pc.max(good["max_ns"]).as_py()), n=n, needed=needed)
    needed = missing_samples(len(took_ns))
    stated: dict[str, Any] = {
        name: None if name in needed else _milliseconds(float(took_ns[rank_of(p, len(took_ns)) - 1]))
        for name, p in LEVELS.items()
    }
    return Percentiles(
        **stated,
        max=_milliseconds(float(took_ns[-1])),
        mean=_milliseconds(float(took_ns.mean())),
        n=len(took_ns),
        lost=0,
        infinite=[],
        of_delivered={},
        needed=needed,
    )


def groups(facts: Facts) -> list[Group]:
    """The ledger by publishing fleet, listening fleet and effective QoS."""
    keys = ["fleet", "client_fleet", "qos"]
    ledger = where(facts.ledger, phase=MEASURE)
    if ledger.num_rows == 0:
        return []
    ledger = ledger.append_column("broken", pc.invert(ledger["promise_kept"]))
    response = distributions(where(facts.latencies, phase=MEASURE, kind="response"), keys)
    found = []
    for row in sums_by(ledger, keys, (*_LEDGER_COUNTS, "broken")):
        if not any(row[name] for name in _LEDGER_COUNTS):
            continue  # nothing but last wills
        key = (row["fleet"], row["client_fleet"], row["qos"])
        found.append(
            Group(
                fleet=row["fleet"],
                client_fleet=row["client_fleet"],
                qos=row["qos"],
                **{name: row[name] for name in _LEDGER_COUNTS},
                promise_kept=not row["broken"],
                response=percentiles(response.get(key, Distribution.empty())),
            )
        )
    return found


def balance(facts: Facts) -> list[Balance]:
    """How shared groups spread their messages."""
    found = []
    for share in sorted(set(facts.balance["share"].to_pylist())):
        took = where(facts.balance, share=share)["delivered"].to_pylist()
        found.append(
            Balance(
                share=share, members=len(took), delivered=sum(took), jain=jain(took), least=min(took), most=max(took)
            )
        )
    return found


def jain(shares: list[int]) -> float | None:
    """Jain's fairness index: 1 when all are equal, 1/n when one has everything, None when there is nothing."""
    squares = sum(share * share for share in shares)
    return round(sum(shares) ** 2 / (len(shares) * squares), 4) if squares else None


def services(facts: Facts, moved: Bytes) -> list[Service]:
    """What each service used, the contender's first; `moved` is what went through the contender."""
    order = {"contender": 0, "generator": 1, "host": 2}
    # What Prometheus or sar told may lack any figure; it is in the tables and charts.
    rows = [row for row in where(facts.services, phase=MEASURE).to_pylist() if row["role"] != "observed"]
    rows.sort(key=lambda row: (order.get(row["role"], 3), row["service"]))
    counted = {role: _counts_network([row for row in rows if row["role"] == role], moved) for role in order}
    names = [name for name in Service.__struct_fields__ if name != "network_counted"]
    return [
        Service(**{name: row[name] for name in names}, network_counted=counted.get(row["role"], True)) for row in rows
    ]


_LEAST_COUNTED = 0.1
"""A second of samples at either end of the phase is easily missed, but not nine tenths of all."""


def _counts_network(rows: list[dict[str, Any]], moved: Bytes) -> bool:
    """Whether these services, of one role, were seen to move about as much as they must have moved."""
    if not rows or rows[0]["role"] == "host":
        return True
    seen = sum((row["received_bytes"] or 0) + (row["sent_bytes"] or 0) for row in rows)
    return seen >= _LEAST_COUNTED * moved.total


def count_nodes(facts: Facts, role: str) -> int:
    """How many devices or clients took part."""
    nodes: pa.Table = where(facts.nodes, role=role)
    return int(pc.count_distinct(nodes["node"]).as_py()) if nodes.num_rows else 0


def _seconds(start_ns: int | None, end_ns: int | None) -> float | None:
    return None if start_ns is None or end_ns is None else round((end_ns - start_ns) / SECOND_NS, 4)


def _milliseconds(value_ns: float | None) -> float | None:
    return None if value_ns is None else round(value_ns / MILLISECOND_NS, 4)
