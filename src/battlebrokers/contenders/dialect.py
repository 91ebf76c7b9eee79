"""How a contender wants to be spoken to: the models behind `register` and `speak` of a contender file.

Read by `reader`, checked by `dialect_checks`, turned into plain data for links and the controller by `dialogue`.
"""

from __future__ import annotations

import re
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BeforeValidator, Field, model_validator

from battlebrokers.contenders.strict import OneOrMany, Strict
from battlebrokers.protocols.script import ANSWER_WITHIN_S, Verb, Way

REQUESTS: tuple[Verb, ...] = ("get", "post", "put", "patch", "delete", "head", "options")
VERBS: tuple[Verb, ...] = (*REQUESTS, "send", "publish", "subscribe")

Protocol = Literal["mqtt", "http", "websocket", "coap", "amqp", "udp"]

_PATH = re.compile(r"\$(\.[^.\[\]]+|\[-?\d+\])*")


def _a_path(text: str) -> str:
    if not _PATH.fullmatch(text):
        raise ValueError("is not a path such as $.data[0].value")
    return text


def _a_source(text: str) -> str:
    source, _, pattern = text.partition(" ~ ")
    if source != "status" and not source.startswith("header:"):
        _a_path(source)
    try:
        groups = re.compile(pattern).groups
    except re.error as error:
        raise ValueError(f"{pattern} is not a regular expression: {error}") from None
    if groups > 1:
        raise ValueError("the expression may have one (group)")
    return text


def _as_text(value: Any) -> Any:
    return str(value) if isinstance(value, int) and not isinstance(value, bool) else value


def expected(value: Any) -> Any:
    """`is: 201`, `is: [200, 201]` and `is: {status: 200, $.path: value}` are all the same model."""
    if isinstance(value, bool) or not isinstance(value, int | list | dict):
        raise ValueError("is a status, a list of statuses, or {path: value}")  # noqa: TRY004 - pydantic's way
    if isinstance(value, dict):
        statuses = value.get("status", [])
        paths = {path: wanted for path, wanted in value.items() if path != "status"}
        return {"statuses": statuses if isinstance(statuses, list) else [statuses], "paths": paths}
    return {"statuses": value if isinstance(value, list) else [value]}


SAY_NOTHING_BY_THEMSELVES = ("http", "websocket")
"""Protocols without a publish and subscribe of their own: only a dialect gives them one."""
PathText = Annotated[str, AfterValidator(_a_path)]
Pattern = dict[PathText, Any]
"""Path → the value that stands there; written `"*"` it only has to be there."""
Headers = dict[str, Annotated[str, BeforeValidator(_as_text)]]


class Expected(Strict):
    """What counts as success: statuses, values in the answer, or both."""

    statuses: list[Annotated[int, Field(ge=100, le=599)]] = []
    paths: Pattern = {}


