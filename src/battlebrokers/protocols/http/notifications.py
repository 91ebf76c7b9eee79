"""A notification's body becomes messages, as the contender's file says where their parts are.

Called by whatever way notifications come. Pure; what cannot be read raises Unreadable, with words.
"""

from __future__ import annotations

from typing import Any

from battlebrokers.protocols.phrase import MISSING, at_path, fits, payload_of, read_json
from battlebrokers.protocols.script import Notification

Message = tuple[bytes, bytes]
"""Topic (empty where none is told) and payload."""


class Unreadable(ValueError):  # noqa: N818 - reads as the sentence it is
    """It is no notification this contender should send; says why."""


def messages_in(notification: Notification, body: bytes) -> list[Message]:
    """The messages of a notification; none when it is something else, such as a question whether we are there."""
    if not (notification.when or notification.each or notification.payload):
        return [(b"", _payload(notification, body))]
    document = read_json(body)
    if document is MISSING:
        raise Unreadable(f"no JSON: {repr(body[:80])[1:]}")
    return messages_of(notification, document, body)


def messages_of(notification: Notification, document: Any, body: bytes) -> list[Message]:
    """The same when the body's document is known already."""
    if not fits(document, notification.when):
        return []
    if not notification.each:
        payload = at_path(document, notification.payload) if notification.payload else body
        return [(_topic(notification, document), _payload(notification, payload))]
    elements = at_path(document, notification.each)
    if not isinstance(elements, list):
        raise Unreadable(f"no list at {notification.each}")
    return [
        (_topic(notification, element), _payload(notification, at_path(element, notification.payload)))
        for element in elements
    ]


def _payload(notification: Notification, found: Any) -> bytes:
    payload = payload_of(found, notification.encoding)
    if payload is None:
        where = notification.payload or "the body"
        raise Unreadable(f"no payload in {notification.encoding} at {where}")
    return payload


def _topic(notification: Notification, document: Any) -> bytes:
    found = at_path(document, notification.topic) if notification.topic else MISSING
    return found.encode("utf-8", "replace") if isinstance(found, str) else b""
