"""The measures: what the pipeline adds up from recorded evidence and journeys. Read by `analysis` and `report`.

Latencies are stored as mergeable bucket rows, never as percentiles: add `n` over any grouping, then walk the
buckets. A bucket holds values within 1 % of each other; `sum_ns` and `max_ns` keep mean and maximum exact.
"""

from __future__ import annotations

import math

from battlebrokers.tables.base import Column, Table

BUCKET_GAMMA = 1.01 / 0.99
"""Ratio between the borders of neighbouring buckets."""
BUCKET_TINY = -1
"""Bucket of values under one microsecond, negative ones included: shown, never hidden."""
BUCKET_LOST = 2_147_483_647
"""Bucket of messages that never arrived (lost, overdue or indeterminate), or never left: infinitely late."""


def bucket_of(latency_ns: float) -> int:
    """The bucket of a latency in nanoseconds; the same formula as the pipeline's SQL."""
    micros = latency_ns / 1000.0
    return BUCKET_TINY if micros < 1 else math.ceil(math.log(micros) / math.log(BUCKET_GAMMA))


def bucket_value_ns(bucket: int) -> float:
    """The representative value of a bucket in nanoseconds (within 1 % of every value in it)."""
    if bucket == BUCKET_LOST:
        return math.inf
    if bucket == BUCKET_TINY:
        return 0.0
    return 2000.0 * BUCKET_GAMMA**bucket / (BUCKET_GAMMA + 1)


LATENCIES = Table(
    name="latencies",
    layer="measures",
    about="How many messages fell into one latency bucket, per kind, phase, second, fleets and QoS.",
    columns=(
        Column(
            "kind",
            "string",
            "`response` (planned to received; a message of the backlog never is), `service` (sent to received), `lag` (planned to sent, messages not held by broker or window), `held` (planned to sent, held ones), `publish` (sent to acknowledged), `last` (planned to the last of all listeners of one message).",
        ),
        Column("phase", "string", "Phase of the planned time."),
        Column("second", "int32", "Whole seconds from the start of the load to the planned time."),
        Column("fleet", "string", "The publishers' fleet."),
        Column("client_fleet", "string", "The listeners' fleet; empty for `lag`, `held`, `publish`, `last`."),
        Column("qos", "int8", "Effective QoS (published QoS for `lag`, `held`, `publish`)."),
        Column("bucket", "int32", "Bucket number; -1 under a microsecond, 2147483647 never arrived."),
        Column("n", "int64", "How many."),
        Column("sum_ns", "float64", "Their exact sum in nanoseconds (0 for never arrived)."),
        Column("min_ns", "int64", "The smallest of them.", nullable=True),
        Column("max_ns", "int64", "The largest of them.", nullable=True),
    ),
)

