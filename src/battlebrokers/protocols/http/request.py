"""What a dialect says, made ready for HTTP: requests rendered to bytes, and answers judged by what they must say.

Compiled once for each script and endpoint, bound to each node's values, used by the links. Pure; opens nothing.
"""

from __future__ import annotations

import re
from collections import OrderedDict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

from battlebrokers.protocols.base import Completion, Endpoint, Failure
from battlebrokers.protocols.http.head import Head
from battlebrokers.protocols.phrase import MISSING, Phrase, Value, fits, picked, plain, read_json, structure
from battlebrokers.protocols.script import Say, Script
from battlebrokers.secrets import remember_named

PAYLOAD = "payload"
_RAW = "${payload}"
_CONTROL = re.compile(rb"[\x00-\x1f\x7f]")
_NOT_IN_TARGET = re.compile(rb"[\x00-\x20\x7f]")
_BODILESS = frozenset({"get", "delete", "head", "options"})
_CACHED_DIALECTS = 32


class Rendered(NamedTuple):
    """A request as bytes, and the sizes of its parts."""

    data: bytes
    url_bytes: int
    structure_bytes: int


@dataclass(frozen=True, slots=True)
class Call:
    """One request, with what is still to be filled in."""

    say: Say
    target: Phrase
    settled: bytes
    """The headers with nothing left to fill in, each with its line end."""
    lines: tuple[Phrase, ...]
    """The other headers."""
    body: Phrase | None
    is_raw: bool
    """The body is nothing but the payload."""
    statuses: frozenset[int]
    needs_document: bool
    """Whether its answer has to be read, not only its status."""
    origin_bytes: int
    """Scheme, host and port of its URL."""
    names: frozenset[str]
    """What is still to be filled in."""
    head: bytes | None = None
    """Everything before the body's length, when nothing is left to fill in there."""
    url_bytes: int = 0

    @property
    def title(self) -> str:
        """For messages."""
        return f"{self.say.verb.upper()} {self.say.target}"

    def bind(self, known: Mapping[str, Value]) -> Call:
        """The same with these values folded in for good."""
        target = self.target.bind(known)
        body = None if self.body is None else self.body.bind(known)
        lines = [line.bind(known) for line in self.lines]
        settled = self.settled + b"".join([_line(line.render({})) for line in lines if not line.names])
        open_lines = tuple(line for line in lines if line.names)
        head, url_bytes = None, 0
        if not target.names and not open_lines:
            head, url_bytes = self._head(target.render({}), settled)
        return replace(
            self, target=target, settled=settled, lines=open_lines, body=body, head=head, url_bytes=url_bytes,
            names=_names(target, body, *open_lines),
        )  # fmt: skip

    def _head(self, target: bytes, lines: bytes) -> tuple[bytes, int]:
        target = _NOT_IN_TARGET.sub(lambda found: b"%%%02X" % found[0][0], target)
        head = b"%b %b HTTP/1.1\r\n%b" % (self.say.verb.upper().encode(), target, lines)
        return head, self.origin_bytes + len(target)

    def render(self, values: Mapping[str, Value]) -> Rendered:
        """The request; every name must be in `values`."""
        head, url_bytes = self.head, self.url_bytes
        if head is None:
            lines = b"".join([self.settled, *(_line(line.render(values)) for line in self.lines)])
            head, url_bytes = self._head(self.target.render(values), lines)
        if self.body is None:
            ending = b"\r\n" if self.say.verb in _BODILESS else b"Content-Length: 0\r\n\r\n"
            return Rendered(head + ending, url_bytes, 0)
        body: Any = values[PAYLOAD] if self.is_raw else self.body.render(values)
        return Rendered(b"%bContent-Length: %d\r\n\r\n%b" % (head, len(body), body), url_bytes, len(body))

    def missing(self, *later: str) -> list[str]:
        """The names nobody knows yet, besides those that come later."""
        return sorted(self.names.difference(later))

    def succeeds(self, status: int) -> bool:
        """Whether the status is one of those that say yes."""
        return status in self.statuses if self.statuses else 200 <= status < 300

    def judge(self, head: Head, body: bytes) -> tuple[Completion, int, Any]:
        """How it ended, the reason, and the answer's document where one is needed."""
        status = head.status
        if not self.succeeds(status):
            return Completion.REFUSED, status, MISSING
        if not self.needs_document:
            return Completion.ACKED, status, MISSING
        document = read_json(body)
        if self.say.success and (document is MISSING or not fits(document, self.say.success)):
            return Completion.FAILED, Failure.UNEXPECTED, document
        return Completion.ACKED, status, document

    def kept(self, head: Head, document: Any) -> dict[str, str]:
        """The values its answer leaves behind; those the answer does not have are absent."""
        found = ((name, picked(where, document, head.headers, head.status)) for name, where in self.say.keep.items())
        kept = {name: value for name, value in found if value is not None}
        remember_named(kept)
        return kept


