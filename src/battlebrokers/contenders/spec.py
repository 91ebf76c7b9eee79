"""What a contender file may say: the strict model behind `specs/*.yaml` and behind files of your own.

Read by `reader`, used by `availability`, `lifecycle` and `install`. Holds no paths of this machine and starts nothing.
"""

from __future__ import annotations

import re
import signal
from typing import Annotated, Literal

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, field_validator, model_validator

from battlebrokers.record.exporters import MEASURED_COLUMNS, Exporter

Transport = Literal["tcp", "tls", "ws", "wss"]
MqttVersion = Literal["3.1.1", "5"]
Profile = Literal["stock", "tuned"]
PackageManager = Literal["apt", "dnf", "apk", "brew", "pip", "npm", "commands"]


def _a_regex_with_one_group(pattern: str) -> str:
    try:
        groups = re.compile(pattern).groups
    except re.error as error:
        raise ValueError(f"is not a regular expression: {error}") from None
    if groups != 1:
        raise ValueError("needs exactly one (group)")
    return pattern


OneGroup = Annotated[str, AfterValidator(_a_regex_with_one_group)]
Name = Annotated[str, Field(pattern=r"^[a-z][a-z0-9-]*$")]
Port = Annotated[int, Field(ge=1, le=65535)]


def _processes_alone(value: object) -> object:
    return {"processes": value} if isinstance(value, list) else value


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)


class Need(_Strict):
    """One thing that must be here: an executable, a Python module or a Node module."""

    executable: str | None = None
    also_in: list[str] = []
    """Folders to look in besides PATH; they come first, because a wrapper on PATH may hide the real program."""
    at_least: str | None = None
    """The oldest version that will do, as told by `--version`."""
    python: str | None = None
    node: str | None = None

    @model_validator(mode="after")
    def _exactly_one(self) -> Need:
        if sum(kind is not None for kind in (self.executable, self.python, self.node)) != 1:
            raise ValueError("say exactly one of executable, python, node")
        return self


class VersionSource(_Strict):
    """One way to learn the version without starting the broker; `match` picks it out of what is read."""

    command: list[str] | None = None
    glob: str | None = None
    file: str | None = None
    python: str | None = None
    match: OneGroup = r"(\d+(?:\.\d+)+\S*)"

    @model_validator(mode="after")
    def _exactly_one(self) -> VersionSource:
        if sum(kind is not None for kind in (self.command, self.glob, self.file, self.python)) != 1:
            raise ValueError("say exactly one of command, glob, file, python")
        return self


class CapabilityChange(_Strict):
    """What became possible with a newer version."""

    mqtt: list[MqttVersion] | None = None
    qos: Literal[0, 1, 2] | None = None
    shared: bool | None = None


class BrokerCapabilities(_Strict):
    """What the broker honours, as seen in the contract tests and not as advertised."""

    mqtt: list[MqttVersion]
    qos: Literal[0, 1, 2]
    """The highest QoS it honours; above it, brokers downgrade or disconnect."""
    transports: list[Transport]
    shared: bool = False
    retain: bool = True
    persistent_session: bool = True
    will: bool = True
    notes: list[str] = []
    since: dict[str, CapabilityChange] = {}
    """Version → what it added."""

    def of(self, version: str) -> BrokerCapabilities:
        """The capabilities of that version: each `since` not newer than it is applied."""
        changes: dict[str, object] = {}
        for since in sorted(self.since, key=version_key):
            if version_key(version) >= version_key(since):
                changes |= self.since[since].model_dump(exclude_none=True)
        return self.model_copy(update=changes)


class Run(_Strict):
    """How the process is started."""

    command: list[str] = Field(min_length=1)
    env: dict[str, str] = {}


class ProfileSpec(_Strict):
    """One way to configure it: files to write, and what it adds to the environment."""

    about: str
    files: dict[str, str] = {}
    env: dict[str, str] = {}


class TlsSpec(_Strict):
    """What a TLS listener adds: text behind a config file, ports, endpoints."""

    ports: list[str]
    append: dict[str, str] = {}
    append_with_client_ca: dict[str, str] = {}
    env: dict[str, str] = {}
    env_with_client_ca: dict[str, str] = {}
    endpoints: dict[Transport, str]


class Ready(_Strict):
    """When it counts as started: this port answers an MQTT handshake, the others accept, all within so many seconds."""

    port: str = "mqtt"
    within_s: float = Field(gt=0)


