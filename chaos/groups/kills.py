"""SIGKILL for every process of a run, in every phase."""

from __future__ import annotations

import os
import signal
import subprocess
from dataclasses import replace
from typing import Final

from chaos.fault import Fault, Must, Seen
from chaos.garbage import answers_slowly, tcp_server
from chaos.place import BB, Place

_PHASES: Final = ("start", "connect", "warm-up", "measure", "drain")
_SPARK: Final = "java"
_FAILED: Final = frozenset({4, 5})
_BROKER: Final = Must(frozenset({5}), says="mosquitto|broker", states=frozenset({"broker-failed"}))
_WORKER: Final = Must(_FAILED, says="worker", states=frozenset({"failed", "broker-failed"}))
_CAPTURE: Final = Must(frozenset({0}), says="captur", states=frozenset({"finished"}))
_OURSELVES: Final = Must(frozenset({-9}), states=frozenset({"killed"}))


def faults() -> list[Fault]:
    """All of them."""
    found = []
    for kind, must, phases in (
        ("broker", _BROKER, _PHASES[1:]), ("broker keeper", _BROKER, _PHASES[1:]), ("worker", _WORKER, _PHASES[1:]),
        ("engine", _WORKER, _PHASES[2:]), ("capture", _CAPTURE, _PHASES[1:]), ("capture keeper", _CAPTURE, _PHASES[2:]),
        ("bb", _OURSELVES, _PHASES[1:]),
    ):  # fmt: skip
        needs = "mosquitto root dumpcap" if kind.startswith("capture") else "mosquitto"
        for phase in phases:
            expected = with_evidence(must) if phase in ("measure", "drain") else must
            short = (kind, phase) in (("broker", "measure"), ("worker", "measure"), ("bb", "measure"))
            found.append(Fault("kill", f"{kind} in {phase}", _Kill(kind, phase), expected, short, needs=needs))
    # The broker is being started: there is no run yet. A start that failed is tried once more.
    early = {"broker": Must(frozenset({0, 5}), says="mosquitto"), "bb": Must(frozenset({-9}))}
    found += [
        Fault("kill", f"{kind} in start", _Kill(kind, "start"), must, needs="mosquitto") for kind, must in early.items()
    ]
    for kind in ("JVM", "analyst", "bb"):
        must = (
            Must(frozenset({-9}), states=frozenset({"finished"}), evidence=True)
            if kind == "bb"
            else Must(frozenset({1, 4}), says="bb analyze", states=frozenset({"finished"}), evidence=True)
        )
        what = _Kill(kind, "analysis", whole=True)
        found.append(Fault("kill", f"{kind} in analysis", what, must, within_s=240, needs=f"mosquitto {_SPARK}"))
    for kind in ("JVM", "analyst"):
        must = Must(frozenset({1, 4}), says="bb analyze", states=frozenset({"finished"}), evidence=True)
        what = _Kill(kind, "measure", whole=True)
        found.append(Fault("kill", f"{kind} in measure", what, must, within_s=240, needs=f"mosquitto {_SPARK}"))
    must = Must(frozenset({-9}), states=frozenset({"finished"}), evidence=True)
    what = _Kill("bb", "report", whole=True)
    found.append(Fault("kill", "bb in report", what, must, within_s=240, needs=f"mosquitto {_SPARK}"))
    found.append(Fault("kill", "bb in register", _Kill("bb", "register"), _OURSELVES))
    return found


def with_evidence(must: Must) -> Must:
    """The same, and recorded messages are there."""
    return Must(must.codes, must.says, must.states, True, must.ends_within_s, must.memory_mib)


class _Kill:
    def __init__(self, kind: str, phase: str, *, whole: bool = False) -> None:
        self._kind, self._phase, self._whole = kind, phase, whole

    def __call__(self, place: Place) -> Seen:
        started(
            place,
            self._phase,
            engines=self._kind == "engine",
            capture=self._kind.startswith("capture"),
            whole=self._whole,
        )
        place.in_phase(self._phase)
        victim = place.process(self._kind)
        place.now()
        victim.send_signal(signal.SIGKILL)
        seen = place.seen()
        if self._kind == "bb":
            return _listed(place, seen) if seen.runs else replace(seen, files_left=())
        return seen


def started(place: Place, phase: str, *, engines: bool = False, capture: bool = False, whole: bool = False) -> None:
    """A run on Mosquitto, long enough for its fault, and with a drain that lasts where that matters."""
    if phase == "register":
        registering(place)
        return
    times = {"warm_up": "4s" if phase == "warm-up" else "0s", "measure": "6s" if phase == "measure" else "2s"}
    if phase == "connect":
        times |= {"connect": "2/s"}
    if phase == "drain":
        times |= {"measure": "1s", "drain": "20s", "quiet": "8s"}
    words = ["run", str(place.scenario(**times)), "--broker", "mosquitto", "--runs", str(place.runs)]
    words += ["--no-html"] if phase != "report" else []
    words += ["--processes", "2"] if engines else []
    words += ["--capture"] if capture else []
    (place.bb if whole else place.record)(*words)


def registering(place: Place) -> None:
    """A run on a middleware that takes its time to register devices."""
    port = place.uses(tcp_server(answers_slowly))
    place.write("hub.yaml", _HUB.format(port=port))
    place.write("load.yaml", _WEB_LOAD)
    place.record("run", "load.yaml", "--broker", "./hub.yaml", "--no-html", "--runs", str(place.runs))


_HUB: Final = """\
name: hub
about: Answers late.
run: {{external: true}}
ports: {{http: {port}}}
endpoints: {{http: "http://${{host}}:${{port.http}}"}}
register:
  device: {{post: "/devices/${{number}}"}}
speak:
  http:
    publish: {{post: "/topics", json: {{payload: "${{payload}}"}}}}
"""
_WEB_LOAD: Final = """\
name: chaos
protocol: http
fleets:
  sensor: {devices: 40, topic: "chaos/{device}", payload: {random_bytes: 60}, every: 1/s}
phases: {measure: 2s, drain: 2s, quiet: 300ms}
"""


def _listed(place: Place, seen: Seen) -> Seen:
    """The run as `bb list` shows it to people."""
    done = subprocess.run(
        [str(BB), "list", "--runs", str(place.runs)], capture_output=True, text=True, timeout=60, check=False,
        env={**os.environ, "COLUMNS": "200", "NO_COLOR": "1"},
    )  # fmt: skip
    if done.returncode != 0:
        return replace(seen, complaints=(f"bb list ends with {done.returncode}",))
    states = [state for state in ("killed", "running", "finished", "interrupted") if state in done.stdout]
    # Whoever is killed cannot tidy up its temporary files.
    return replace(seen, files_left=(), runs=tuple((state, "") for state in states[:1]))
