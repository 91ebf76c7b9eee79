"""`operations` and `nodes`: what devices and clients did besides messages, and who they are."""

from __future__ import annotations

from battlebrokers.tables.base import Column, Table

OPERATIONS = Table(
    name="operations",
    layer="recorded",
    about="One connect, subscribe, register, … with its start, end and outcome.",
    columns=(
        Column("worker", "string", "The worker process it ran in; `orchestrator` for what the controller did."),
        Column("role", "string", "`device` or `client`; what the controller did: also `resource`, `attribute` (topics) and `controller` (itself)."),
        Column("node", "int32", "The device's or client's number; of a resource or attribute its place in the plan."),
        Column("kind", "string", "`connect`, `subscribe`, `unsubscribe`, `disconnect`, `lost` (the connection broke); of the controller, each one HTTP request: `login`, `register`, `list`, `remove`."),
        Column("started_ns", "int64", "When it began (run time); of a first connect at a planned rate, when it was due."),
        Column("ended_ns", "int64", "When it was answered or given up; null if the run ended first.", nullable=True),
        Column("outcome", "string", "`ok`, `refused`, `timeout`, `error`."),
        Column("reason", "int16", "The broker's reason code or HTTP status if it gave one; without a proper answer: -2 timeout, -3 closed, -4 truncated, -5 malformed, -6 unexpected, -7 TLS.", nullable=True),
        Column("detail", "string", "What went wrong, the filter a spelled-out topic stands for, or how many a `list` found; else empty."),
        Column("filter", "string", "The topic filter of a subscribe, without the share prefix, or the topic of a resource (with a data model the name of the resource); null otherwise.", nullable=True),
        Column("share", "string", "The shared-subscription group; null when not shared.", nullable=True),
        Column("asked_qos", "int8", "QoS asked for in a subscribe.", nullable=True),
        Column("granted_qos", "int8", "QoS the broker granted.", nullable=True),
        Column("session_present", "bool", "Whether the broker still had the session at connect.", nullable=True),
        Column("persistent", "bool", "Whether the session outlives the connection and is taken up again."),
        Column("session_expiry_s", "int64", "How long it does, in seconds: as asked for, or as the broker said; null if it has no end, or there is none to outlive.", nullable=True),
        Column("attempt", "int16", "1 for the first try, counting up with each reconnect."),
    ),
)

NODES = Table(
    name="nodes",
    layer="recorded",
    about="One device or client of the run.",
    columns=(
        Column("role", "string", "`device` or `client`."),
        Column("node", "int32", "Its number; devices and clients count apart."),
        Column("name", "string", "Its name, `fleet-index`."),
        Column("fleet", "string", "The fleet it belongs to."),
        Column("protocol", "string", "The protocol it speaks, e.g. `mqtt 3.1.1 tcp`."),
        Column("will_topic", "string", "Where the broker publishes its last will; null if it has none.", nullable=True),
        Column("worker", "string", "The worker process it lived in."),
    ),
)
