"""SIGINT once and twice, SIGTERM and SIGHUP for `bb`, in every phase."""

from __future__ import annotations

import signal
import time
from typing import Final

from chaos.fault import Fault, Must, Seen
from chaos.groups.kills import started, with_evidence
from chaos.place import Place

_SECOND_S: Final = 0.3
_TWICE_WITHIN_S: Final = 4.0
"""Two seconds are promised; a busy machine gets as many for leaving and looking."""
_WAYS: Final = {
    "SIGINT": (signal.SIGINT,), "SIGINT twice": (signal.SIGINT, signal.SIGINT), "SIGTERM": (signal.SIGTERM,),
    "SIGHUP": (signal.SIGHUP,),
}  # fmt: skip
_CODES: Final = frozenset({130})
_STATES: Final = frozenset({"interrupted", "killed"})


def faults() -> list[Fault]:
    """All of them."""
    found = []
    for way in _WAYS:
        for phase in ("start", "connect", "warm-up", "measure", "drain"):
            # Twice means at once: what was not recorded yet is given up.
            within_s = _TWICE_WITHIN_S if way.endswith("twice") else 0.0
            must = Must(
                _CODES,
                says="interrupt|Ctrl-C",
                ends_within_s=within_s,
                states=_STATES if phase != "start" else frozenset(),
            )
            must = with_evidence(must) if phase in ("measure", "drain") else must
            short = (way, phase) in (
                ("SIGINT", "measure"),
                ("SIGINT twice", "measure"),
                ("SIGTERM", "connect"),
                ("SIGHUP", "measure"),
            )
            found.append(
                Fault("interrupt", f"{way} in {phase}", _Interrupt(way, phase), must, short, needs="mosquitto")
            )
        must = Must(_CODES, says="interrupt|Ctrl-C", states=_STATES)
        found.append(Fault("interrupt", f"{way} in register", _Interrupt(way, "register"), must))
        must = Must(_CODES, says="bb analyze|interrupt", states=frozenset({"finished"}), evidence=True)
        what = _Interrupt(way, "analysis", whole=True)
        found.append(Fault("interrupt", f"{way} in analysis", what, must, within_s=240, needs="mosquitto java"))
    return found


class _Interrupt:
    def __init__(self, way: str, phase: str, *, whole: bool = False) -> None:
        self._signals, self._phase, self._whole = _WAYS[way], phase, whole

    def __call__(self, place: Place) -> Seen:
        started(place, self._phase, whole=self._whole)
        place.in_phase(self._phase)
        bb = place.process("bb")
        for at, number in enumerate(self._signals):
            if at:
                time.sleep(_SECOND_S)
            place.now()
            if bb.is_running():
                bb.send_signal(number)
        return place.seen()
