"""The summary of a run: the object `bb run --json` prints and `summary.json` holds, field by field.

Names are stable: others build on them; new fields may appear, none is renamed or removed within one `format`.
Pure data. In JSON an infinite percentile is null and named in `infinite`; one with too few samples is null and named
in `needed`.
"""

from __future__ import annotations

import builtins
from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta

from battlebrokers.analysis.findings import Finding

Verdict = Literal["PASS", "FAIL", "VOID"]
Level = Literal["ok", "note", "warning", "void"]
Count = Annotated[int, Meta(ge=0)]
Ms = float | None


def _about(text: str) -> Meta:
    return Meta(description=text)


class Percentiles(msgspec.Struct, frozen=True, kw_only=True):
    """One latency in milliseconds; what never arrived counts as infinitely late."""

    p50: Annotated[Ms, _about("Half of the messages were at least this fast.")] = None
    p90: Annotated[Ms, _about("90 of 100 were at least this fast.")] = None
    p95: Annotated[Ms, _about("95 of 100.")] = None
    p99: Annotated[Ms, _about("99 of 100.")] = None
    p999: Annotated[Ms, _about("999 of 1000.")] = None
    max: Annotated[Ms, _about("The slowest that arrived (exact).")] = None
    mean: Annotated[Ms, _about("Mean of those that arrived (exact).")] = None
    n: Annotated[int, _about("How many messages, those that never arrived included.")] = 0
    lost: Annotated[int, _about("How many of them never arrived.")] = 0
    infinite: Annotated[list[str], _about("Percentiles that are null because they fall among the lost.")] = []
    of_delivered: Annotated[dict[str, Ms], _about("p50 … p999 of the arrived alone; empty if all arrived.")] = {}
    needed: Annotated[
        dict[str, int],
        _about("Percentiles that are null because `n` is too small for them → the `n` each needs at 95 % confidence."),
    ] = {}
    needed_of_delivered: Annotated[dict[str, int], _about("The same for those in `of_delivered`.")] = {}


class Latencies(msgspec.Struct, frozen=True, kw_only=True):
    """All kinds of latency, in milliseconds."""

    response: Annotated[
        Percentiles, _about("Planned send time to arrival: the headline, free of coordinated omission.")
    ]
    service: Annotated[Percentiles, _about("Actual send time to arrival.")]
    lag: Annotated[Percentiles, _about("Planned to actual send, of messages nothing held: how late the generator was.")]
    publish: Annotated[Percentiles, _about("Actual send to acknowledgement (QoS 1: PUBACK, QoS 2: PUBCOMP).")]
    held: Annotated[Percentiles, _about("Planned to actual send, of messages held by window, socket or connection.")]
    last: Annotated[Percentiles, _about("Planned send to arrival at the last of all listeners of a message.")]


class Messages(msgspec.Struct, frozen=True, kw_only=True):
    """What became of the messages planned in the measure phase."""

    planned: Annotated[int, _about("Became due by the plan.")]
    sent: Annotated[int, _about("Handed to the transport.")]
    acked: Annotated[int, _about("Answered as they should be: acknowledged (QoS 1 and 2), a good response (HTTP, …).")]
    expected: Annotated[int, _about("Deliveries owed: expected = delivered + lost + overdue + indeterminate.")]
    delivered: Annotated[int, _about("Arrived at least once.")]
    lost: Annotated[int, _about("Acknowledged (or QoS 0 and sent) and never seen.")]
    overdue: Annotated[
        int,
        _about(
            "Not delivered in time: outstanding behind a gapless sequence that was still arriving when the drain ended."
        ),
    ] = 0
    indeterminate: Annotated[int, _about("Never seen, and nobody can say whether it was lost.")]
    duplicates: Annotated[int, _about("Arrivals beyond the first.")]
    reordered: Annotated[int, _about("Arrived after a later message of the same device and topic.")]
    unexpected: Annotated[int, _about("Arrivals nobody asked for.")]
    foreign: Annotated[int, _about("Of the unexpected, those this run never sent: of another run or publisher.")] = 0
    foreign_runs: Annotated[int, _about("Of the foreign, those with a header like ours: of another run.")] = 0
    wrong_topic: Annotated[
        int,
        _about("Arrivals of messages of this run on another topic than their own: neither delivered nor unexpected."),
    ] = 0
    recovered: Annotated[int, _about("Arrived though never acknowledged (part of delivered).")]
    late: Annotated[int, _about("Arrived only after the drain began (part of delivered).")]
    duplicates_flagged: Annotated[int, _about("Duplicates the broker marked with DUP.")]
    retained: Annotated[int, _about("Kept messages among the delivered.")]
    by_order: Annotated[
        int, _about("Delivered without a header, so matched by topic and order (part of delivered).")
    ] = 0
    wills: Annotated[int, _about("Arrivals that were last wills of devices or clients: owed to nobody.")] = 0
    failures: Annotated[
        dict[str, int],
        _about("Refused and failed publishes by kind: `timeout`, `closed`, `status 500`, `reason 151`, …"),
    ] = {}
    wrong_arrivals: Annotated[
        dict[str, int],
        _about(
            "What came in and was no message: `malformed` bytes, `unreadable` for the contender's file, "
            "`stray_acknowledgements` of nothing that was sent, `oversized` beyond anything the scenario can cause."
        ),
    ] = {}
    unrecorded: Annotated[
        int, _about("Arrivals that were only counted: beyond several times what the scenario can cause.")
    ] = 0


