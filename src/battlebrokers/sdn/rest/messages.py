"""What goes over REST: requests checked, answers described. Pydantic models, and nothing else."""

from __future__ import annotations

from typing import Annotated

from pydantic import AfterValidator, AliasChoices, BaseModel, ConfigDict, Field

from battlebrokers.errors import InputError
from battlebrokers.sdn.core.addresses import host_ipv4, mac
from battlebrokers.sdn.core.resources import Mode, Resource, Source

_LARGEST_TEXT = 1400
_LONGEST_NAME = 1024
_FIRST_PORT, _PORTS = 20_000, 10_000
"""Below those the system gives to sockets that ask for none."""


def port_of(resource: Resource) -> int:
    """The UDP port a resource is best spoken to at; any other works as well."""
    return _FIRST_PORT + resource.id % _PORTS


def _checked_mac(text: str) -> str:
    try:
        return mac(text)
    except InputError as fault:
        raise ValueError(f"{fault.message}: {fault.hint}") from fault


def _checked_ipv4(text: str) -> str:
    try:
        return host_ipv4(text)
    except InputError as fault:
        raise ValueError(f"{fault.message}: {fault.hint}") from fault


def _one_packet(text: str) -> str:
    size = len(text.encode())
    if size > _LARGEST_TEXT:
        raise ValueError(f"{size} bytes do not fit into one packet: at most {_LARGEST_TEXT}")
    return text


Mac = Annotated[str, AfterValidator(_checked_mac), Field(examples=["00:00:00:00:00:01"])]
HostAddress = Annotated[str, AfterValidator(_checked_ipv4), Field(examples=["10.0.0.1"])]


class Request(BaseModel):
    """Something asked; unknown keys are mistakes."""

    model_config = ConfigDict(extra="forbid")


class NewResource(Request):
    """A resource to create."""

    mode: Annotated[Mode | None, Field(description="When absent that of the service, usually tree.")] = None
    source: Source = Source.PUBLISHER
    name: Annotated[str, Field(max_length=_LONGEST_NAME, description="Such as an MQTT topic; no two are the same.")] = (
        ""
    )


class ChangedResource(Request):
    """What is to be different."""

    mode: Mode | None = None
    source: Source | None = None


class Subscription(Request):
    """A subscriber, by the addresses of its interface."""

    mac: Mac
    ipv4: HostAddress


class TestMessage(Request):
    """A message to publish from the controller, for trying out."""

    __test__ = False

    text: Annotated[str, Field(max_length=_LARGEST_TEXT), AfterValidator(_one_packet)] = "hello"
    port: Annotated[int, Field(ge=1, le=65535)] = 5005


class OriginalResource(Request):
    """The original's way to name a resource."""

    resource: str


class OriginalSubscriber(BaseModel):
    """The original's way to subscribe: as its paper says it, or as its program took it."""

    model_config = ConfigDict(extra="forbid")

    ipv4: HostAddress = Field(validation_alias=AliasChoices("IpAddress", "address"))
    mac: Mac = Field(validation_alias=AliasChoices("MACAddress", "MAC"))


class OriginalLeaver(BaseModel):
    """The original's way to unsubscribe."""

    model_config = ConfigDict(extra="forbid")

    mac: Mac = Field(validation_alias=AliasChoices("MAC", "MACAddress"))


class SubscriberAnswer(BaseModel):
    """One subscriber."""

    mac: str
    ipv4: str
    seen_at: str = Field(description="Switch and port, such as s1:2; empty as long as nobody has seen it.")


class ResourceAnswer(BaseModel):
    """One resource with what it has done."""

    address: str
    id: int
    name: str
    port: int = Field(description="A UDP port of its own: a host with several subscriptions tells them apart by it.")
    mode: Mode
    source: Source
    subscribers: list[SubscriberAnswer]
    published: int
    delivered: int
    refused: int = Field(description="Messages its own subscribers tried to publish.")
    dropped: int = Field(
        description="Those, and in reactive and direct mode messages over the limit and copies for switches that are "
        "away or do not keep up."
    )
    pending: list[int] = Field(description="Switches that do not follow its last changes yet.")


class SwitchAnswer(BaseModel):
    """One switch."""

    number: int
    connected: bool
    description: str
    ports: list[int]
    rules: int
    groups: int
    packet_ins: int
    packet_outs: int
    errors: int
    malformed: int


class LinkAnswer(BaseModel):
    """One link, by its ends."""

    ends: tuple[tuple[int, int], tuple[int, int]]
    packets: int = Field(description="Packets that crossed it in both directions.")


class HostAnswer(BaseModel):
    """One host."""

    mac: str
    ipv4: str
    switch: int
    port: int


class TopologyAnswer(BaseModel):
    """The network as the broker sees it."""

    switches: list[SwitchAnswer]
    links: list[LinkAnswer]
    hosts: list[HostAnswer]


class StatisticsAnswer(BaseModel):
    """What happened since the controller started."""

    resources: dict[str, ResourceAnswer]
    drops: dict[str, int] = Field(description="Frames dropped, by kind, in switches and in the controller.")
    refused_questions: int = Field(description="Questions of switches beyond the limit, not looked at.")
    packet_ins: int
    packet_outs: int
    malformed: int
