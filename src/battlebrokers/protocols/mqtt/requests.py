"""SUBSCRIBE and UNSUBSCRIBE cut to the size of packet that the broker takes.

Called by the link before it asks. Pure: lengths in, places out.
"""

from __future__ import annotations

from collections.abc import Iterable

from battlebrokers.protocols.mqtt.packets import V5
from battlebrokers.protocols.mqtt.varint import encode_varint

_PACKET_ID_BYTES = 2
_LENGTH_BYTES = 2


def cut_to_size(filters: Iterable[str], each_bytes: int, version: int, most_bytes: int) -> tuple[list[range], set[int]]:
    """Which filters go into one packet of at most `most_bytes` (as runs of places), and which fit into none.

    `each_bytes` is what a filter takes besides its text. A client must not send more [MQTT-3.2.2-15].
    """
    runs: list[range] = []
    too_large: set[int] = set()
    begin = place = 0
    empty_bytes = body_bytes = _PACKET_ID_BYTES + (version == V5)
    for place, text in enumerate(filters):
        size = _LENGTH_BYTES + len(text.encode()) + each_bytes
        if _packet_bytes(empty_bytes + size) > most_bytes:
            too_large.add(place)
            _close(runs, begin, place)
            begin, body_bytes = place + 1, empty_bytes
        elif _packet_bytes(body_bytes + size) > most_bytes:
            _close(runs, begin, place)
            begin, body_bytes = place, empty_bytes + size
        else:
            body_bytes += size
    _close(runs, begin, place + 1)
    return runs, too_large


def _close(runs: list[range], begin: int, end: int) -> None:
    if begin < end:
        runs.append(range(begin, end))


def _packet_bytes(body_bytes: int) -> int:
    return 1 + len(encode_varint(body_bytes)) + body_bytes