LEDGER = Table(
    name="ledger",
    layer="measures",
    about="What became of the messages between one device and one listener on one topic.",
    columns=(
        Column("phase", "string", "Phase of the planned time."),
        Column("fleet", "string", "The publisher's fleet; empty if unknown."),
        Column("device", "int32", "The publisher; -1 if unknown."),
        Column("client_fleet", "string", "The listener's fleet."),
        Column("share", "string", "The shared group; null for an ordinary client.", nullable=True),
        Column("client", "int32", "The client; -1 for a shared group."),
        Column("topic", "string", "The topic.", nullable=True),
        Column("qos", "int8", "Effective QoS."),
        Column(
            "expected",
            "int64",
            "Messages this listener should get: expected = delivered + lost + overdue + indeterminate.",
        ),
        Column("delivered", "int64", "Arrived at least once."),
        Column("lost", "int64", "Acknowledged (or QoS 0 and sent) and never seen."),
        Column(
            "overdue",
            "int64",
            "Not delivered in time: outstanding behind a gapless sequence that was still arriving when the drain ended.",
        ),
        Column("indeterminate", "int64", "Never seen, and nobody can say whether it was lost."),
        Column("recovered", "int64", "Arrived though not acknowledged (part of delivered)."),
        Column("duplicates", "int64", "Further arrivals beyond the first."),
        Column("duplicates_flagged", "int64", "Those that carried the DUP flag."),
        Column("unexpected", "int64", "Arrivals nobody asked for."),
        Column("foreign", "int64", "Of the unexpected, those this run never sent: of another run or publisher."),
        Column("foreign_runs", "int64", "Of the foreign, those with a header like ours: of another run."),
        Column(
            "wrong_topic",
            "int64",
            "Arrivals of messages of this run on another topic than they were published on; they count as delivered nowhere.",
        ),
        Column("wills", "int64", "Arrivals that were the last will of a device or client."),
        Column("late", "int64", "Arrived only after the drain began (part of delivered)."),
        Column("reordered", "int64", "Arrived after a later message (part of delivered)."),
        Column("retained", "int64", "Kept messages among the delivered."),
        Column("by_order", "int64", "Matched by topic and order, for want of a header (part of delivered)."),
        Column("payload_bytes", "int64", "Payload bytes delivered, first arrivals only."),
        Column(
            "in_measure",
            "int64",
            "First arrivals that came while the measure phase lasted, whatever the phase of their planned time.",
        ),
        Column("in_measure_bytes", "int64", "Payload bytes of those."),
        Column(
            "promise_kept",
            "bool",
            "Whether the QoS promise held: QoS 1 lost = 0; QoS 2 lost = 0 and no duplicates; QoS 0 promises nothing.",
        ),
    ),
)

TIMELINE = Table(
    name="timeline",
    layer="measures",
    about="One second of the load, per publishing fleet (sending side) or listening fleet (receiving side).",
    columns=(
        Column(
            "second", "int32", "Whole seconds since the start of the load; sending by sent time, receiving by arrival."
        ),
        Column("phase", "string", "The phase that second began in."),
        Column("side", "string", "`publish` or `deliver`."),
        Column("fleet", "string", "The fleet on that side."),
        Column("messages", "int64", "Messages sent, or arrivals received (duplicates included)."),
        Column("payload_bytes", "int64", "Their payload bytes."),
        Column("wire_bytes", "int64", "Their bytes on the protocol's wire."),
        Column("planned", "int64", "Messages the plan wanted in that second (publish side)."),
        Column("unsent", "int64", "Of the planned, how many never left (publish side)."),
        Column(
            "held", "int64", "Of the planned, how many had to wait for window, socket or connection (publish side)."
        ),
        Column(
            "in_flight",
            "int64",
            "Deliveries still owed at the end of that second: expected so far minus delivered so far (deliver side).",
        ),
        Column(
            "queued",
            "int64",
            "Of those in flight, the ones that arrived later or were overdue: what the broker had yet to deliver (deliver side).",
        ),
    ),
)

ACTIONS = Table(
    name="actions",
    layer="measures",
    about="Connects, subscribes and other operations of one fleet, added up.",
    columns=(
        Column("role", "string", "`device` or `client`."),
        Column("fleet", "string", "The fleet."),
        Column("kind", "string", "As in `operations`."),
        Column("outcome", "string", "As in `operations`."),
        Column("n", "int64", "How many."),
        Column("first_ns", "int64", "When the first began."),
        Column("last_ns", "int64", "When the last ended, or began if it never did."),
        Column("mean_ns", "float64", "Mean duration.", nullable=True),
        Column("p50_ns", "float64", "Exact median duration.", nullable=True),
        Column("p99_ns", "float64", "Exact 99th percentile.", nullable=True),
        Column("max_ns", "int64", "Longest.", nullable=True),
    ),
)

