"""What a plan is made of: devices, clients, their connections, paces, payloads, and the phases. Pure data.

Import these names from `battlebrokers.scenario.plan`; they live apart so that the expansion can build them.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from battlebrokers.secrets import Secret

NEVER_NS = 2**63 - 1
"""Later than everything."""


@dataclass(frozen=True, slots=True)
class PacePlan:
    """When a device speaks, relative to the start of the load. Unused numbers are 0.

    kind: `steady` (per_interval messages, evenly spaced, every interval_ns), `uniform` (gaps drawn from
    interval_ns..interval_max_ns), `poisson` (mean gap interval_ns), `burst` (burst_size messages at once every
    interval_ns), `ramp` (rate goes linearly from 1e9/interval_ns to 1e9/interval_max_ns messages/s over ramp_ns, then
    stays; NEVER_NS stands for a rate of 0). `offset_ns` staggers devices: the first message is due at
    start_ns + offset_ns (a random gap later for `poisson`).
    """

    kind: str
    interval_ns: int
    interval_max_ns: int = 0
    burst_size: int = 0
    ramp_ns: int = 0
    offset_ns: int = 0
    start_ns: int = 0
    """When the device begins, after the start of the load (its `join`)."""
    per_interval: int = 1
    """Keeps rates such as 3/s exact: 3 messages per 1 000 000 000 ns (steady only)."""


@dataclass(frozen=True, slots=True)
class SizePlan:
    """Payload sizes: `fixed` (low), `uniform` (low..high), `normal` (mean, spread; clipped to low..high), `choice`."""

    kind: str
    low: int = 0
    high: int = 0
    mean: float = 0.0
    spread: float = 0.0
    choices: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class PayloadPlan:
    """What a device says.

    kind: `random_bytes` (size), `text`, `value` (low..high, decimals), `fixed`, `template`, `file`.
    """

    kind: str
    text: str = ""
    size: SizePlan | None = None
    low: float = 0.0
    high: float = 0.0
    decimals: int = 0
    path: Path | None = None
    encoding: str = "none"
    """`none`, `base64`, `binhex`, or a charset such as `utf-16`: applied to the content, not to the header."""
    stamp: bool = True
    """Whether to put the 16-byte header in front (content) or into (random_bytes of at least 16)."""
    variables: tuple[tuple[str, str], ...] = ()
    """What `{device}` and its like stand for in a template; all else is the same for the whole fleet."""


@dataclass(frozen=True, slots=True)
class WillPlan:
    """The message the broker sends when the device vanishes."""

    topic: str
    payload: str
    qos: int
    retain: bool
    delay_s: int


@dataclass(frozen=True, slots=True)
class TlsPlan:
    """Certificate files; absolute paths."""

    ca: str | None
    certificate: str | None
    key: str | None
    check_hostname: bool


SESSION_FOREVER_S = 2**32 - 1
"""The session expiry that means never, in MQTT 5."""


@dataclass(frozen=True, slots=True)
class ConnectionPlan:
    """How one node connects. `transport`: tcp, tls, ws, wss; it and `version` are empty unless it speaks MQTT."""

    protocol: str
    version: str
    transport: str
    client_id: str
    username: str | None
    password: Secret | None
    clean: bool
    session_expiry_s: int
    keep_alive_s: int
    inflight: int
    receive_maximum: int
    topic_alias: bool
    will: WillPlan | None
    tls: TlsPlan | None
    source_address: str | None = None

    def lasts_s(self, granted_s: int | None = None) -> int | None:
        """How long the session is kept for the next connection: 0 not at all, None without end.

        `granted_s` is what an MQTT 5 broker decided instead of what was asked.
        """
        if self.clean:
            return 0  # whatever the broker still has, our next connect makes it forget
        if self.version != "5":
            return None
        expiry_s = self.session_expiry_s if granted_s is None else granted_s
        return None if expiry_s == SESSION_FOREVER_S else expiry_s


@dataclass(frozen=True, slots=True)
class AwayPlan:
    """A planned absence: at_ns after the start of the load it leaves (abrupt: no goodbye) for for_ns.

    `every_ns` 0 = once.
    """

    at_ns: int
    for_ns: int
    every_ns: int
    abrupt: bool


@dataclass(frozen=True, slots=True)
class DevicePlan:
    """One device."""

    number: int
    name: str
    fleet: str
    connection: ConnectionPlan
    topics: tuple[str, ...]
    topic_choice: str
    """`random` or `round-robin`."""
    payload: PayloadPlan
    qos: int
    retain: bool
    pace: PacePlan
    at_most: int | None
    seed: int
    away: AwayPlan | None


@dataclass(frozen=True, slots=True)
class FilterPlan:
    """One subscription."""

    filter: str
    qos: int
    share: str | None


@dataclass(frozen=True, slots=True)
class ClientPlan:
    """One client.

    `join_ns` after the start of the load; -1 = before it, with everyone else. `reads_per_s` 0 = as fast as it can.
    """

    number: int
    name: str
    fleet: str
    connection: ConnectionPlan
    subscriptions: tuple[FilterPlan, ...]
    join_ns: int
    reads_per_s: float
    seed: int
    away: AwayPlan | None


LONGEST_DRAIN = 10
"""While messages keep arriving, the drain may last so many times its planned length."""


@dataclass(frozen=True, slots=True)
class PhasesPlan:
    """How long each phase lasts; `connect_per_s` 0 = all at once."""

    connect_per_s: float
    warm_up_ns: int
    measure_ns: int
    cool_down_ns: int
    drain_ns: int
    quiet_ns: int
    """The drain ends early when nothing has arrived for this long."""

    @property
    def longest_drain_ns(self) -> int:
        """How long the drain may last while messages keep arriving."""
        return LONGEST_DRAIN * self.drain_ns

    @property
    def load_ns(self) -> int:
        """How long devices publish."""
        return self.warm_up_ns + self.measure_ns + self.cool_down_ns
