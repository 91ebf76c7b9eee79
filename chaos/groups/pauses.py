"""SIGSTOP for every process of a run: for a moment, and for good."""

from __future__ import annotations

import signal
import time
from typing import Final

from chaos.fault import Fault, Must, Seen
from chaos.groups.kills import started
from chaos.place import Place

_PAUSE_S: Final = 1.5
_ENDED: Final = frozenset({"finished", "broker-failed", "failed"})


def faults() -> list[Fault]:
    """All of them."""
    found = []
    for kind in ("broker", "worker", "engine", "capture", "bb"):
        needs = "mosquitto root dumpcap" if kind == "capture" else "mosquitto"
        for phase in ("warm-up", "measure", "drain"):
            must = Must(frozenset({0}), states=frozenset({"finished"}), evidence=phase != "warm-up")
            what = _Stop(kind, phase, for_good=False)
            found.append(Fault("pause", f"{kind} in {phase} for {_PAUSE_S:g} s", what, must, needs=needs))
    for kind, codes in (("broker", {0, 5}), ("worker", {4, 5}), ("engine", {4, 5}), ("capture", {0})):
        needs = "mosquitto root dumpcap" if kind == "capture" else "mosquitto"
        must = Must(frozenset(codes), states=_ENDED)
        for phase in ("connect", "measure") if kind in ("broker", "worker") else ("measure",):
            what = _Stop(kind, phase, for_good=True)
            found.append(Fault("pause", f"{kind} in {phase} for good", what, must, within_s=180, needs=needs))
    return found


class _Stop:
    def __init__(self, kind: str, phase: str, *, for_good: bool) -> None:
        self._kind, self._phase, self._for_good = kind, phase, for_good

    def __call__(self, place: Place) -> Seen:
        started(place, self._phase, engines=self._kind == "engine", capture=self._kind == "capture")
        place.in_phase(self._phase)
        victim = place.process(self._kind)
        place.now()
        victim.send_signal(signal.SIGSTOP)
        if not self._for_good:
            time.sleep(_PAUSE_S)
            victim.send_signal(signal.SIGCONT)
        return place.seen()
