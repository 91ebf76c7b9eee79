"""The contract between those who record, those who compute and those who tell: every table, column by column."""

from __future__ import annotations

from battlebrokers.tables.base import LAYERS, Column, Table
from battlebrokers.tables.deliveries import DELIVERIES
from battlebrokers.tables.followed import ALONE, FOLLOWED, SERVICE_PEERS
from battlebrokers.tables.journeys import JOURNEYS
from battlebrokers.tables.measures import ACTIONS, BALANCE, FAILURES, LATENCIES, LEDGER, PUBLISHING, SERVICES, TIMELINE
from battlebrokers.tables.messages import EXCHANGES, MESSAGES
from battlebrokers.tables.operations import NODES, OPERATIONS
from battlebrokers.tables.packets import PACKETS
from battlebrokers.tables.publishes import ACKS, PUBLISHES
from battlebrokers.tables.resources import CLOCKS, RESOURCES, SOCKETS
from battlebrokers.tables.slots import SLOTS
from battlebrokers.tables.streams import STREAMS
from battlebrokers.tables.wire import ENDINGS, EXAMPLES, HOPS, KINDS, PASSAGES, RESPONSES, TRAFFIC

RECORDED = (PUBLISHES, ACKS, DELIVERIES, OPERATIONS, NODES, RESOURCES, SOCKETS, CLOCKS)
DERIVED = (JOURNEYS, LATENCIES, LEDGER, TIMELINE, SLOTS, PUBLISHING, FAILURES, ACTIONS, BALANCE, SERVICES)
DECODED = (PACKETS, STREAMS, MESSAGES, EXCHANGES)
WIRE = (HOPS, FOLLOWED, SERVICE_PEERS, RESPONSES, TRAFFIC, KINDS, PASSAGES, ENDINGS, EXAMPLES)
ALL_TABLES = tuple(sorted(RECORDED + DECODED + DERIVED + WIRE, key=lambda table: LAYERS.index(table.layer)))

__all__ = [
    "ACKS",
    "ACTIONS",
    "ALL_TABLES",
    "ALONE",
    "BALANCE",
    "CLOCKS",
    "DECODED",
    "DELIVERIES",
    "DERIVED",
    "ENDINGS",
    "EXAMPLES",
    "EXCHANGES",
    "FAILURES",
    "FOLLOWED",
    "HOPS",
    "JOURNEYS",
    "KINDS",
    "LATENCIES",
    "LEDGER",
    "MESSAGES",
    "NODES",
    "OPERATIONS",
    "PACKETS",
    "PASSAGES",
    "PUBLISHES",
    "PUBLISHING",
    "RECORDED",
    "RESOURCES",
    "RESPONSES",
    "SERVICES",
    "SERVICE_PEERS",
    "SLOTS",
    "SOCKETS",
    "STREAMS",
    "TIMELINE",
    "TRAFFIC",
    "WIRE",
    "Column",
    "Table",
]  # fmt: skip
