"""Reason codes in words, and which packet may carry which: MQTT 3.1.1 return codes and all codes of MQTT 5.

Called by decode (to judge) and by links and reports (to speak).
"""

from __future__ import annotations


def reason_words(code: int, version: int) -> str:
    """What a CONNACK, SUBACK, … code means, in words; unknown codes are named by number."""
    raise NotImplementedError
