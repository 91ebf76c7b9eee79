"""MQTT as tshark tells it: the names of packets, and how long acknowledgements took."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from support.wiretap import nanoseconds

KINDS = {
    1: "CONNECT", 2: "CONNACK", 3: "PUBLISH", 4: "PUBACK", 5: "PUBREC", 6: "PUBREL", 7: "PUBCOMP", 8: "SUBSCRIBE",
    9: "SUBACK", 10: "UNSUBSCRIBE", 11: "UNSUBACK", 12: "PINGREQ", 13: "PINGRESP", 14: "DISCONNECT",
}  # fmt: skip


def acknowledged_after_ns(rows: Iterable[Mapping[str, list[str]]], port: int) -> list[int]:
    """How long after each PUBLISH its PUBACK or PUBREC came; only frames with one packet tell that without doubt."""
    sent: dict[tuple[str, str, bool], int] = {}
    delays = []
    for row in rows:
        if len(row["mqtt.msgtype"]) != 1 or not row["mqtt.msgid"]:
            continue
        kind, now = KINDS[int(row["mqtt.msgtype"][0])], nanoseconds(row["frame.time_epoch"][0])
        stream, packet_id, from_broker = row["tcp.stream"][0], row["mqtt.msgid"][0], row["tcp.srcport"][0] == str(port)
        if kind == "PUBLISH":
            sent[stream, packet_id, from_broker] = now
        elif kind in ("PUBACK", "PUBREC") and (stream, packet_id, not from_broker) in sent:
            delays.append(now - sent.pop((stream, packet_id, not from_broker)))
    return delays
