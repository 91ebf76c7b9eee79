"""A fleet → its devices or clients, one by one. Called by the plan, for any share of the numbers.

Everything about the n-th node follows from scenario, seed, run id and n; nothing is remembered between nodes.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from hashlib import blake2b, shake_256
from pathlib import Path

from battlebrokers.scenario import dice
from battlebrokers.scenario.credentials import Login, read_logins
from battlebrokers.scenario.kinds import ANY_VARIABLES, RANDOM_ID, parse_duration_range, parse_value_range
from battlebrokers.scenario.model import Clients, Fleet, Payload
from battlebrokers.scenario.nodes import (
    AwayPlan,
    ClientPlan,
    ConnectionPlan,
    DevicePlan,
    FilterPlan,
    PacePlan,
    PayloadPlan,
    TlsPlan,
    WillPlan,
)
from battlebrokers.scenario.paces import parse_pace, placed, stagger_ns
from battlebrokers.scenario.patterns import CLIENT_VARIABLES, DEVICE_VARIABLES, Pattern, compile_pattern
from battlebrokers.scenario.sizes import parse_size
from battlebrokers.scenario.templates import compile_template
from battlebrokers.scenario.topics import dice_seed
from battlebrokers.secrets import Secret
from battlebrokers.units import parse_duration_ns, parse_rate_per_s

SECOND_NS = 1_000_000_000
_PERSISTENT_EXPIRY_S = 3600
_BASE62 = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
_TO_BASE62 = bytes(ord(_BASE62[byte % 62]) for byte in range(256))
_SILENT = PayloadPlan("text")
_NEVER_SPEAKS = PacePlan("steady", SECOND_NS)


@dataclass(frozen=True, slots=True)
class Origin:
    """What all nodes of a plan have in common."""

    seed: int
    run_id: str

    @property
    def tag(self) -> str:
        """Eight characters that tell this run's client ids and `{run}` topics from any other's."""
        return blake2b(f"{self.seed}/{self.run_id}".encode(), digest_size=4).hexdigest()


def _seconds(text: str | None) -> int:
    return parse_duration_ns(text) // SECOND_NS if text is not None else 0


def _spread(text: str | None, place: int, of: int) -> int:
    """A time, or the place-th of so many spread evenly over a range of times, in ns."""
    if text is None:
        return 0
    low, high = parse_duration_range(text)
    return low + (high - low) * place // max(of, 1)


class _Connections:
    """How the nodes of one fleet connect."""

    def __init__(self, group: Fleet | Clients, role: str, count: int, origin: Origin) -> None:
        self._role = role
        self._count = count
        self._origin = origin
        self._group = group
        self._random_id = RANDOM_ID.fullmatch(group.client_id) if group.client_id else None
        self._client_id = (
            compile_pattern(group.client_id, ANY_VARIABLES) if group.client_id and not self._random_id else None
        )
        credentials = group.credentials
        self._logins: list[Login] = read_logins(Path(credentials.csv)) if credentials and credentials.csv else []
        password = credentials.password if credentials else None
        self._username = self._pattern(credentials.username if credentials else None)
        self._password = self._pattern(password.reveal() if password is not None else None)
        self._will_topic = compile_pattern(group.will.topic, ANY_VARIABLES) if group.will else None
        self._tls = (
            TlsPlan(group.tls.ca, group.tls.certificate, group.tls.key, group.tls.check_hostname) if group.tls else None
        )
        if self._tls is None and (group.transport in ("tls", "wss") or group.protocol not in (None, "mqtt")):
            self._tls = TlsPlan(None, None, None, True)
        self._tag = origin.tag
        self._clean = group.session != "persistent"
        self._expiry_s = _seconds(group.session_expiry)
        if group.session_expiry is None and not self._clean and group.version == "5":
            self._expiry_s = _PERSISTENT_EXPIRY_S
        self._keep_alive_s = _seconds(group.keep_alive)
        self._protocol = group.protocol or "mqtt"
        # Other protocols have no versions of their own here, and their transport is the contender's address.
        mqtt = self._protocol in ("mqtt", "auto")
        self._version = group.version or ("3.1.1" if mqtt else "")
        self._transport = group.transport or ("tcp" if mqtt else "")

    @staticmethod
    def _pattern(text: str | None) -> Pattern | None:
        return compile_pattern(text, ANY_VARIABLES, environment=True) if text is not None else None

    def connection(self, place: int, number: int, values: dict[str, str]) -> ConnectionPlan:
        """The connection of the place-th node."""
        group = self._group
        sources = group.source_addresses
        login = self._logins[place] if self._logins else None
        username = login.username if login else self._username.render(values) if self._username else None
        password = login.password if login else Secret(self._password.render(values)) if self._password else None
        return ConnectionPlan(
            self._protocol,
            self._version,
            self._transport,
            (login.client_id if login else None) or self._id(number, values),
            username,
            password,
            self._clean,
            self._expiry_s,
            self._keep_alive_s,
            group.inflight or 65_535,
            group.receive_maximum or 65_535,
            isinstance(group, Fleet) and bool(group.topic_alias),
            self._will(values),
            self._tls,
            sources[place % len(sources)] if sources else None,
        )

    def _id(self, number: int, values: dict[str, str]) -> str:
        if self._client_id is not None:
            return self._client_id.render(values)
        if self._random_id is not None:
            key = f"{self._origin.seed}/{self._origin.run_id}/{self._role}/{number}"
            digest = shake_256(key.encode()).digest(int(self._random_id[1] or 23))
            return digest.translate(_TO_BASE62).decode("ascii")
        # 23 letters and digits are what every MQTT broker must accept.
        return f"bb{self._tag}{self._role[0]}{number}"

    def _will(self, values: dict[str, str]) -> WillPlan | None:
        will = self._group.will
        if will is None or self._will_topic is None:
            return None
        return WillPlan(self._will_topic.render(values), will.payload, will.qos, will.retain, _seconds(will.delay))

    def away(self, place: int) -> AwayPlan | None:
        """The planned absence of the place-th node."""
        away = self._group.away
        if away is None:
            return None
        every_ns = parse_duration_ns(away.every) if away.every else 0
        return AwayPlan(
            _spread(away.at, place, self._count), parse_duration_ns(away.for_), every_ns, away.how == "abrupt"
        )


class DeviceExpansion:
    """The devices of one (resolved) fleet; their numbers are first_number … first_number + count - 1."""

    def __init__(self, name: str, fleet: Fleet, first_number: int, origin: Origin) -> None:
        self.name = name
        self.fleet = fleet
        self.count = fleet.devices
        self.first_number = first_number
        self._origin = origin
        self._tag = origin.tag
        self._connections = _Connections(fleet, "device", self.count, origin)
        self._topics = [compile_pattern(text, DEVICE_VARIABLES, ranges=True) for text in fleet.topic]
        self._shared_topics = self._expand_topics({}) if all(not p.names - {"int"} for p in self._topics) else None
        self.payload = payload_plan(fleet.payload) if fleet.payload else _SILENT
        names = compile_template(self.payload.text).names if self.payload.kind == "template" else frozenset()
        self._payload_names = [name for name in DEVICE_VARIABLES if name in names]
        self.pace = parse_pace(fleet.every) if fleet.every else _NEVER_SPEAKS

    def _expand_topics(self, values: dict[str, str]) -> tuple[str, ...]:
        return tuple([topic for pattern in self._topics for topic in pattern.expand(values)])

    def _values(self, place: int) -> dict[str, str]:
        return {
            "device": f"{self.name}-{place + 1}",
            "fleet": self.name,
            "index": str(place + 1),
            "number": str(self.first_number + place),
            "category": self.fleet.category or self.name,
            "run": self._tag,
        }

    def topics(self, place: int) -> tuple[tuple[str, ...], int]:
        """What the place-th device publishes on, and the seed of the dice that choose (-1: in turn)."""
        topics = self._shared_topics if self._shared_topics is not None else self._expand_topics(self._values(place))
        if len(topics) < 2 or self.fleet.topic_choice != "random":
            return topics, -1
        return topics, dice_seed("random", dice.seed_of(self._origin.seed, self.name, place))

    def device(self, place: int) -> DevicePlan:
        """The place-th device, from 0."""
        number = self.first_number + place
        fleet = self.fleet
        name = f"{self.name}-{place + 1}"
        seed = dice.seed_of(self._origin.seed, self.name, place)
        values = self._values(place)
        offset_ns = stagger_ns(self.pace, place, self.count, seed) if fleet.staggered else 0
        start_ns = _spread(fleet.join, place, self.count) if fleet.join is not None else 0
        payload = self.payload
        if self._payload_names:
            payload = replace(payload, variables=tuple((key, values[key]) for key in self._payload_names))
        return DevicePlan(
            number,
            name,
            self.name,
            self._connections.connection(place, number, values),
            self._shared_topics if self._shared_topics is not None else self._expand_topics(values),
            fleet.topic_choice or "round-robin",
            payload,
            fleet.qos or 0,
            bool(fleet.retain),
            placed(self.pace, offset_ns, start_ns),
            fleet.at_most,
            seed,
            self._connections.away(place),
        )

    def devices(self, share: int, of: int) -> Iterator[DevicePlan]:
        """Those whose number leaves the remainder `share` when divided by `of`."""
        return (self.device(place) for place in range((share - self.first_number) % of, self.count, of))


class ClientExpansion:
    """The clients of one (resolved) group; their numbers are first_number … first_number + count - 1."""

    def __init__(self, name: str, group: Clients, first_number: int, origin: Origin) -> None:
        self.name = name
        self.group = group
        self.count = group.count
        self.first_number = first_number
        self._origin = origin
        self._tag = origin.tag
        self._connections = _Connections(group, "client", self.count, origin)
        self._filters = [compile_pattern(text, CLIENT_VARIABLES, ranges=True) for text in group.subscribe]
        self.alike = group.subscriptions is None and all(not p.names - {"int", "fleet", "run"} for p in self._filters)
        """Whether all its clients have the same subscriptions."""
        self._reads_per_s = parse_rate_per_s(group.reads) if group.reads else 0.0

    def subscriptions(self, place: int) -> tuple[FilterPlan, ...]:
        """The subscriptions of the place-th client; with `subscriptions: n`, n of the filters, taken in turn."""
        return self._subscriptions(place, self._values(place))

    def _subscriptions(self, place: int, values: dict[str, str]) -> tuple[FilterPlan, ...]:
        group = self.group
        filters = [text for pattern in self._filters for text in pattern.expand(values)]
        if group.subscriptions is not None and filters:
            begin = place * group.subscriptions
            filters = [filters[(begin + n) % len(filters)] for n in range(min(group.subscriptions, len(filters)))]
        return tuple([FilterPlan(text, group.qos or 0, group.share) for text in dict.fromkeys(filters)])

    def _values(self, place: int) -> dict[str, str]:
        return {
            "client": f"{self.name}-{place + 1}",
            "fleet": self.name,
            "index": str(place + 1),
            "number": str(self.first_number + place),
            "run": self._tag,
        }

    def client(self, place: int) -> ClientPlan:
        """The place-th client, from 0."""
        number = self.first_number + place
        values = self._values(place)
        return ClientPlan(
            number,
            values["client"],
            self.name,
            self._connections.connection(place, number, values),
            self._subscriptions(place, values),
            _spread(self.group.join, place, self.count) if self.group.join is not None else -1,
            self._reads_per_s,
            dice.seed_of(self._origin.seed, self.name, place),
            self._connections.away(place),
        )

    def clients(self, share: int, of: int) -> Iterator[ClientPlan]:
        """Those whose number leaves the remainder `share` when divided by `of`."""
        return (self.client(place) for place in range((share - self.first_number) % of, self.count, of))


def payload_plan(payload: Payload) -> PayloadPlan:
    """What a fleet says, as plan; the rules have made sure that there is exactly one content."""
    encoding = payload.encoding or "none"
    size = parse_size(payload.size) if payload.size is not None else None
    if payload.random_bytes is not None:
        return PayloadPlan(
            "random_bytes", size=parse_size(payload.random_bytes), encoding=encoding, stamp=payload.stamp
        )
    if payload.value is not None:
        low, high, decimals = parse_value_range(payload.value)
        return PayloadPlan("value", low=low, high=high, decimals=decimals, encoding=encoding, stamp=payload.stamp)
    if payload.template is not None:
        return PayloadPlan("template", text=payload.template, encoding=encoding, stamp=payload.stamp)
    if payload.file is not None:
        return PayloadPlan("file", path=Path(payload.file), size=size, encoding=encoding, stamp=payload.stamp)
    kind, text = ("text", payload.text) if payload.text is not None else ("fixed", payload.fixed)
    return PayloadPlan(kind, text=text or "", size=size, encoding=encoding, stamp=payload.stamp)
