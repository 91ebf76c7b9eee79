"""How a contender wraps messages, made ready for one node: requests from `Say`, payloads out of notifications.

Used by links with a dialect. A name nobody knows raises InputError here, before anything is sent.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any

import msgspec

from battlebrokers.protocols.base import LinkOptions
from battlebrokers.protocols.phrase import (
    MISSING,
    Phrase,
    Value,
    at_path,
    fits,
    payload_of,
    picked,
    plain,
    read_json,
    structure,
)
from battlebrokers.protocols.script import Known, Notification, Say, Script
from battlebrokers.secrets import remember_named

_ODD = re.compile(r"[^A-Za-z0-9_-]")

Compiled = tuple[Phrase, Phrase | None, list[tuple[str, Phrase]]]

# A fleet shares one Script: its templates are compiled once a process, and bound to each node's values after that.
_compiled: dict[int, tuple[Say, Compiled]] = {}
_MOST_COMPILED = 256
_completed: dict[int, tuple[Script, Script]] = {}


def resource_of(topic: str) -> str:
    """The topic as a name that every middleware takes."""
    return _ODD.sub("-", topic)


def _phrases(say: Say, *, url: bool) -> Compiled:
    found = _compiled.get(id(say))
    if found is not None and found[0] is say:
        return found[1]
    body = structure(say.json) if say.json is not None else plain(say.text) if say.text is not None else None
    made: Compiled = (plain(say.target, url=url), body, [(name, plain(value)) for name, value in say.headers.items()])
    if len(_compiled) >= _MOST_COMPILED:
        _compiled.clear()
    _compiled[id(say)] = (say, made)
    return made


def completed(script: Script | None) -> Script | None:
    """The script with its general headers in every request; the same object again for the same script."""
    if script is None or not script.headers:
        return script
    found = _completed.get(id(script))
    if found is not None and found[0] is script:
        return found[1]

    def full(say: Say) -> Say:
        return msgspec.structs.replace(say, headers={**script.headers, **say.headers})

    listening = script.listening
    if listening is not None:
        listening = msgspec.structs.replace(
            listening,
            steps=[full(say) for say in listening.steps],
            fetch=full(listening.fetch) if listening.fetch is not None else None,
            undo=[full(say) for say in listening.undo],
        )
    made = msgspec.structs.replace(
        script,
        login=[full(say) for say in script.login],
        publish=full(script.publish) if script.publish is not None else None,
        listening=listening,
        logout=[full(say) for say in script.logout],
        headers={},
    )
    if len(_completed) >= _MOST_COMPILED:
        _completed.clear()
    _completed[id(script)] = (script, made)
    return made


class Request:
    """One `Say` bound to what a node knows; what changes with each message is filled in when it is rendered."""

    __slots__ = ("body", "headers", "say", "target")

    def __init__(self, say: Say, known: Known, later: Iterable[str], *, url: bool = False) -> None:
        target, body, headers = _phrases(say, url=url)
        names = tuple(later)
        self.say = say
        self.target = target.bind(known).require(*names)
        self.body = body.bind(known).require(*names) if body is not None else None
        self.headers = [(name, value.bind(known).require(*names)) for name, value in headers]

    def render(self, values: dict[str, Value]) -> tuple[bytes, bytes, list[tuple[str, bytes]]]:
        """Target, body and headers."""
        body = self.body.render(values) if self.body is not None else b""
        return self.target.render(values), body, [(name, phrase.render(values)) for name, phrase in self.headers]


def publishing(
    say: Say, options: LinkOptions, topic: str, *, learned: Known | None = None, url: bool = False
) -> Request:
    """The publish of one topic, with all folded in that does not change from message to message."""
    return Request(say, known_about(options, topic, learned), ("payload", "id", "seq"), url=url)


def subscribing(
    say: Say, options: LinkOptions, wanted: str, *, learned: Known | None = None, url: bool = False
) -> Request:
    """One step of a subscription to a topic or filter."""
    return Request(say, {**known_about(options, wanted, learned), "filter": wanted}, ("id",), url=url)


def known_about(options: LinkOptions, topic: str, learned: Known | None = None) -> Known:
    """What templates about a topic may use."""
    of_topic = options.known_of_topics.get(topic, {})
    # What a contender makes of a topic goes before what a topic is called without a word from it.
    return {**options.known, **(learned or {}), "topic": topic, "resource": resource_of(topic), **of_topic}


def kept(say: Say, document: Any, headers: dict[str, str], status: int) -> Known | str:
    """What an answer gives to remember, or the name it does not have."""
    values: Known = {}
    for name, where in say.keep.items():
        value = picked(where, document, headers, status)
        if value is None:
            return name
        values[name] = value
    remember_named(values)
    return values


def unwrapped(notification: Notification, body: bytes, topic: bytes) -> list[tuple[bytes, bytes]] | None:
    """Topics and payloads of a notification; nothing when it is something else, None when it cannot be read."""
    if not notification.payload and not notification.when and not notification.each and not notification.topic:
        whole = payload_of(body, notification.encoding)
        return None if whole is None else [(topic, whole)]
    document = read_json(body)
    if document is MISSING:
        return None
    if not fits(document, notification.when):
        return []
    items = at_path(document, notification.each) if notification.each else [document]
    if not isinstance(items, list):
        return None
    found: list[tuple[bytes, bytes]] = []
    for item in items:
        value = at_path(item, notification.payload) if notification.payload else item
        payload = payload_of(value, notification.encoding)
        if payload is None:
            return None
        named = at_path(item, notification.topic) if notification.topic else MISSING
        found.append((named.encode("utf-8", "replace") if isinstance(named, str) else topic, payload))
    return found


def window_of(script: Script | None, options: LinkOptions, default: int) -> int:
    """Messages that may be in flight: the dialect's word, then the scenario's, then the protocol's own."""
    if script is not None and script.window:
        return script.window
    return options.inflight if options.inflight < LinkOptions("").inflight else default
