"""`deliveries`: one arrival at a client. Written by the stopwatch, read by the pipeline."""

from __future__ import annotations

from battlebrokers.tables.base import Column, Table

DELIVERIES = Table(
    name="deliveries",
    layer="recorded",
    about="One message as it arrived at one client; duplicates are rows of their own.",
    columns=(
        Column("worker", "string", "The worker process that received it."),
        Column("client", "int32", "The client's number, unique in the run."),
        Column("device", "int32", "The publisher's number from the header; -1 if the payload carries none."),
        Column("seq", "int64", "The message's number from the header; -1 if there is none."),
        Column("planned_ns", "int64", "The planned send time from the header (run time); null if there is none.", nullable=True),
        Column("received_ns", "int64", "When the bytes that completed it reached the client (run time); messages that came in one chunk follow each other by a nanosecond."),
        Column("topic", "string", "Its topic; null when the header identifies the message already and it came on the topic planned for it (or its protocol cannot tell).", nullable=True),
        Column("qos", "int8", "Quality of service of this delivery."),
        Column("dup", "bool", "Whether the broker marked it as sent again."),
        Column("retained", "bool", "Whether the broker marked it as a kept message."),
        Column("payload_bytes", "int32", "Size of the payload."),
        Column("wire_bytes", "int32", "Size of the whole protocol message."),
    ),
)