class Stop(_Strict):
    """How it wants to be asked to leave, and how long it may take before it is killed."""

    signal: str = "TERM"
    within_s: float = Field(gt=0)

    @field_validator("signal")
    @classmethod
    def _known(cls, name: str) -> str:
        if f"SIG{name}" not in signal.Signals.__members__:
            raise ValueError("is not a signal name such as TERM or INT")
        return name

    @property
    def number(self) -> int:
        """The signal's number here."""
        return signal.Signals[f"SIG{self.signal}"].value


class FailureHint(_Strict):
    """Advice for a line seen in the log of a start that failed."""

    match: str
    hint: str


class Metrics(_Strict):
    """Where a Prometheus server has this service's resources: a known exporter's names, or queries of your own."""

    exporter: Exporter | None = None
    labels: dict[str, str] = {}
    """Labels that pick this service out of the exporter's series, such as {name: my-redis}."""
    queries: dict[str, str] = {}
    """Column of `resources` → PromQL query; they win over the exporter's."""

    @model_validator(mode="after")
    def _something(self) -> Metrics:
        if self.exporter is None and not self.queries:
            raise ValueError("say exporter, queries or both")
        unknown = sorted(set(self.queries) - set(MEASURED_COLUMNS))
        if unknown:
            raise ValueError(f"{unknown[0]} is not a column of resources: {', '.join(MEASURED_COLUMNS)}")
        return self


class Service(_Strict):
    """One part of the broker: its processes, and where its packets and its resources are found.

    Written as a plain list it means `processes`.
    """

    processes: list[str] = []
    """Names of its processes; `*` takes every process no other service names."""
    ports: list[Name | Port] | None = None
    """Where it listens: names from `ports`, or numbers. When absent, `*` has all ports no other service names."""
    interface: str = ""
    """The interface to capture on; when absent loopback, in a namespace all of them, of a container its veth."""
    namespace: str = ""
    """The network namespace it lives in: a name (`ip netns`) or a path."""
    container: str = ""
    """The container it lives in (Docker or Podman): a name or an id."""
    cgroup: str = ""
    """Its control group (v2) below /sys/fs/cgroup, such as `system.slice/redis.service`; when absent looked up."""
    metrics: Metrics | None = None


class Pairing(_Strict):
    """Which of its JSON messages (over WebSocket) are requests and what answers them, for captures."""

    type: str = ""
    """Where the type of a message stands, dots leading inwards and numbers into lists: `action`, `header.type`, `0`."""
    id: str = ""
    """Where the id stands that request and response share; when absent types pair in order."""
    answers: dict[str, str] = {}
    """Type of the response to each type of request."""
    unanswered: list[str] = []
    """Types that ask for nothing."""

    @model_validator(mode="after")
    def _something(self) -> Pairing:
        if not self.type and (self.answers or self.unanswered or not self.id):
            raise ValueError("say type: where the type of a message stands")
        return self


class Contender(_Strict):
    """A broker, and how to find, configure, start and stop it."""

    name: Name
    about: str
    needs: dict[Name, Need]
    """What must be here; each name is then a `${name}` holding where it was found."""
    install: dict[PackageManager, list[str]]
    """Package manager (apt, dnf, apk, brew, pip, npm) → its packages; `commands` → lines to show as they are."""
    version: list[VersionSource] = Field(min_length=1)
    capabilities: BrokerCapabilities
    ports: list[Name] = Field(min_length=1)
    endpoints: dict[Transport, str]
    run: Run
    profiles: dict[Profile, ProfileSpec]
    tls: TlsSpec | None = None
    ready: Ready
    stop: Stop
    services: dict[str, Annotated[Service, BeforeValidator(_processes_alone)]]
    """Service → names of its processes, or all that is known of it."""
    logs: list[str] = []
    """Log files it writes itself (glob in its folder); what it prints is always kept."""
    hints: list[FailureHint] = []
    pairing: Pairing | None = None

    @classmethod
    def find(cls, name: str) -> Contender:
        """The contender of that name, or the one a `.yaml` file of that path describes."""
        from battlebrokers.contenders.reader import find_contender  # the reader needs this module

        return find_contender(name)


def version_key(version: str) -> tuple[int, ...]:
    """A version as numbers that sort; what is not a number ends it."""
    numbers = []
    for part in version.split("."):
        digits = re.match(r"\d+", part)
        if digits is None:
            break
        numbers.append(int(digits.group()))
    return tuple(numbers)