class Publishing(msgspec.Struct, frozen=True, kw_only=True):
    """How publishing went, in messages of the measure phase."""

    refused: Annotated[int, _about("The broker refused them.")]
    failed: Annotated[int, _about("No proper answer came: see `messages.failures`.")] = 0
    unacked: Annotated[int, _about("Sent, and the answer that was due never came.")]
    unsent: Annotated[int, _about("Never left the device.")]
    backlog: Annotated[
        int,
        _about(
            "Of the unsent, those the broker held (window, socket or connection) until the load was over; they count "
            "as infinitely late."
        ),
    ] = 0
    shortfall: Annotated[int, _about("Of the unsent, those nothing held: the generator did not keep up.")] = 0
    held_window: Annotated[int, _about("Waited because the in-flight window was full.")]
    held_socket: Annotated[int, _about("Waited because the broker did not read.")]
    held_offline: Annotated[int, _about("Waited because the device was not connected.")]
    retries: Annotated[int, _about("Times a message was sent again.")]
    unstamped: Annotated[int, _about("Without header, matched by topic and order.")]


class Rates(msgspec.Struct, frozen=True, kw_only=True):
    """Per second of the measure phase."""

    planned: Annotated[float, _about("Messages the plan wanted.")]
    sent: Annotated[float, _about("Messages sent.")]
    delivered: Annotated[float, _about("First arrivals during the measure phase, whenever planned.")]
    goodput_bytes: Annotated[float, _about("Payload bytes that arrived for the first time during the measure phase.")]


class Bytes(msgspec.Struct, frozen=True, kw_only=True):
    """Data volumes of the measure phase, in bytes."""

    payload: Annotated[int, _about("Payload sent.")]
    marshalled: Annotated[int, _about("The structure the protocol carries for it (for plain MQTT the payload itself).")]
    publication: Annotated[int, _about("Structure plus address (topic or URL).")]
    wire_sent: Annotated[int, _about("Protocol bytes of the published messages.")]
    wire_received: Annotated[int, _about("Protocol bytes of the deliveries.")]
    delivered: Annotated[int, _about("Payload of first arrivals.")]
    total: Annotated[int, _about("wire_sent + wire_received.")]
    useful_share: Annotated[float | None, _about("Payload bytes sent and received, as a share of total.")]


class Times(msgspec.Struct, frozen=True, kw_only=True):
    """Durations in seconds."""

    total: Annotated[float | None, _about("First send to last first-arrival, measure phase.")]
    publish: Annotated[float | None, _about("First send to last send, measure phase.")]
    connect: Annotated[float | None, _about("First connect begun to last connect answered.")]
    subscribe: Annotated[float | None, _about("First subscribe begun to last subscribe answered.")]


class Middleware(msgspec.Struct, frozen=True, kw_only=True):
    """What publishing through this contender costs, whatever it speaks; measure phase."""

    protocols: Annotated[dict[str, str], _about("Fleet or group of clients → the protocol it spoke.")]
    publish_ms: Annotated[Percentiles, _about("From sending to the answer; without samples where nobody answers.")]
    subscribe_ms: Annotated[Percentiles, _about("From asking for a topic to the answer.")]
    register_ms: Annotated[Percentiles, _about("One call that registered a topic, device or client.")]
    total_publish_s: Annotated[float | None, _about("First send to last send or answer.")]
    successful: Annotated[int, _about("Publishes that were answered well, or sent where nobody answers.")]
    failed: Annotated[int, _about("Publishes that were refused, failed, never answered or never sent.")]
    payload_bytes: Annotated[float | None, _about("Mean payload of one publish.")]
    structure_bytes: Annotated[float | None, _about("Mean size of the structure around it: the body, JSON and all.")]
    url_bytes: Annotated[float | None, _about("Mean size of the address: the whole URL, or the topic.")]
    wire_bytes: Annotated[float | None, _about("Mean bytes written for one publish, headers and all.")]
    overhead: Annotated[float | None, _about("Bytes written for every byte of payload: wire_bytes ÷ payload_bytes.")]
    traffic_bytes: Annotated[int, _about("Traffic in all: protocol bytes of all publishes and deliveries.")]
    generated_bytes_per_s: Annotated[
        float | None, _about("Generated traffic: structure bytes of all publishes ÷ total_publish_s.")
    ] = None


