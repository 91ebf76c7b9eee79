"""Control messages between an orchestrator and its workers. Plain data: they cross a process, later a network.

Orchestrator → worker: Prepare, Probe, Go, Stop. Worker → orchestrator: Hello, Alive, ProbeAnswer, Prepared, Progress,
Finished, Failed. A worker with several engine processes speaks the same language to each of them.
"""

from __future__ import annotations

import msgspec

from battlebrokers.protocols.script import Known, Script


class Prepare(msgspec.Struct, tag="prepare", frozen=True):
    """Take this share of this plan, connect everyone, and say when ready."""

    run: str
    worker: str
    plan: bytes
    share: int
    of: int
    endpoints: dict[str, str]
    evidence: str
    """Folder the evidence is written to."""
    boot_id: str
    """The orchestrator's machine: on the same one, its clock anchor is used."""
    anchor_monotonic_ns: int
    anchor_wall_ns: int
    processes: int = 1
    tick_ns: int = 0
    """How coarsely each process handles sends and arrivals while the load lasts; 0 is as they come."""
    keep_events: bool = True
    username: str | None = None
    """For nodes whose plan names no user (from an external broker's URL)."""
    password: str | None = None
    scripts: dict[str, Script] = {}
    """Protocol → the contender's dialect, where it has one."""
    known_by_all: Known = {}
    """What every node's templates may use."""
    known: dict[str, Known] = {}
    """What was registered for one node, by `device 7` or `client 0`."""
    known_of_topics: dict[str, Known] = {}
    """What was registered for a topic, and who listens to it."""


class Probe(msgspec.Struct, tag="probe", frozen=True):
    """What time is it?"""

    t1_ns: int


class Go(msgspec.Struct, tag="go", frozen=True):
    """The load starts at this instant of run time."""

    load_start_ns: int


class Stop(msgspec.Struct, tag="stop", frozen=True):
    """End early; everything recorded so far is kept."""

    reason: str


class Hello(msgspec.Struct, tag="hello", frozen=True):
    """A worker is there."""

    pid: int
    host: str
    boot_id: str
    cores: int


class Alive(msgspec.Struct, tag="alive", frozen=True):
    """Its event loop runs; sent every second in every phase, from the start until its process ends."""


class ProbeAnswer(msgspec.Struct, tag="probe-answer", frozen=True):
    """It is this time here."""

    t1_ns: int
    t2_ns: int
    t3_ns: int


class Prepared(msgspec.Struct, tag="prepared", frozen=True):
    """Everyone who could has connected and subscribed."""

    devices: int
    clients: int
    failed: int
    errors: list[str]


class Progress(msgspec.Struct, tag="progress", frozen=True):
    """How far it is, twice a second."""

    connected: int = 0
    sent: int = 0
    acked: int = 0
    received: int = 0
    live_p50_ms: float = 0.0
    live_p99_ms: float = 0.0
    write_error: str = ""
    """Why evidence can no longer be written; the load has been ended for it."""


class Finished(msgspec.Struct, tag="finished", frozen=True):
    """The evidence is complete on disk."""

    drain_end_ns: int
    counters: dict[str, int]
    failure: str = ""
    load_end_ns: int = 0
    """When the last device had said all it may, if that ended the load; else 0."""
    write_error: str = ""
    """Why some evidence could not be written, if the disk or a limit is to blame."""


class Failed(msgspec.Struct, tag="failed", frozen=True):
    """It cannot go on; what was recorded is on disk."""

    message: str
    hint: str
    exit_code: int


ToWorker = Prepare | Probe | Go | Stop
FromWorker = Hello | Alive | ProbeAnswer | Prepared | Progress | Finished | Failed
Control = Prepare | Probe | Go | Stop | Hello | Alive | ProbeAnswer | Prepared | Progress | Finished | Failed