PUBLISHING = Table(
    name="publishing",
    layer="measures",
    about="What one fleet published in one phase, added up.",
    columns=(
        Column("phase", "string", "Phase of the planned time."),
        Column("fleet", "string", "The fleet."),
        Column("qos", "int8", "Published QoS."),
        Column("planned", "int64", "Messages that became due."),
        Column("sent", "int64", "Messages handed to the transport."),
        Column("acked", "int64", "Messages whose completion contract was met."),
        Column("refused", "int64", "Messages the broker refused."),
        Column("failed", "int64", "Messages that got no proper answer."),
        Column("unacked", "int64", "Sent, and the answer that was due never came."),
        Column("unsent", "int64", "Messages that never left."),
        Column(
            "backlog",
            "int64",
            "Of the unsent, those the broker held (window, socket or connection) until the load was over; not those due in its last 250 ms.",
        ),
        Column("shortfall", "int64", "Of the unsent, those nothing held: our own generator did not keep up."),
        Column("held_window", "int64", "Messages that waited because the in-flight window was full."),
        Column("held_socket", "int64", "Messages that waited because the broker did not read."),
        Column(
            "held_offline",
            "int64",
            "Messages that waited because the device was not connected, planned absence included.",
        ),
        Column("retries", "int64", "Times a message was sent again."),
        Column("unstamped", "int64", "Messages without header (too small or not wanted), matched by topic and order."),
        Column("payload_bytes", "int64", "Payload bytes of the sent ones."),
        Column("structure_bytes", "int64", "Structure bytes of the sent ones."),
        Column("url_bytes", "int64", "Address bytes of the sent ones."),
        Column("wire_bytes", "int64", "Protocol bytes of the sent ones."),
        Column("first_sent_ns", "int64", "First send.", nullable=True),
        Column("last_sent_ns", "int64", "Last send.", nullable=True),
        Column("last_acked_ns", "int64", "Last answer, good or bad.", nullable=True),
        Column(
            "last_received_ns",
            "int64",
            "Last first-arrival of any of them: total time runs from first send to here.",
            nullable=True,
        ),
    ),
)

FAILURES = Table(
    name="failures",
    layer="measures",
    about="Messages of one fleet that were refused or failed for one reason.",
    columns=(
        Column("phase", "string", "Phase of the planned time."),
        Column("fleet", "string", "The fleet."),
        Column("outcome", "string", "`refused` or `failed`."),
        Column("reason", "int16", "As in `publishes`.", nullable=True),
        Column("n", "int64", "How many."),
    ),
)

BALANCE = Table(
    name="balance",
    layer="measures",
    about="How a shared group's messages were spread over its members.",
    columns=(
        Column("share", "string", "The group."),
        Column("client", "int32", "The member."),
        Column("client_fleet", "string", "Its fleet."),
        Column("delivered", "int64", "First arrivals it took in the measure phase."),
    ),
)

SERVICES = Table(
    name="services",
    layer="measures",
    about="What one service used in one phase.",
    columns=(
        Column("service", "string", "The service."),
        Column("role", "string", "`contender`, `generator`, `host` or `observed`."),
        Column("phase", "string", "The phase."),
        Column("samples", "int64", "How many samples."),
        Column("cpu_mean_percent", "float64", "Mean CPU; 100 is one core.", nullable=True),
        Column("cpu_max_percent", "float64", "Highest sample.", nullable=True),
        Column("busiest_thread_mean_percent", "float64", "Mean CPU of the busiest thread.", nullable=True),
        Column("busiest_thread_max_percent", "float64", "Highest sample of the busiest thread.", nullable=True),
        Column("rss_max_bytes", "int64", "Highest resident memory.", nullable=True),
        Column("read_bytes", "int64", "Disk bytes read in the phase."),
        Column("written_bytes", "int64", "Disk bytes written in the phase."),
        Column("received_bytes", "int64", "Bytes received in the phase."),
        Column("sent_bytes", "int64", "Bytes sent in the phase."),
        Column("open_files_max", "int32", "Most open files.", nullable=True),
        Column("steal_max_percent", "float64", "Highest steal (host only).", nullable=True),
    ),
)
