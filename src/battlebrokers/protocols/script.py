"""A contender's dialect as its links see it: what to say for each act, and how to read what comes back. Plain data.

Made by `contenders.dialogue` from a contender's file, sent to workers, compiled by `protocols.phrase`. It speaks no
protocol and knows no broker.
"""

from __future__ import annotations

from typing import Any, Literal

import msgspec

Verb = Literal["get", "post", "put", "patch", "delete", "head", "options", "send", "publish", "subscribe"]
"""`subscribe` (MQTT, AMQP) asks the broker for the topic or routing key in `target`."""
Way = Literal["push", "callback", "stream", "poll", "observe"]
"""How notifications reach a client: on its own connection, at a listener of ours that the middleware calls, in a
response that never ends, in answers to repeated requests, or as CoAP notifications."""

ANSWER_WITHIN_S = 30.0
"""Unless a contender's file says otherwise."""


class Say(msgspec.Struct, frozen=True, omit_defaults=True):
    """One thing to say, and what the answer must be. Texts are templates with `${name}`."""

    verb: Verb
    target: str = ""
    """The path and query (HTTP, CoAP), the topic (MQTT) or routing key (AMQP); nothing for WebSocket."""
    headers: dict[str, str] = {}
    """HTTP headers; CoAP options by number or name; AMQP headers."""
    json: Any = None
    """A structure with templates in its texts; it is sent as JSON."""
    text: str | None = None
    """A text instead of `json`; `${payload}` alone is the payload's bytes as they are."""
    statuses: list[int] = []
    """What counts as success; none: every 2xx (HTTP) or 2.xx (CoAP, as 200 + detail)."""
    success: dict[str, Any] = {}
    """Path → value, which an answer (WebSocket, MQTT, or a JSON body) must have to be a success."""
    answer: dict[str, Any] | None = None
    """WebSocket and MQTT: path → value by which the answer is known; None: nobody answers, it is done when written."""
    keep: dict[str, str] = {}
    """Name → where its value stands in the answer: `$.json.path`, `header:Name`, `status`, each with ` ~ regex`."""
    repeat: bool = False
    """Said once for every topic concerned (subscriptions of brokers without wildcards)."""


class Notification(msgspec.Struct, frozen=True, omit_defaults=True):
    """How to know a notification, and where its parts are."""

    when: dict[str, Any] = {}
    """Path → value it must have; a value of None only demands that the path exists. Empty: everything is one."""
    each: str = ""
    """Path of a list of which every element is one message; the paths below then start at the element."""
    payload: str = ""
    """Path of the payload; empty: the whole body is the payload."""
    encoding: Literal["base64", "hex", "text", "raw"] = "raw"
    """How the payload is written there; must fit what `publish` says."""
    topic: str = ""
    """Path of the topic or resource name, where there is one."""
    answer: Say | None = None
    """What the middleware wants to hear for each notification (callback: status and headers; MQTT: a message).

    The first of `statuses` is the status to answer with (none: 200); `keep` takes values out of the notification
    (`$.path`, `header:Name`) for the templates of this answer. Over HTTP its verb says nothing.
    """


class Listening(msgspec.Struct, frozen=True, omit_defaults=True):
    """How a client subscribes and is told."""

    way: Way = "push"
    steps: list[Say] = []
    """Said in order when it subscribes."""
    fetch: Say | None = None
    """The request that streams, polls or observes."""
    wildcards: bool = False
    """Whether `${filter}` may have wildcards; if not, a client subscribes to every topic its filters match."""
    undo: list[Say] = []
    """Said when it unsubscribes or leaves."""
    quiet: bool = False
    """CoAP: nothing is said until there is news; an empty acknowledgement grants, and the first value is no old one."""
    at: str = ""
    """UDP: a template of the address to listen at, `:port` or `a.b.c.d:port`; empty: the link's own socket."""


class Script(msgspec.Struct, frozen=True, omit_defaults=True):
    """All acts of one protocol."""

    protocol: str
    login: list[Say] = []
    """Said by devices and clients right after connecting."""
    publish: Say | None = None
    listening: Listening | None = None
    notification: Notification = Notification()
    logout: list[Say] = []
    ids: str = ""
    """WebSocket and MQTT: where the id of a request (`${id}`) stands in its answer; empty: answers come in order."""
    username: str = ""
    password: str = ""
    """Templates for protocols that log in when connecting (MQTT, AMQP)."""
    headers: dict[str, str] = {}
    """Sent with every request, or with the WebSocket handshake."""
    subprotocol: str = ""
    """Of the WebSocket handshake."""
    replies: str = ""
    """MQTT: the topic on which answers come, subscribed to before logging in."""
    namespace: str = ""
    """UDP: a template of the network namespace the sockets live in; empty: ours."""
    to: str = ""
    """UDP: a template of the address a topic's datagrams go to; empty: the endpoint's."""
    window: int = 0
    """Requests a device may have in flight at once; 0: the scenario's."""
    answer_within_s: float = ANSWER_WITHIN_S
    """How long an answer may take before its request counts as failed."""


Known = dict[str, str | list[str]]
"""Values a node's templates may use; a list makes a JSON list of one element repeat it for each."""
