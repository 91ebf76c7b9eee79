"""`publishes`: one attempt to publish. Written by the stopwatch, read by the pipeline."""

from __future__ import annotations

from battlebrokers.tables.base import Column, Table

FAILURES: dict[int, str] = {
    -2: "timeout", -3: "closed", -4: "truncated", -5: "malformed", -6: "unexpected answer", -7: "TLS",
    -8: "not sent again",
    -9: "oversized",
}
"""What a negative `reason` stands for."""

PUBLISHES = Table(
    name="publishes",
    layer="recorded",
    about="One message a device owed by its plan, from the moment it became due.",
    columns=(
        Column("worker", "string", "The worker process that published."),
        Column("device", "int32", "The device's number, unique in the run (24 bits, it rides in the header)."),
        Column("seq", "int64", "The device's message counter, from 0, over all its topics."),
        Column("topic", "string", "Where it was published."),
        Column("qos", "int8", "Quality of service asked for: 0, 1 or 2."),
        Column("retain", "bool", "Whether the broker was asked to keep it."),
        Column("stamped", "bool", "Whether the payload carries our 16-byte header; if not, matching goes by topic and order."),
        Column("planned_ns", "int64", "When the plan wanted it sent (run time)."),
        Column("sent_ns", "int64", "When it was handed to the transport; null if it never was.", nullable=True),
        Column("acked_ns", "int64", "When the completion contract was met (MQTT: QoS 1 PUBACK, QoS 2 PUBCOMP; HTTP: the response; …), or the message refused or failed; null if nothing answers or nothing was seen.", nullable=True),
        Column("outcome", "string", "`sent` (nobody answers), `acked`, `refused` (the broker said no), `failed` (no proper answer), `unacked` (in flight when written; see `acks`), `unsent` (never left the device)."),
        Column("reason", "int16", "The broker's reason code or status if it gave one; of `failed`: -2 timeout, -3 closed, -4 truncated, -5 malformed, -6 unexpected, -7 TLS, -8 not sent again because the broker allows less than before.", nullable=True),
        Column("held", "string", "Why it could not leave when due: `no`, `window` (in-flight full), `socket` (broker not reading), `offline` (not connected), `away` (the plan keeps the device away); of `unsent` why it was still there when the load ended."),
        Column("retries", "int16", "How often it was sent again after a reconnect."),
        Column("payload_bytes", "int32", "Size of the payload, header included."),
        Column("structure_bytes", "int32", "Size of the structure the protocol carries for it (for plain MQTT the payload itself)."),
        Column("url_bytes", "int32", "Size of its address: the topic, or the whole URL (`http://host:port/path?query`)."),
        Column("wire_bytes", "int32", "Size of the whole protocol message as written to the transport."),
    ),
)

ACKS = Table(
    name="acks",
    layer="recorded",
    about="An acknowledgement that came after its `publishes` row was already written.",
    columns=(
        Column("worker", "string", "The worker process that saw it."),
        Column("device", "int32", "The device's number."),
        Column("seq", "int64", "The message's number."),
        Column("acked_ns", "int64", "When the completion contract was met, or the message refused or failed.", nullable=True),
        Column("outcome", "string", "`acked`, `refused` or `failed`; `resent` counts one retry and is no acknowledgement."),
        Column("reason", "int16", "As in `publishes`.", nullable=True),
    ),
)
