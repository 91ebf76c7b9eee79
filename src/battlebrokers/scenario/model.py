"""The scenario language: every key that can be written, its kind, and one sentence about it.

`bb schema` and the reference are generated from here. Strict: unknown keys and wrong types are mistakes, zero is
zero, absent is absent. What the keys mean together is checked in `rules`; nothing here reads files or clocks.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field

from battlebrokers.errors import QuantityError
from battlebrokers.scenario import kinds as k

Protocol = Literal["mqtt", "http", "websocket", "coap", "amqp", "udp", "loopback", "auto"]
Transport = Literal["tcp", "tls", "ws", "wss"]
Session = Literal["clean", "persistent"]
Choice = Literal["round-robin", "random"]
Window = Annotated[int, Field(ge=1, le=65_535)]


class Strict(BaseModel):
    """The manners of all models here."""

    model_config = ConfigDict(strict=True, extra="forbid", frozen=True)


class Tls(Strict):
    """Certificates; paths are relative to the scenario."""

    ca: k.File | None = Field(None, description="The authority to trust; absent: this machine's.")
    certificate: k.File | None = Field(None, description="Our certificate, for mutual TLS.")
    key: k.File | None = Field(None, description="The key of our certificate.")
    check_hostname: bool = Field(True, description="Whether the broker's certificate must carry its host name.")


class Credentials(Strict):
    """Who we are to the broker: one pattern for all, or a file with a row for each."""

    username: k.UserName | None = Field(
        None, description="May use {index}, {number}, {fleet}, {device} or {client}, {env:NAME}."
    )
    password: k.Password | None = Field(None, description="Likewise; {env:NAME} keeps it out of the file.")
    csv: k.File | None = Field(
        None, description="A CSV file with columns username, password and perhaps client_id, a row for each node."
    )


class Will(Strict):
    """The message the broker sends when the node vanishes."""

    topic: k.OneTopic = Field(description="Its topic; may use the same variables as `topic`.")
    payload: k.Text = Field("", description="Its text.")
    qos: k.Qos = Field(0, description="Its quality of service.")
    retain: bool = Field(False, description="Whether the broker keeps it.")
    delay: k.Duration | None = Field(None, description="How long the broker waits before sending it (MQTT 5).")


class Away(Strict):
    """A planned absence; times count from the start of the load."""

    at: k.DurationRange = Field(description="When it leaves; a range spreads the fleet evenly over it.")
    for_: k.Duration = Field(alias="for", description="How long it stays away.")
    every: k.PositiveDuration | None = Field(None, description="Repeat this often; absent: once.")
    how: Literal["abrupt", "clean"] = Field(
        "abrupt", description="`abrupt` drops the connection as a crash would, `clean` says goodbye."
    )


class Payload(Strict):
    """What a message says: exactly one of text, value, fixed, random_bytes, template, file."""

    text: k.Text | None = Field(None, description="This text.")
    value: k.ValueRange | None = Field(None, description="A number drawn evenly from this range; decimals as written.")
    fixed: k.Fixed | None = Field(None, description="This one value.")
    random_bytes: k.Size | None = Field(
        None, description="So many random bytes, our 16-byte header included when it fits."
    )
    template: k.Template | None = Field(
        None,
        description="A text with fields such as {int:0..1}, {float:18..25:1}, {choice:a|b}, {seq}, {time}, {device}.",
    )
    file: k.File | None = Field(None, description="The content of this file.")
    encoding: k.Encoding | None = Field(
        None, description="How the content is encoded: none, base64, binhex (hexadecimal), or a charset for text."
    )
    size: k.Size | None = Field(
        None, description="For text, fixed and file: repeat or cut the content to so many bytes, header included."
    )
    stamp: bool = Field(
        True, description="Whether messages carry our 16-byte header; without it they are matched by topic and order."
    )


class Connection(Strict):
    """How nodes connect; can be said for the scenario, in `defaults`, or for one fleet."""

    protocol: Protocol | None = Field(
        None,
        description="mqtt (if absent), http, websocket, coap, amqp, udp or loopback (in memory, without a broker); "
        "auto: what the broker speaks, http first, with the QoS asked for or the highest below it that it honours.",
    )
    version: k.Version | None = Field(None, description="Of MQTT: 3.1.1 (if absent) or 5.")
    transport: Transport | None = Field(None, description="Of MQTT: tcp (if absent), tls, ws (WebSocket) or wss.")
    tls: Tls | None = Field(None, description="Certificates for encrypted connections.")
    client_id: k.ClientId | None = Field(
        None, description="A pattern, or `random 62 characters`; absent: short and unique in the run."
    )
    credentials: Credentials | None = Field(None, description="User name and password.")
    session: Session | None = Field(
        None, description="clean (if absent), or persistent: the broker remembers us while we are away."
    )
    session_expiry: k.Duration | None = Field(
        None, description="How long it remembers (MQTT 5; 1 h for a persistent session if absent)."
    )
    keep_alive: k.Duration | None = Field(
        None, description="Longest time in which we send nothing before we ping; 60s if absent, 0 means never."
    )
    inflight: Window | None = Field(
        None, description="Messages that may wait for acknowledgement at once; 65535 if absent."
    )
    receive_maximum: Window | None = Field(
        None, description="Messages the broker may have unacknowledged towards us (MQTT 5)."
    )
    source_addresses: k.Addresses | None = Field(
        None,
        description="Addresses of this machine to connect from, in turns; absent: the system's choice. One has about "
        "28 000 ports towards one broker.",
    )
    qos: k.Qos | None = Field(None, description="Quality of service of publishing or subscribing; 0 if absent.")


class Speaking(Connection):
    """How devices speak; can be said in `defaults` or for one fleet."""

    payload: Payload | None = Field(None, description="What they say.")
    every: k.Pace | None = Field(
        None, description="When: 1s, 100/s, 20s..60s, poisson 5s, burst 10 every 1s, ramp 10/s..100/s over 30s."
    )
    staggered: bool | None = Field(
        None, description="Whether alike devices take turns (if absent) or all speak at once."
    )
    at_most: k.Count | None = Field(None, description="Messages per device, then it is silent; absent: no limit.")
    topic_choice: Choice | None = Field(
        None, description="Which of several topics comes next: round-robin (if absent) or random."
    )
    retain: bool | None = Field(None, description="Whether the broker keeps the last message of a topic.")
    topic_alias: bool | None = Field(None, description="Whether to replace repeated topics by numbers (MQTT 5).")


class Defaults(Speaking):
    """What holds for every fleet that does not say otherwise; clients take the keys that concern them."""


class Fleet(Speaking):
    """A group of alike devices: they publish."""

    devices: k.Count = Field(description="How many; 0 is allowed and means none.")
    topic: k.Topics = Field(
        description="Where they publish; may use {device}, {fleet}, {index}, {number}, {category}, {run}; "
        "{int:1..5} stands for five topics."
    )
    category: k.Text | None = Field(None, description="What kind of sensor it is; the fleet's name if absent.")
    will: Will | None = Field(None, description="The message the broker sends when a device vanishes.")
    join: k.DurationRange | None = Field(
        None, description="When devices begin to speak, after the start of the load; a range spreads them."
    )
    away: Away | None = Field(None, description="A planned absence.")


class Clients(Connection):
    """A group of alike clients: they subscribe."""

    count: k.Count = Field(description="How many; 0 is allowed and means none.")
    subscribe: k.Filters = Field(
        (),
        description="Filters; may use {client}, {fleet}, {index}, {number}, {run}; {int:1..5} stands for five. "
        "Absent: they only connect.",
    )
    subscriptions: Annotated[int, Field(ge=0)] | None = Field(
        None, description="How many of the filters each client takes, round robin; absent: all."
    )
    share: k.Share | None = Field(None, description="Name of a shared group: each message goes to one of its members.")
    reads: k.Rate | None = Field(
        None, description="Messages per second it takes from its connection (a slow reader); absent: all it can."
    )
    will: Will | None = Field(None, description="The message the broker sends when a client vanishes.")
    join: k.DurationRange | None = Field(
        None, description="When clients connect and subscribe, after the start of the load; absent: before it."
    )
    away: Away | None = Field(None, description="A planned absence.")


class Phases(Strict):
    """How long everything takes; the load runs from the start of warm_up to the end of cool_down."""

    connect: k.Rate | None = Field(None, description="Connections opened per second; absent: all at once.")
    warm_up: k.Duration = Field("0s", description="Load before the measurement.")
    measure: k.Duration = Field(description="Load that is measured.")
    cool_down: k.Duration = Field("0s", description="Load after the measurement, so that its end is not special.")
    drain: k.Duration = Field(
        "10s",
        description="Longest wait for messages still under way; while they keep arriving, up to ten times as long.",
    )
    quiet: k.Duration = Field("2s", description="The drain ends early when nothing has arrived for this long.")
    until_silent: bool | None = Field(
        None, description="Whether the load ends early once every device has said all of its `at_most`."
    )


def _fleets(value: Any) -> Any:
    """Names of fleets become part of topics and options, so they are plain words."""
    if isinstance(value, dict):
        for name in value:
            if not (isinstance(name, str) and k.FLEET_NAME.fullmatch(name)):
                raise QuantityError(
                    f"{str(name)[:60]!r} cannot name a fleet", hint="letters, digits, - and _, at most 40 of them"
                )
    return value


class Scenario(Strict):
    """What should happen, said once for every broker."""

    name: k.Name = Field(description="What it is called; the file is named after it.")
    about: k.Text = Field("", description="One or two sentences for people.")
    source: k.Text | None = Field(None, description="Where the case comes from, if it is somebody else's.")
    seed: Annotated[int, Field(ge=0, le=2**63 - 1)] = Field(
        1, description="The same seed gives the same plan, byte for byte."
    )
    protocol: Protocol | None = Field(None, description="What all fleets speak unless they say otherwise; see there.")
    version: k.Version | None = Field(None, description="Of MQTT: 3.1.1 (if absent) or 5.")
    transport: Transport | None = Field(None, description="Of MQTT: tcp (if absent), tls, ws (WebSocket) or wss.")
    tls: Tls | None = Field(None, description="Certificates for encrypted connections.")
    defaults: Defaults | None = Field(None, description="What holds for every fleet that does not say otherwise.")
    fleets: Annotated[dict[str, Fleet], BeforeValidator(_fleets)] = Field(
        default_factory=dict, description="Groups of devices, by name."
    )
    clients: Annotated[dict[str, Clients], BeforeValidator(_fleets)] = Field(
        default_factory=dict, description="Groups of clients, by name."
    )
    phases: Phases = Field(description="How long everything takes.")
    repetitions: Annotated[int, Field(ge=1, le=1000)] = Field(1, description="How often to run it.")
    expect: list[k.Expected] = Field(default_factory=list, description="What must hold for a PASS.")

    def plain(self, *, reveal: bool = False) -> dict[str, Any]:
        """The scenario as plain data that could be read again: what was said, and nothing that was not.

        Secrets are masked, unless it is for another process of the same run.
        """
        return self.model_dump(mode="json", by_alias=True, exclude_none=True, context={"reveal": reveal})
