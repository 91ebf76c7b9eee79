"""What a CoAP link says: plain PUT and GET of topics, or a contender's dialect, as codes, options and bodies.

Used by the link; pure. Options of a topic are encoded once and kept.
"""

from __future__ import annotations

import ipaddress
from dataclasses import dataclass

from battlebrokers.protocols.base import Endpoint, Failure, LinkOptions
from battlebrokers.protocols.coap.message import (
    CONTENT_FORMAT,
    JSON_FORMAT,
    METHODS,
    URI_HOST,
    Message,
    Option,
    encoded_options,
    option_number,
    option_value,
    path_options,
    topic_options,
)
from battlebrokers.protocols.phrase import MISSING, Value, fits, read_json
from battlebrokers.protocols.script import Known, Say
from battlebrokers.protocols.wrapping import Request, kept, publishing


@dataclass(frozen=True, slots=True)
class Ask:
    """A request, ready to go; `url_bytes` is the length of its whole URL, sent or not."""

    code: int
    options: list[Option]
    encoded: bytes
    body: bytes
    url_bytes: int


def host_options(endpoint: Endpoint) -> list[Option]:
    """The host's name, where it is one: servers at addresses want none."""
    try:
        ipaddress.ip_address(endpoint.host)
    except ValueError:
        return [(URI_HOST, endpoint.host.encode())] if endpoint.host != "localhost" else []
    return []


def origin_bytes(endpoint: Endpoint) -> int:
    """How long scheme, host and port of a URL are."""
    return len(f"coap://{endpoint.authority}")


class Plain:
    """PUT of one topic."""

    __slots__ = ("encoded", "options", "url_bytes")

    def __init__(self, endpoint: Endpoint, topic: str) -> None:
        path = topic_options(endpoint.path, topic)
        self.options = [*host_options(endpoint), *path]
        self.encoded = encoded_options(self.options)
        self.url_bytes = origin_bytes(endpoint) + sum(len(value) + 1 for _, value in path)

    def ask(self, payload: bytes, _: str) -> Ask:
        """The request for one message."""
        return Ask(METHODS["put"], self.options, self.encoded, payload, self.url_bytes)


class Wrapped:
    """The publish of a dialect for one topic."""

    __slots__ = ("_endpoint", "_request")

    def __init__(self, endpoint: Endpoint, request: Request) -> None:
        self._endpoint = endpoint
        self._request = request

    def ask(self, payload: bytes, number: str) -> Ask:
        """The request for one message."""
        return asked(self._endpoint, self._request, {"payload": payload, "id": number, "seq": number})


def wrapped(endpoint: Endpoint, say: Say, options: LinkOptions, topic: str, learned: Known) -> Wrapped:
    """A dialect's publish of a topic, with all folded in that stays."""
    return Wrapped(endpoint, publishing(say, options, topic, learned=learned, url=True))


def asked(endpoint: Endpoint, request: Request, values: dict[str, Value]) -> Ask:
    """A rendered request as codes and options."""
    target, body, headers = request.render(values)
    address = endpoint.path.rstrip("/") + target.decode("utf-8", "replace")
    options = [*host_options(endpoint), *path_options(address)]
    for name, value in headers:
        number = option_number(name)
        options.append((number, option_value(number, value)))
    if request.say.json is not None and all(number != CONTENT_FORMAT for number, _ in options):
        options.append((CONTENT_FORMAT, JSON_FORMAT))
    return Ask(
        METHODS.get(request.say.verb, 2), options, encoded_options(options), body, origin_bytes(endpoint) + len(address)
    )


def judged(say: Say | None, status: int, message: Message | None) -> int:
    """0 when an answer is what the dialect calls a success; else the status, or UNEXPECTED."""
    if status < 0 or message is None:
        return status if status < 0 else Failure.CLOSED
    if say is not None and say.statuses:
        if status not in say.statuses:
            return status
    elif status // 100 != 2:
        return status
    if say is not None and say.success and not fits(read_json(message.payload), say.success):
        return Failure.UNEXPECTED
    return 0


def learned_from(say: Say, message: Message) -> Known | str:
    """What an answer gives to remember, or the name it does not have."""
    document = read_json(message.payload) if message.payload else MISSING
    return kept(say, document, message.named_options(), message.status)
