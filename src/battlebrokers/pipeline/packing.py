"""How one expectation or arrival is folded into a few 64-bit numbers, so that millions sort and shuffle cheaply.

flow    = listener · 2^24 + device                             one publisher to one listener
message = (2^32 − 1 − seq) · 2^31 + low 31 bits of planned_ns  later ones sort first; a foreign time is another
fact    = claim·qos·settled·stamped·topic·payload              what was owed; an arrival has −1 − payload instead
arrival = (received − zero) · 16 + dup·8 + retained·4 + qos    the smallest is the first arrival
"""

from __future__ import annotations

from pyspark.sql import Column
from pyspark.sql import functions as F  # noqa: N812

DEVICE_BITS, PLANNED_BITS = 24, 31
DEVICES = 1 << DEVICE_BITS
_SEQ_MAX = (1 << 32) - 1
_PAYLOAD_BITS, _TOPIC_BITS = 30, 26
_STAMPED_AT = _PAYLOAD_BITS + _TOPIC_BITS
_SETTLED_AT, _QOS_AT, _CLAIM_AT = _STAMPED_AT + 1, _STAMPED_AT + 3, _STAMPED_AT + 5
MAX_TOPICS = 1 << _TOPIC_BITS
MAX_PAYLOAD_BYTES = (1 << _PAYLOAD_BITS) - 1

SENT, ACKED, UNACKED, REFUSED = range(4)
"""How a publish was settled."""


def flow_of(listener: Column, device: Column) -> Column:
    """Publisher and listener as one number."""
    return F.shiftleft(listener.cast("long"), DEVICE_BITS) + device


def listener_of(flow: Column) -> Column:
    """The listener of a flow."""
    return F.shiftright(flow, DEVICE_BITS).cast("int")


def device_of(flow: Column) -> Column:
    """The device of a flow."""
    return flow.bitwiseAND(F.lit(DEVICES - 1)).cast("int")


def message_of(seq: Column, planned_ns: Column) -> Column:
    """A message of a flow as one number, later ones smaller."""
    later_first = F.lit(_SEQ_MAX) - seq.bitwiseAND(F.lit(_SEQ_MAX))
    return F.shiftleft(later_first, PLANNED_BITS) + planned_ns.bitwiseAND(F.lit((1 << PLANNED_BITS) - 1))


def seq_of(message: Column) -> Column:
    """The sequence number of a message."""
    return F.lit(_SEQ_MAX) - F.shiftright(message, PLANNED_BITS)


def fact_of(
    claim: Column, qos: Column, settled: Column, stamped: Column, topic_id: Column, payload_bytes: Column
) -> Column:
    """What was owed; of several the largest counts: the strongest claim, then the highest QoS."""
    return (
        F.shiftleft(claim.cast("long"), _CLAIM_AT)
        + F.shiftleft(qos.cast("long"), _QOS_AT)
        + F.shiftleft(settled.cast("long"), _SETTLED_AT)
        + F.shiftleft(stamped.cast("long"), _STAMPED_AT)
        + F.shiftleft(topic_id.cast("long"), _PAYLOAD_BITS)
        + F.least(payload_bytes.cast("long"), F.lit(MAX_PAYLOAD_BYTES))
    )


def arrived_fact_of(payload_bytes: Column) -> Column:
    """The place of `fact` in an arrival's row: negative, so that any real fact outranks it."""
    return F.lit(-1).cast("long") - payload_bytes


def _bits(fact: Column, at: int, width: int) -> Column:
    return F.shiftright(fact, at).bitwiseAND(F.lit((1 << width) - 1)).cast("int")


def is_traced(fact: Column) -> Column:
    """Whether a publish stands behind it; if not, something arrived that nobody asked for."""
    return fact >= 0


def claim_in(fact: Column) -> Column:
    """What was owed."""
    return _bits(fact, _CLAIM_AT, 2)


def qos_in(fact: Column) -> Column:
    """The effective QoS."""
    return _bits(fact, _QOS_AT, 2)


def settled_in(fact: Column) -> Column:
    """How the publish was settled."""
    return _bits(fact, _SETTLED_AT, 2)


def stamped_in(fact: Column) -> Column:
    """Whether the payload carried our header."""
    return _bits(fact, _STAMPED_AT, 1) == 1


def topic_in(fact: Column) -> Column:
    """The topic's number; −1 for an arrival nobody asked for."""
    return F.when(is_traced(fact), _bits(fact, _PAYLOAD_BITS, _TOPIC_BITS)).otherwise(F.lit(-1))


def payload_in(fact: Column) -> Column:
    """The payload's size, whoever told it."""
    owed = fact.bitwiseAND(F.lit(MAX_PAYLOAD_BYTES))
    return F.when(is_traced(fact), owed).otherwise(F.lit(-1) - fact).cast("int")


def arrival_of(received_ns: Column, zero_ns: int, dup: Column, retained: Column, qos: Column) -> Column:
    """One arrival as a number that sorts by time."""
    flags = dup.cast("long") * 8 + retained.cast("long") * 4 + qos.cast("long")
    return F.shiftleft(received_ns - F.lit(zero_ns), 4) + flags


def received_in(arrival: Column, zero_ns: int) -> Column:
    """When it arrived."""
    return F.shiftright(arrival, 4) + F.lit(zero_ns)


def dup_in(arrival: Column) -> Column:
    """Whether it carried the DUP flag."""
    return arrival.bitwiseAND(F.lit(8)) != 0


def retained_in(arrival: Column) -> Column:
    """Whether it carried the RETAIN flag."""
    return arrival.bitwiseAND(F.lit(4)) != 0


def arrived_qos_in(arrival: Column) -> Column:
    """The QoS it arrived with."""
    return arrival.bitwiseAND(F.lit(3)).cast("int")
