"""Reason codes, compared with paho's table."""

from __future__ import annotations

import pytest
from paho.mqtt.reasoncodes import ReasonCode

from battlebrokers.protocols.mqtt.packets import PacketType
from battlebrokers.protocols.mqtt.reasons import REASON_CODES, allowed_reasons, reason_words


def test_the_codes_and_their_carriers_agree_with_pahos() -> None:
    theirs = {code: {kind for kinds in names.values() for kind in kinds} for code, names in ReasonCode.names.items()}
    # The specification's table 3-1 allows 0x99 in CONNACK (a will of the wrong format); paho follows table 2-6 only.
    theirs[0x99].add(int(PacketType.CONNACK))
    assert {code: {int(kind) for kind in kinds} for code, (_, kinds) in REASON_CODES.items()} == theirs


@pytest.mark.parametrize(
    ("code", "version", "kind", "words"),
    [
        (0, 4, PacketType.CONNACK, "connection accepted"),
        (5, 4, PacketType.CONNACK, "not authorized"),
        (0x80, 4, PacketType.SUBACK, "refused"),
        (1, 4, PacketType.SUBACK, "granted QoS 1"),
        (0, 5, PacketType.CONNACK, "success"),
        (0, 5, PacketType.SUBACK, "granted QoS 0"),
        (0, 5, PacketType.DISCONNECT, "normal disconnection"),
        (0x8E, 5, PacketType.DISCONNECT, "session taken over"),
        (0x97, 5, PacketType.PUBACK, "quota exceeded"),
        (0x77, 5, PacketType.PUBACK, "unknown reason 0x77"),
        (9, 4, PacketType.CONNACK, "unknown reason 0x09"),
    ],
)
def test_codes_have_words(code: int, version: int, kind: PacketType, words: str) -> None:
    assert reason_words(code, version, kind) == words


def test_3_1_1_knows_only_return_codes() -> None:
    assert allowed_reasons(PacketType.CONNACK, 4) == set(range(6))
    assert allowed_reasons(PacketType.SUBACK, 4) == {0, 1, 2, 0x80}
    assert allowed_reasons(PacketType.PUBACK, 4) == {0}
