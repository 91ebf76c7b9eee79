"""Reason codes and properties of MQTT 5 packets: those that identify or explain, within bounds, as JSON text.

Called by the MQTT dissector. Pure functions over bytes; broken or cut properties give what stands before the fault.
"""

from __future__ import annotations

from typing import Any, Final, NamedTuple

import msgspec

from battlebrokers.dissect.mqtt_packets import length_at

TEXT_CHARACTERS: Final = 256
"""Of one text; correlation data has half as many bytes, as two digits each."""
USER_PAIRS: Final = 16
SUBSCRIPTION_IDS: Final = 16
REASONS: Final = 64
ALL_CHARACTERS: Final = 2048
"""Of all user properties of a packet together."""

_FIXED_BYTES: Final = {
    0x01: 1, 0x02: 4, 0x11: 4, 0x13: 2, 0x17: 1, 0x18: 4, 0x19: 1, 0x21: 2, 0x22: 2, 0x23: 2, 0x24: 1, 0x25: 1,
    0x27: 4, 0x28: 1, 0x29: 1, 0x2A: 1,
}  # fmt: skip
_TEXTS: Final = frozenset({0x03, 0x08, 0x09, 0x12, 0x15, 0x16, 0x1A, 0x1C, 0x1F})
_KEPT: Final = {
    0x02: "message_expiry_s", 0x08: "response_topic", 0x09: "correlation_data", 0x11: "session_expiry_s",
    0x12: "assigned_client_id", 0x1C: "server_reference", 0x1F: "reason_string", 0x23: "topic_alias",
}  # fmt: skip
_ALIAS, _CORRELATION, _SUBSCRIPTION_ID, _USER = 0x23, 0x09, 0x0B, 0x26

_MANY_BLOCKS, _SHORT_BLOCK_BYTES = 4096, 256
_BLOCKS: dict[bytes, Properties] = {}
"""Properties by their bytes; most publishers send the same again and again. So many are remembered."""


class Properties(NamedTuple):
    """What is kept of the properties of one packet."""

    alias: int
    """The topic alias; 0 if there is none."""
    text: str
    """The others as a JSON object; empty if nothing is kept."""


NO_PROPERTIES: Final = Properties(0, "")


def properties_of(block: bytes) -> Properties:
    """The properties in these bytes, without the length before them."""
    found = _BLOCKS.get(block)
    if found is None:
        kept = _read(block)
        found = Properties(kept.get("topic_alias", 0), _json(kept))
        if len(block) <= _SHORT_BLOCK_BYTES:
            if len(_BLOCKS) >= _MANY_BLOCKS:
                _BLOCKS.clear()
            _BLOCKS[block] = found
    return found


def properties_at(data: bytes, here: int, end: int) -> tuple[Properties, int]:
    """The properties whose length stands here, and where they end; the latter is -1 if the length is no length."""
    if here >= end:
        return NO_PROPERTIES, end
    length, start = length_at(data, here)
    if length < 0 or start > end:
        return NO_PROPERTIES, -1
    stop = min(end, start + length)
    return properties_of(data[start:stop]) if length else NO_PROPERTIES, stop


def with_reasons(properties: Properties, reasons: bytes) -> str:
    """The text of properties with the codes of several filters; as it is for a single one."""
    if len(reasons) < 2:
        return properties.text
    kept: dict[str, Any] = msgspec.json.decode(properties.text) if properties.text else {}
    kept["reasons"] = list(reasons[:REASONS])
    if len(reasons) > REASONS:
        kept["cut"] = True
    return _json(kept)


def _read(block: bytes) -> dict[str, Any]:
    """Names and values, until something is no property."""
    kept: dict[str, Any] = {}
    user: list[list[str]] = []
    characters, here, end = 0, 0, len(block)
    while here < end:
        identifier = block[here]
        here += 1
        size = _FIXED_BYTES.get(identifier)
        if size is not None:
            if here + size > end:
                break
            if identifier in _KEPT:
                kept.setdefault(_KEPT[identifier], int.from_bytes(block[here : here + size], "big"))
            here += size
        elif identifier == _SUBSCRIPTION_ID:
            value, here = length_at(block, here)
            if value < 0:
                break
            _append(kept, "subscription_ids", value, SUBSCRIPTION_IDS)
        elif identifier == _USER:
            name, here = _text_at(block, here)
            value_text, here = _text_at(block, here) if name is not None else (None, here)
            if name is None or value_text is None:
                break
            pair = [_shortened(name, kept), _shortened(value_text, kept)]
            characters += len(pair[0]) + len(pair[1])
            if len(user) < USER_PAIRS and characters <= ALL_CHARACTERS:
                user.append(pair)
            else:
                kept["cut"] = True
        elif identifier in _TEXTS:
            value_text, here = _text_at(block, here)
            if value_text is None:
                break
            if identifier in _KEPT and _KEPT[identifier] not in kept:
                is_bytes = identifier == _CORRELATION
                kept[_KEPT[identifier]] = _digits(value_text, kept) if is_bytes else _shortened(value_text, kept)
        else:
            break
    if user:
        kept["user"] = user
    return kept


def _text_at(block: bytes, here: int) -> tuple[bytes | None, int]:
    """The bytes whose length stands here, and where they end; None if they are not all there."""
    if here + 2 > len(block):
        return None, here
    start = here + 2
    stop = start + (block[here] << 8 | block[here + 1])
    return (block[start:stop], stop) if stop <= len(block) else (None, here)


def _shortened(words: bytes, kept: dict[str, Any]) -> str:
    text = words.decode("utf-8", "replace")
    if len(text) > TEXT_CHARACTERS:
        kept["cut"] = True
    return text[:TEXT_CHARACTERS]


def _digits(data: bytes, kept: dict[str, Any]) -> str:
    if len(data) > TEXT_CHARACTERS // 2:
        kept["cut"] = True
    return data[: TEXT_CHARACTERS // 2].hex()


def _append(kept: dict[str, Any], name: str, value: int, most: int) -> None:
    values = kept.setdefault(name, [])
    if len(values) < most:
        values.append(value)
    else:
        kept["cut"] = True


def _json(kept: dict[str, Any]) -> str:
    return msgspec.json.encode(kept).decode() if kept else ""
