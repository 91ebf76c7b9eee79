"""What a contender file may say: the strict model behind `specs/*.yaml` and behind files of your own.

Read by `reader`, used by `availability`, `lifecycle` and `install`. Holds no paths of this machine and starts nothing.
"""

from __future__ import annotations

import signal
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field, field_validator, model_validator

from battlebrokers.contenders.dialect import Expected, Register, Speak, expected
from battlebrokers.contenders.model import Model
from battlebrokers.contenders.needs import Need, PackageManager, Regex, VersionSource, version_key
from battlebrokers.contenders.services import Metrics, Pairing, Service
from battlebrokers.contenders.strict import Name, Strict
from battlebrokers.secrets import Secret

__all__ = [
    "BrokerCapabilities",
    "Contender",
    "Metrics",
    "Need",
    "PackageManager",
    "Pairing",
    "Profile",
    "Service",
    "Transport",
    "VersionSource",
    "version_key",
]

Transport = Literal["tcp", "tls", "ws", "wss", "udp"]
EndpointKey = Literal["tcp", "tls", "ws", "wss", "http", "websocket", "coap", "amqp", "udp"]
"""For MQTT the transport, for every other protocol its name."""
MqttVersion = Literal["3.1.1", "5"]
Profile = Literal["stock", "tuned"]

MQTT_TRANSPORTS = ("tcp", "tls", "ws", "wss")


def _processes_alone(value: object) -> object:
    return {"processes": value} if isinstance(value, list) else value


def _free_ports(value: Any) -> Any:
    """`[mqtt, ws]` are ports to be chosen, `{http: 3000}` are ports as they are."""
    if isinstance(value, list):
        return {name if isinstance(name, str) else str(name): 0 for name in value}
    return value


def _shipped(value: Any) -> Any:
    """`[mosquitto]` are contenders that run beside this one."""
    return {name: {"contender": name} for name in value} if isinstance(value, list) else value


class CapabilityChange(Strict):
    """What became possible with a newer version."""

    mqtt: list[MqttVersion] | None = None
    qos: Literal[0, 1, 2] | None = None
    shared: bool | None = None


class BrokerCapabilities(Strict):
    """What the broker honours, as seen in the contract tests and not as advertised. All but notes is about MQTT."""

    mqtt: list[MqttVersion] = ["3.1.1"]
    qos: Literal[0, 1, 2] = 0
    """The highest QoS it honours; above it, brokers downgrade or disconnect."""
    transports: list[Transport] = []
    """When absent those of its endpoints, TLS included."""
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


class Run(Strict):
    """How it is started: a command, a container, a compose file, or not by us at all."""

    command: list[str] = []
    """The program and its arguments; with `container` only the arguments."""
    env: dict[str, str] = {}
    container: str = ""
    """An image for Docker or Podman; `ports` are then those inside the container."""
    mounts: dict[str, str] = {}
    """Path inside the container → path here, in `${dir}`, `${data}` or `${specs}`."""
    compose: str = ""
    """A compose file in `${dir}`, with `ports` as it publishes them."""
    external: bool = False
    """Somebody else runs it, at `ports` of the host given as NAME@HOST (when absent 127.0.0.1)."""
    namespace: str = ""
    """The network namespace (`ip netns`) the command runs in."""
    host: str = ""
    """Where it listens and is spoken to, when not 127.0.0.1; needed with `namespace`."""
    as_root: bool = False
    """It cannot do its work unless it is root. Without this, root starts the command as `nobody`; a container's or
    compose file's client stays what we are, and whom a container runs as is told by its image."""

    @model_validator(mode="after")
    def _one_way(self) -> Run:
        ways = [bool(self.command or self.container), bool(self.compose), self.external]
        if sum(ways) != 1:
            raise ValueError("say exactly one of command, container, compose, external")
        if self.mounts and not self.container:
            raise ValueError("mounts belong to a container")
        return self


class Companion(Strict):
    """Something that must run beside the contender, started first and stopped last."""

    contender: Name | None = None
    """A shipped contender; its ports are then `${NAME.port}`."""
    executable: str | None = None
    """A program of its own, whose port is then `${port.NAME}`."""
    also_in: list[str] = []
    command: list[str] = []
    """How the program is started; `${NAME}` is where it was found."""

    @model_validator(mode="after")
    def _one_of_both(self) -> Companion:
        if (self.contender is None) == (self.executable is None):
            raise ValueError("say contender or executable")
        if (self.executable is None) == bool(self.command):
            raise ValueError("a program has a command, a contender has its own")
        return self


class ProfileSpec(Strict):
    """One way to configure it: files to write, text to add to them, and what it adds to the environment."""

    about: str
    files: dict[str, str] = {}
    """Instead of, or besides, the contender's `files`."""
    append: dict[str, str] = {}
    """Text to put behind a file."""
    env: dict[str, str] = {}