def compile_call(say: Say, endpoint: Endpoint, headers: Mapping[str, str]) -> Call:
    """A call with nothing filled in; InputError when its templates make no sense."""
    target = plain(endpoint.path.rstrip("/") + say.target, url=True)
    own = {name.lower() for name in say.headers}
    every = {name: value for name, value in headers.items() if name.lower() not in own} | say.headers
    given = {name.lower() for name in every}
    lines = [] if "host" in given else [f"Host: {endpoint.authority}"]
    body: Phrase | None = None
    if say.json is not None:
        body = structure(say.json)
    elif say.text is not None:
        body = plain(say.text)
    if body is not None and "content-type" not in given:
        kind = "application/json" if say.json is not None else "text/plain; charset=utf-8"
        lines.append(f"Content-Type: {'application/octet-stream' if say.text == _RAW else kind}")
    lines += [f"{name}: {value}" for name, value in every.items()]
    needs_document = bool(say.success or any(where.startswith("$") for where in say.keep.values()))
    phrases = tuple(plain(line) for line in lines)
    names = _names(target, body, *phrases)
    is_raw = say.text == _RAW
    origin_bytes = len(f"{'https' if endpoint.transport == 'tls' else 'http'}://{endpoint.authority}")
    call = Call(say, target, b"", phrases, body, is_raw, frozenset(say.statuses), needs_document, origin_bytes, names)
    # What nobody has to fill in is settled at once.
    return call.bind({})


@dataclass(frozen=True, slots=True)
class Dialect:
    """All calls of a script."""

    script: Script
    login: tuple[Call, ...] = ()
    publish: Call | None = None
    steps: tuple[Call, ...] = ()
    fetch: Call | None = None
    undo: tuple[Call, ...] = ()
    logout: tuple[Call, ...] = ()
    answer_headers: tuple[tuple[str, Phrase], ...] = ()
    """Of our answer to a notification."""
    answer_body: Phrase | None = None


_dialects: OrderedDict[tuple[int, Endpoint], Dialect] = OrderedDict()


def dialect_of(script: Script, endpoint: Endpoint) -> Dialect:
    """The calls of a script at an endpoint; compiled once for all its links."""
    # The dialect holds on to the script, so its id belongs to no other while it is here.
    key = (id(script), endpoint)
    found = _dialects.get(key)
    if found is None:
        found = _dialects[key] = _compiled(script, endpoint)
        if len(_dialects) > _CACHED_DIALECTS:
            _dialects.popitem(last=False)
    return found


def _compiled(script: Script, endpoint: Endpoint) -> Dialect:
    def ready(says: Iterable[Say]) -> tuple[Call, ...]:
        return tuple(compile_call(say, endpoint, script.headers) for say in says)

    listening = script.listening
    answer = script.notification.answer or Say("post")
    answer_headers = dict(answer.headers)
    answer_body = plain(answer.text) if answer.text is not None else None
    if answer.json is not None:
        answer_headers.setdefault("Content-Type", "application/json")
        answer_body = structure(answer.json)
    return Dialect(
        script,
        login=tuple(
            compile_call(say, endpoint, _known_headers(script, place)) for place, say in enumerate(script.login)
        ),
        publish=next(iter(ready([script.publish])), None) if script.publish else None,
        steps=ready(listening.steps) if listening else (),
        fetch=next(iter(ready([listening.fetch])), None) if listening and listening.fetch else None,
        undo=ready(listening.undo) if listening else (),
        logout=ready(script.logout),
        answer_headers=tuple((name, plain(value)) for name, value in answer_headers.items()),
        answer_body=answer_body,
    )


def _known_headers(script: Script, place: int) -> dict[str, str]:
    """The headers of every request that can be said with a step of the login: not what it is there to find out."""
    later = {name for say in script.login[place:] for name in say.keep}
    later -= {name for say in script.login[:place] for name in say.keep}
    return {name: value for name, value in script.headers.items() if later.isdisjoint(plain(value).names)}


def _names(*phrases: Phrase | None) -> frozenset[str]:
    return frozenset().union(*(phrase.names for phrase in phrases if phrase is not None))


def _line(text: bytes) -> bytes:
    """A header's line: nobody's value begins a header of its own."""
    return _CONTROL.sub(b" ", text) + b"\r\n"