class Step(Strict):
    """One thing to say, and what must come back. Texts are templates with `${name}`."""

    get: str | None = None
    """The path and query of a request (HTTP, CoAP); likewise post, put, patch and delete; head and options (HTTP)."""
    post: str | None = None
    put: str | None = None
    patch: str | None = None
    delete: str | None = None
    head: str | None = None
    options: str | None = None
    send: Any = None
    """A message (WebSocket, UDP): a structure is sent as JSON, a text as it is."""
    publish: str | None = None
    """The topic (MQTT) or routing key (AMQP) of a message."""
    subscribe: str | None = None
    """The topic to ask the broker for (MQTT), or the key a client's queue is bound to (AMQP, at amq.topic or
    `headers: {exchange: …}`)."""
    json_: Any = Field(default=None, alias="json")
    """A structure to send as JSON; `${payload}` in it is base64."""
    text: str | None = None
    """A text to send instead; `${payload}` in it are the payload's bytes as they are."""
    headers: Headers = {}
    """HTTP or AMQP headers, CoAP options by number or name."""
    is_: Annotated[Expected, BeforeValidator(expected)] = Field(default=Expected(), alias="is")
    """Success: a status, a list of statuses, or {path: value}; when absent every 2xx."""
    answer: Pattern | None = None
    """By what its answer is known (WebSocket, MQTT), path → value; when absent nobody answers."""
    keep: dict[Annotated[str, Field(pattern=r"^[a-z][a-z0-9_]*$")], Annotated[str, AfterValidator(_a_source)]] = {}
    """Name → where its value stands in the answer: `$.path`, `header:Name` or `status`, each with ` ~ regex`."""

    @model_validator(mode="after")
    def _one_verb_and_one_body(self) -> Step:
        if len(self.verbs) > 1:
            raise ValueError(f"says both {self.verbs[0]} and {self.verbs[1]}")
        if self.json_ is not None and self.text is not None:
            raise ValueError("say json or text")
        if self.send is not None and (self.json_ is not None or self.text is not None):
            raise ValueError("`send` holds all there is to say; json and text belong to requests")
        return self

    @property
    def verbs(self) -> list[Verb]:
        """What it does; a proper step has one."""
        return [verb for verb in VERBS if getattr(self, verb) is not None]


Steps = Annotated[list[Step], OneOrMany]


class Remove(Strict):
    """What is said at the end to clean up: clients first, then devices, attributes, resources, and the controller."""

    attribute: Steps = []
    resource: Steps = []
    device: Steps = []
    client: Steps = []
    controller: Steps = []
    """Said last and once, for what `login` made; knows `${controller.NAME}`."""


class Listing(Step):
    """Asks what the middleware has, when all is registered; how many is told by `bb brokers test` and `operations`."""

    each: PathText = "$"
    """The list in the answer whose elements are counted."""


class Register(Strict):
    """The controller's part, always over HTTP: log in, make what the run needs, clean up."""

    login: Steps = []
    """Said once; what it keeps is known everywhere as `${controller.NAME}`."""
    resource: Steps = []
    """Said once for every topic of the plan, with `model` for every resource; what it keeps is known to the topic."""
    attribute: Steps = []
    """Said after that for every attribute; needs `model`."""
    device: Steps = []
    """Said once for every device; what it keeps is known to that device."""
    client: Steps = []
    """Said once for every client; what it keeps is known to it, and to publishers as `${listener.NAME}`."""
    list_: Listing | None = Field(default=None, alias="list")
    """Said once when all is registered; knows what everybody knows."""
    remove: Remove = Remove()


class Subscribe(Strict):
    """How a client subscribes, and how it is told."""

    way: Way | None = None
    """push (WebSocket, MQTT, AMQP, UDP), observe (CoAP), or callback, stream, poll (HTTP)."""
    steps: Steps = []
    """Said in order; a step that names the topic is said for each topic, unless `wildcards`.

    Over UDP they may be requests (get, post, …) to the HTTP endpoint, and the subscription then lasts until answered.
    """
    fetch: Step | None = None
    """The request that streams, polls or observes."""
    wildcards: bool = False
    """Whether `${filter}` may hold wildcards; if not, a client subscribes to every topic its filters match."""
    undo: Steps = []
    quiet: bool = False
    """CoAP: it answers an observer only when there is news; its empty acknowledgement then is the grant."""
    at: str = ""
    """UDP: the address to listen at, such as `:${port}`, bound before the steps are said; else the own socket."""
    deaf_to: dict[Protocol, Annotated[str, Field(min_length=1)]] = {}
    """Protocol → why what is published over it is not told here; scenarios that need it are refused."""


class NotificationAnswer(Step):
    """What the middleware wants to hear for each notification: a status and headers (HTTP), or a message."""

    status: Annotated[int, Field(ge=100, le=599)] = 200


