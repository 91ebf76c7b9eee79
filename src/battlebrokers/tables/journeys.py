"""`journeys`: one published message to one client (or shared group). Computed by the pipeline."""

from __future__ import annotations

from battlebrokers.tables.base import Column, Table

JOURNEYS = Table(
    name="journeys",
    layer="journeys",
    about="One published message on its way to one listener (a client, or a shared group as a whole).",
    columns=(
        Column("device", "int32", "The publisher; -1 when an arrival could not be traced to one."),
        Column("seq", "int64", "The message's number; -1 likewise."),
        Column("topic", "string", "The topic; null only for arrivals that could not be traced.", nullable=True),
        Column(
            "share", "string", "The shared group the expectation is for; null for an ordinary client.", nullable=True
        ),
        Column("client", "int32", "The client; for a shared group the member that received it, -1 if none did."),
        Column("fleet", "string", "The publisher's fleet; null if unknown.", nullable=True),
        Column("client_fleet", "string", "The listener's fleet."),
        Column("qos", "int8", "Effective QoS: the lower of published and granted."),
        Column(
            "phase", "string", "The phase its planned time falls into; for untraced arrivals the phase of the arrival."
        ),
        Column("second", "int32", "Whole seconds from the start of the load to the planned time."),
        Column("planned_ns", "int64", "Planned send time.", nullable=True),
        Column("sent_ns", "int64", "Actual send time.", nullable=True),
        Column("acked_ns", "int64", "When the publisher's completion contract was met.", nullable=True),
        Column("received_ns", "int64", "First arrival; null if none.", nullable=True),
        Column(
            "outcome",
            "string",
            "`delivered`, `lost` (acknowledged, or QoS 0 and sent, never seen), `overdue` (never seen, behind a gapless sequence that was still arriving when the drain ended), `indeterminate` (never seen, and nobody can say whether it was lost: unacknowledged, or missing behind a gap of a sequence that was still arriving), `unexpected` (arrived though nobody asked), `wrong_topic` (arrived on another topic than it was published on, which is then the `topic` here; the message itself has a journey of its own), `will` (the last will of a device or client, owed to nobody).",
        ),
        Column(
            "doubtful",
            "bool",
            "Never seen, and nobody can say whether it should have come: sent while the subscription or session began or ended, or just before the run was interrupted. Such a message has no latency; all others never seen are infinitely late.",
        ),
        Column("recovered", "bool", "Delivered though never acknowledged to the publisher."),
        Column("late", "bool", "Delivered only after the drain began."),
        Column("reordered", "bool", "Arrived after a later message of the same device, topic and listener."),
        Column("duplicates", "int32", "Further arrivals beyond the first."),
        Column("duplicates_flagged", "int32", "Those of them that carried the DUP flag."),
        Column("retained", "bool", "Delivered because the broker kept it, to a client that subscribed later."),
        Column(
            "matched_by", "string", "`header` or `order` (payload too small for a header: n-th sent to n-th received)."
        ),
        Column("payload_bytes", "int32", "Size of the payload."),
    ),
)