class Action(msgspec.Struct, frozen=True, kw_only=True):
    """Connects, subscribes, … of all fleets; times in milliseconds, of the successful ones."""

    n: Annotated[int, _about("How many were tried.")]
    failed: Annotated[int, _about("How many did not succeed.")]
    latency_ms: Annotated[Percentiles, _about("From asking to the answer.")]
    failures: Annotated[
        dict[str, int], _about("Those that did not succeed by kind: `timeout`, `closed`, `TLS`, `status 401`, …")
    ] = {}


class Group(msgspec.Struct, frozen=True, kw_only=True):
    """The ledger and latency of one publishing fleet, one listening fleet and one effective QoS."""

    fleet: Annotated[str, _about("Publishers; empty if arrivals could not be traced.")]
    client_fleet: Annotated[str, _about("Listeners.")]
    qos: Annotated[int, _about("Effective QoS.")]
    expected: int
    delivered: int
    lost: int
    overdue: int = 0
    indeterminate: int
    duplicates: int
    reordered: int
    late: int
    unexpected: int
    wrong_topic: int = 0
    promise_kept: Annotated[bool, _about("Whether every pair of device and listener got what its QoS promises.")]
    response: Annotated[Percentiles, _about("Response latency of this group.")]


class Balance(msgspec.Struct, frozen=True, kw_only=True):
    """How a shared group's messages were spread."""

    share: Annotated[str, _about("The group.")]
    members: Annotated[int, _about("Clients in it.")]
    delivered: Annotated[int, _about("Messages they took together.")]
    jain: Annotated[float | None, _about("Jain's index: 1 = even, 1/members = one took all.")]
    least: Annotated[int, _about("What the least busy member took.")]
    most: Annotated[int, _about("What the busiest took.")]


class Service(msgspec.Struct, frozen=True, kw_only=True):
    """What one service used in the measure phase."""

    service: str
    role: Annotated[str, _about("`contender`, `generator` or `host`.")]
    cpu_mean_percent: Annotated[float, _about("100 is one core.")]
    cpu_max_percent: float
    busiest_thread_mean_percent: Annotated[float, _about("Near 100: one thread is the limit.")]
    busiest_thread_max_percent: float
    rss_max_bytes: int
    received_bytes: int
    sent_bytes: int
    read_bytes: int
    written_bytes: int
    samples: int
    network_counted: Annotated[
        bool,
        _about(
            "False if received_bytes and sent_bytes lack the network: the kernel does not count what a process moves "
            "with `send` and `recv`."
        ),
    ] = True


class Check(msgspec.Struct, frozen=True, kw_only=True):
    """One question about the measurement itself."""

    id: Annotated[str, _about("Stable name, e.g. `generator-late`.")]
    level: Annotated[Level, _about("`void` voids the run; `warning` and `note` do not.")]
    sentence: Annotated[str, _about("The answer in words, with measured value and limit.")]
    measured: Annotated[float | None, _about("The value, in the unit the sentence names.")] = None
    limit: Annotated[float | None, _about("The border.")] = None


class Trust(msgspec.Struct, frozen=True, kw_only=True):
    """Whether the measurement can be believed."""

    ok: Annotated[bool, _about("False if any check voids the run.")]
    late_share: Annotated[float, _about("Share of unheld sends that were late by more than the limit.")]
    late_limit_ms: Annotated[
        float, _about("That limit: the largest of 1 ms, 10 % of the median response and 1.5 ticks.")
    ]
    lag_p99_ms: Annotated[Ms, _about("99th percentile of the generator's own lateness.")]
    generator_cpu_percent: Annotated[float | None, _about("Mean CPU of the generator's busiest thread; 100 is a core.")]
    recorder_overflow: Annotated[int, _about("Events the recorder could not keep.")]
    clock_error_us: Annotated[float | None, _about("Bound of the clock error between workers; 0 on one clock.")]
    steal_percent: Annotated[float | None, _about("Highest CPU steal seen.")]
    samples: Annotated[
        int, _about("Deliveries the percentiles rest on; sends, if nobody listens; connects, if nothing is sent.")
    ]
    steady: Annotated[bool | None, _about("Whether latency had settled; null if the window is too short to say.")]
    checks: Annotated[list[Check], _about("Every question asked, in order.")]


