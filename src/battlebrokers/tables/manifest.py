"""`manifest.json`: what was run, on what, when. Written by the orchestrator, read by everyone after it.

It is rewritten whole (atomically) at every change of state, so a killed run still has a true one.
"""

from __future__ import annotations

from typing import Any, Literal

import msgspec
from msgspec.structs import replace

from battlebrokers.processes import ProcessIdentity
from battlebrokers.secrets import MASK, masked_document, masked_setting, masked_text, masked_url, masked_values

State = Literal["starting", "running", "finished", "interrupted", "broker-failed", "failed", "killed"]


class Phase(msgspec.Struct, frozen=True):
    """One phase with its borders in run time; `load` phases are those in which devices publish."""

    name: str
    start_ns: int
    end_ns: int


class ScenarioFacts(msgspec.Struct, frozen=True):
    """The scenario as given and as understood."""

    name: str
    about: str
    source: str
    """Where it came from: a shipped name or a file name."""
    text: str
    """The YAML as read."""
    resolved: dict[str, Any]
    """All values after defaults, overrides and scale."""
    overrides: list[str] = []
    scale: float = 1.0
    expect: list[str] = []
    title: str = ""
    """Its name, and what scale and overrides make of it; runs of older versions have none."""
    secrets_masked: bool = False
    """Whether ••• stands for passwords in it: to run it again, they have to be given again."""


class ServiceFacts(msgspec.Struct, frozen=True):
    """One part of the contender: its processes when it was ready."""

    name: str
    pids: list[int]
    cgroup: str = ""
    """The control group its resources were read from; empty when only its processes were."""


class PairingFacts(msgspec.Struct, frozen=True):
    """Which JSON messages of a contender are requests, and what answers them; paths lead inwards by dots."""

    type: str = ""
    """Where the type of a message stands: `action`, `header.type`, `0`."""
    id: str = ""
    """Where the id stands that request and response share; without it types pair in order."""
    answers: dict[str, str] = {}
    """Type of the response to each type of request."""
    unanswered: list[str] = []
    """Types that ask for nothing."""


class ContenderFacts(msgspec.Struct, frozen=True):
    """The broker under test."""

    name: str
    version: str
    profile: str
    """`stock`, `tuned` or `external`."""
    endpoints: dict[str, str]
    """Transport → URL."""
    config_sha256: str = ""
    config_text: str = ""
    services: list[ServiceFacts] = []
    pairing: PairingFacts | None = None
    """What its file says about its messages, for captures."""


class CaptureFacts(msgspec.Struct, frozen=True):
    """The capture of one service: which files, where it listened, what it lost; without files it says why."""

    service: str
    files: list[str] = []
    """Relative to the run folder, oldest first."""
    interface: str = ""
    addresses: list[str] = []
    """`address:port` of the service as its packets carry them; `*:port` when only the port is known."""
    namespace: str = ""
    container: str = ""
    filter: str = ""
    tool: str = ""
    snap_bytes: int = 0
    """How much of each packet was kept; 0 is all of it."""
    started_ns: int | None = None
    """When it was up (run time); everything of this service later than that is in the files, or counted below."""
    stopped_ns: int | None = None
    before_start: bool = True
    """Whether it was up before we started the service or first spoke to it.

    False where others run it (`bb capture`), and where its container had to run before its wire was there.
    """
    packets: int | None = None
    dropped: int | None = None
    """Packets the system or the program could not keep; None when it did not say."""
    replaced_files: int = 0
    """Files at the beginning that gave way to newer ones because of the size limit."""
    missing: str = ""
    """Why there is no capture, or why it ended early, and the fix."""


class WorkerFacts(msgspec.Struct, frozen=True):
    """One worker, with what it counted about itself."""

    name: str
    host: str
    boot_id: str
    pid: int
    processes: int
    counters: dict[str, int] = {}
    """`recorder_overflow`, `window_hits`, `malformed`, `reconnects`, … (see the glossary)."""
    tick_ns: int = 0
    """Its processes handled sends and arrivals once in this time while the load lasted; 0 is as they came."""


class BattleFacts(msgspec.Struct, frozen=True):
    """The battle a run belongs to: which block (repeat) and which place in its order."""

    id: str
    block: int
    order: int


class Manifest(msgspec.Struct):
    """Everything about a run that is not a table."""

    run: str
    state: State
    started_ns: int
    scenario: ScenarioFacts
    seed: int
    plan_sha256: str
    contender: ContenderFacts
    host: dict[str, Any]
    versions: dict[str, str]
    format: int = 1
    state_detail: str = ""
    finished_ns: int | None = None
    phases: list[Phase] = []
    workers: list[WorkerFacts] = []
    tags: dict[str, str] = {}
    battle: BattleFacts | None = None
    captures: list[CaptureFacts] = []
    settings: dict[str, Any] = {}
    process: ProcessIdentity | None = None
    """Who conducts the run: while the state is `starting` or `running`, a run whose process is gone was killed."""

    def phase(self, name: str) -> Phase | None:
        """The phase of that name, if the run reached it."""
        return next((phase for phase in self.phases if phase.name == name), None)

    def masked(self) -> Manifest:
        """The same without secrets, as it is written and read: older versions kept some."""
        scenario, contender = self.scenario, self.contender
        shown = replace(
            scenario,
            text=masked_document(scenario.text),
            resolved=masked_values(scenario.resolved),
            overrides=[masked_setting(override) for override in scenario.overrides],
            title=masked_text(scenario.title),
        )
        broker = replace(
            contender,
            name=masked_url(contender.name),
            endpoints={name: masked_url(url) for name, url in contender.endpoints.items()},
            config_text=masked_document(contender.config_text),
        )
        return replace(
            self,
            scenario=replace(shown, secrets_masked=MASK in shown.text or any(MASK in each for each in shown.overrides)),
            contender=broker,
            state_detail=masked_text(self.state_detail),
            tags={name: masked_values(value, name=name) for name, value in self.tags.items()},
            captures=[replace(each, missing=masked_text(each.missing)) for each in self.captures],
            settings=masked_values(self.settings),
        )

    @property
    def tick_ns(self) -> int:
        """The coarsest tick in which a worker handled sends and arrivals; 0 if all did as they came."""
        return max((worker.tick_ns for worker in self.workers), default=0)