class TlsSpec(Strict):
    """What a TLS listener adds: text behind a config file, ports, endpoints."""

    ports: list[str]
    append: dict[str, str] = {}
    append_with_client_ca: dict[str, str] = {}
    env: dict[str, str] = {}
    env_with_client_ca: dict[str, str] = {}
    endpoints: dict[EndpointKey, str]


class Ready(Strict):
    """When it counts as started: all endpoints accept, and the right answer comes within so many seconds.

    Asked is, in this order: `get` over HTTP, an MQTT handshake where there is MQTT, a CoAP ping where there is CoAP.
    """

    by: Literal["mqtt", "http", "coap", "tcp"] | None = None
    """How it is asked; when absent as above. `tcp` is content with an open port."""
    port: str = ""
    """The port for the MQTT handshake, when it is not that of the endpoint `tcp`."""
    get: str = ""
    """A path to ask for by HTTP."""
    headers: dict[str, str] = {}
    """Sent with that question."""
    is_: Annotated[Expected, BeforeValidator(expected)] = Field(default=Expected(), alias="is")
    """What counts as ready: a status or a list of them; when absent every 2xx."""
    within_s: float = Field(default=30.0, gt=0)


class Stop(Strict):
    """How it wants to be asked to leave, and how long it may take before it is killed."""

    signal: str = "TERM"
    within_s: float = Field(default=10.0, gt=0)

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


class FailureHint(Strict):
    """Advice for a line seen in the log of a start that failed."""

    match: Regex
    hint: str


class Credentials(Strict):
    """Who we are when a broker asks; known to templates as `${username}` and `${password}`."""

    username: str
    password: Secret


class Contender(Strict):
    """A broker or middleware: how to find, start and stop it, and how to speak to it."""

    name: Name
    about: str
    needs: dict[Name, Need] = {}
    """What must be here; each name is then a `${name}` holding where it was found."""
    install: dict[PackageManager, list[str]] = {}
    """Package manager (apt, dnf, apk, brew, pip, npm) → its packages; `commands` → lines to show as they are."""
    version: list[VersionSource] = []
    """Ways to learn the version; when absent the need called like the contender is asked, else its first module."""
    capabilities: BrokerCapabilities = BrokerCapabilities()
    ports: Annotated[dict[Name, Annotated[int, Field(ge=0, le=65535)]], BeforeValidator(_free_ports)]
    """Names of ports to be chosen, or name → number for ports that are as they are."""
    endpoints: dict[EndpointKey, str] = Field(min_length=1)
    """For MQTT the transport (tcp, ws), else the protocol (http, websocket, coap, amqp, udp) → URL."""
    credentials: Credentials | None = None
    run: Run
    beside: Annotated[dict[Name, Companion], BeforeValidator(_shipped)] = {}
    """What must run with it: a list of contenders, or name → contender or program."""
    files: dict[str, str] = {}
    """What all profiles write in `${dir}`: a text, {file: PATH} for that of a file beside this one, or a list."""
    profiles: dict[Profile, ProfileSpec] = {}
    tls: TlsSpec | None = None
    ready: Ready = Ready()
    stop: Stop = Stop()
    services: dict[str, Annotated[Service, BeforeValidator(_processes_alone)]] = {}
    """Service → names of its processes, or all that is known of it; when absent one service has them all."""
    logs: list[str] = []
    """Log files it writes itself (glob in `${dir}`, not above); what it prints is always kept."""
    hints: list[FailureHint] = []
    model: Model | None = None
    """What topics become in it; when absent every topic is a resource, `${resource}`, without attributes."""
    register_: Register | None = Field(default=None, alias="register")
    """What the controller says before and after a run."""
    speak: Speak | None = None
    """How it is spoken to, protocol by protocol; absent for a protocol, its plain publish and subscribe are used."""
    pairing: Pairing | None = None

    @model_validator(mode="before")
    @classmethod
    def _what_goes_without_saying(cls, data: Any) -> Any:
        if not isinstance(data, dict):
            return data
        profiles = data.get("profiles", {})
        if isinstance(profiles, dict):
            stock = {"about": "As it comes; nothing is set."}
            profiles = {"stock": stock, "tuned": {"about": "Not tuned: the same as stock."}, **profiles}
        given = {"profiles": profiles}
        if "services" not in data and isinstance(data.get("name"), str):
            given["services"] = {data["name"]: ["*"]}
        return {**data, **given}

    @classmethod
    def find(cls, name: str) -> Contender:
        """The contender of that name, or the one a `.yaml` file of that path describes."""
        from battlebrokers.contenders.reader import find_contender  # the reader needs this module

        return find_contender(name)

    def able(self, version: str) -> BrokerCapabilities:
        """What that version honours, with the transports of its endpoints."""
        able = self.capabilities.of(version)
        if able.transports:
            return able
        offered = [*self.endpoints, *(self.tls.endpoints if self.tls is not None else ())]
        return able.model_copy(update={"transports": [key for key in offered if key in MQTT_TRANSPORTS]})