class Judged(msgspec.Struct, frozen=True, kw_only=True):
    """One expectation with its answer."""

    text: Annotated[str, _about("As written in the scenario, or the promise in words.")]
    ok: Annotated[bool | None, _about("True, false, or null if it could not be judged.")]
    measured: Annotated[str, _about("The measured value in words.")]
    value: Annotated[float | None, _about("The measured value as a number; null if infinite or without samples.")] = (
        None
    )
    source: Annotated[str, _about("`scenario` or `promise` (QoS; that publishes get through).")] = "scenario"


class Contender(msgspec.Struct, frozen=True, kw_only=True):
    """The broker under test."""

    name: str
    version: str
    profile: Annotated[str, _about("`stock`, `tuned` or `external`.")]


class PhaseSpan(msgspec.Struct, frozen=True, kw_only=True):
    """One phase."""

    name: str
    start_s: Annotated[float, _about("Relative to the start of the load.")]
    duration_s: float


class Summary(msgspec.Struct, frozen=True, kw_only=True):
    """A run in one object; message counts are those of the measure phase."""

    format: Annotated[int, _about("Version of this object's shape.")] = 1
    run: Annotated[str, _about("The run's id.")]
    verdict: Annotated[Verdict, _about("PASS, FAIL, or VOID: the measurement itself cannot be trusted.")]
    reasons: Annotated[list[str], _about("Why, in words with measured values; empty for a plain PASS.")]
    scenario: Annotated[str, _about("The scenario's name.")]
    title: Annotated[str, _about("That name, and what makes this not quite that scenario: scale and overrides.")]
    contender: Annotated[Contender, _about("The broker under test.")]
    messages: Annotated[Messages, _about("What became of the messages.")]
    latency_ms: Annotated[Latencies, _about("Latencies in milliseconds.")]
    rates: Annotated[Rates, _about("Per second.")]
    bytes: Annotated[Bytes, _about("Data volumes.")]
    trust: Annotated[Trust, _about("Whether the measurement can be believed.")]
    expectations: Annotated[
        list[Judged], _about("The scenario's expectations, then the QoS promises, then publishes that failed.")
    ]
    state: Annotated[
        str,
        _about(
            "`finished`, `interrupted`, `broker-failed`, `failed` or `killed`; `starting` or `running` where it cannot "
            "be known whether it was killed."
        ),
    ]
    started: Annotated[str, _about("When the run began, ISO 8601, UTC.")]
    duration_s: Annotated[float, _about("Of the whole run, first phase to last.")]
    seed: int
    plan_sha256: Annotated[str, _about("Equal hashes: equal plans, byte for byte.")]
    devices: Annotated[int, _about("Devices that connected or tried to.")]
    clients: Annotated[int, _about("Clients that connected or tried to.")]
    phases: list[PhaseSpan]
    publishing: Publishing
    times_s: Times
    actions: Annotated[dict[str, Action], _about("By kind: connect, subscribe, …")]
    groups: Annotated[list[Group], _about("By publishing fleet, listening fleet and effective QoS.")]
    balance: Annotated[list[Balance], _about("Shared groups.")]
    services: Annotated[list[Service], _about("What each service used in the measure phase.")]
    middleware: Annotated[Middleware | None, _about("What publishing through this contender costs.")] = None
    findings: Annotated[
        list[Finding], _about("What a reader should know, the gravest first; also in `findings.json`.")
    ] = []
    battle: Annotated[dict[str, Any] | None, _about("The battle it belongs to: id, block, order.")] = None
    tags: dict[str, str] = {}

    def to_json(self) -> builtins.bytes:
        """What `bb run --json` prints: indented, one trailing newline."""
        return msgspec.json.format(msgspec.json.encode(self), indent=2) + b"\n"

    def to_json_line(self) -> builtins.bytes:
        """The same object in one line, where several follow each other."""
        return msgspec.json.encode(self) + b"\n"


def summary_schema() -> dict[str, Any]:
    """The JSON Schema of `summary.json`, each field with its sentence."""
    schema = msgspec.json.schema(Summary)
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", "title": "BattleBrokers run summary", **schema}
