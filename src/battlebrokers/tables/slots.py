"""What was due and what arrived in each tenth of a second of a run: fine enough to see a broker stop for a moment."""

from __future__ import annotations

from battlebrokers.clock import SECOND_NS
from battlebrokers.tables.base import Column, Table

SLOT_NS = SECOND_NS // 10
"""How long a slot is."""

SLOTS = Table(
    name="slots",
    layer="measures",
    about="One tenth of a second of one listening fleet; only those in which something was due or arrived.",
    columns=(
        Column("slot", "int64", "Whole tenths of a second from the start of the load; negative before it."),
        Column("client_fleet", "string", "The listeners' fleet."),
        Column("planned", "int64", "Deliveries owed whose message was planned in that slot, kept messages left out."),
        Column("sent", "int64", "The same, whose message was sent in that slot."),
        Column("arrived", "int64", "Messages that arrived in that slot, copies and unexpected ones left out."),
        Column("first_ns", "int64", "When the first of them arrived.", nullable=True),
        Column("last_ns", "int64", "When the last of them arrived.", nullable=True),
    ),
)