class Notified(Strict):
    """How a notification is known, and where its parts stand."""

    when: Pattern = {}
    """Path → the value it must have (`"*"`: any); when absent everything that arrives is a notification."""
    each: PathText = ""
    """A list of which every element is one message; the paths below then start at the element."""
    payload: PathText = ""
    """Where the payload stands; when absent the whole body is the payload."""
    encoding: Literal["base64", "hex", "text", "raw"] | None = None
    """How the payload is written there; when absent base64 if it has a path, else raw."""
    topic: PathText = ""
    answer: NotificationAnswer | None = None


class Speech(Strict):
    """What is said over one protocol; what is left out, the contender cannot do there."""

    headers: Headers = {}
    """Sent with every request, or with the handshake."""
    login: Steps = []
    """Said by devices and clients right after connecting."""
    publish: Step | None = None
    subscribe: Subscribe | None = None
    notification: Notified = Notified()
    logout: Steps = []
    window: Annotated[int, Field(ge=0)] = 0
    """Requests a device may have in flight at once; 0: the scenario decides."""
    answer_within_s: Annotated[float, Field(gt=0, le=3600)] = ANSWER_WITHIN_S
    """Seconds an answer may take, 30 unless said; what is answered later, or never, counts as failed (`timeout`)."""
    largest_payload_bytes: Annotated[int, Field(ge=1)] | None = None
    """What is larger it does not take over this protocol; scenarios that send it are refused. Said alone, everything
    else is as the protocol has it."""

    @property
    def is_plain(self) -> bool:
        """Whether it only says how large a payload may be."""
        return self.model_fields_set == {"largest_payload_bytes"}


class WebSocketSpeech(Speech):
    """WebSocket, with answers that are found by an id."""

    ids: PathText = ""
    """Where the id of a request (`${id}`) stands in its answer; when absent answers come in order."""
    subprotocol: str = ""


class MqttSpeech(Speech):
    """MQTT with a contender's own topics and messages."""

    username: str = ""
    password: str = ""
    ids: PathText = ""
    replies: str = ""
    """The topic answers come on, subscribed to before logging in."""


class AmqpSpeech(Speech):
    """AMQP 0-9-1 with a contender's own routing keys. Nobody answers a message: what is said when logging in, undoing
    or logging out is published, and has no `is`, `answer` or `keep`."""

    username: str = ""
    password: str = ""


class UdpSpeech(Speech):
    """Datagrams, to the endpoint or to an address of each topic. Subscribing may be said over HTTP."""

    namespace: str = ""
    """The network namespace (`ip netns`) its sockets live in; when absent ours."""
    to: str = ""
    """Where a topic's datagrams go, such as `${address}:${port}`; when absent to the endpoint."""


class Speak(Strict):
    """What is said over each protocol."""

    http: Speech | None = None
    websocket: WebSocketSpeech | None = None
    mqtt: MqttSpeech | None = None
    coap: Speech | None = None
    amqp: AmqpSpeech | None = None
    udp: UdpSpeech | None = None

    @property
    def spoken(self) -> dict[str, Speech]:
        """Protocol → speech, for those that have one."""
        found = ((name, getattr(self, name)) for name in type(self).model_fields)
        return {name: speech for name, speech in found if speech is not None}


WAYS: dict[str, tuple[Way, ...]] = {
    "http": ("callback", "stream", "poll"),
    "websocket": ("push",),
    "mqtt": ("push",),
    "coap": ("observe",),
    "amqp": ("push",),
    "udp": ("push",),
}
"""How notifications can reach a client over each protocol."""

SAID_OVER: dict[str, tuple[Verb, ...]] = {
    "http": REQUESTS,
    "coap": ("get", "post", "put", "patch", "delete"),
    "websocket": ("send",),
    "udp": ("send",),
    "mqtt": ("publish", "subscribe"),
    "amqp": ("publish", "subscribe"),
}
"""What can be said over each protocol."""

SUBSCRIBED_OVER: dict[str, tuple[Verb, ...]] = {**SAID_OVER, "udp": ("send", *REQUESTS)}
"""What can be said to subscribe: nobody answers datagrams, so that may go over HTTP."""
