"""What a link hears in a contender's dialect: answers to its requests, notifications, nonsense, and silence.

Base class of `Talk`, which adds what is said. Hostile answers are told by kind; nothing here raises into the loop.
"""

from __future__ import annotations

import asyncio
from abc import abstractmethod
from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from battlebrokers.errors import InputError, LinkError
from battlebrokers.protocols.base import Completion, Endpoint, Failure, Link, LinkOptions, Listener
from battlebrokers.protocols.phrase import MISSING, Value, at_path, fits, payload_of, picked, read_json
from battlebrokers.protocols.script import Known, Say, Script
from battlebrokers.protocols.wheel import Wheel, patience, wheel_of
from battlebrokers.protocols.wrapping import Request, window_of

LARGEST_CODE = 32_767
_CODE_NAMES = ("code", "status", "statusCode", "rsc", "errorCode")
_DEFAULT_WINDOW = 65_535
_SHOWN_CHARACTERS = 160

Asked = tuple[Say, int, int, "asyncio.Future[Any] | None"]
"""What was said, the token of the message it carried, the tick it was said at, and who waits for the answer."""


@dataclass(frozen=True, slots=True)
class Heard:
    """Where a message came in, if there is more than one place, and so what it may be."""

    topic: bytes = b""
    flags: int = 0
    may_answer: bool = True
    may_notify: bool = True


ANYTHING = Heard()


def code_of(document: Any, expected: Iterable[str]) -> int:
    """The number with which an answer says no: what stands where success was expected, or a code beside it; or -1."""
    places = list(expected)
    beside = [f"{place.rpartition('.')[0] or '$'}.{name}" for place in places for name in _CODE_NAMES]
    for path in [*places, *beside]:
        found = at_path(document, path)
        if isinstance(found, str) and found.isascii() and found.isdigit() and len(found) < 6:
            found = int(found)
        if type(found) is int and 0 < found <= LARGEST_CODE:
            return found
    return -1


def shown(body: bytes) -> str:
    """The beginning of what a server said, for messages."""
    text = body[: _SHOWN_CHARACTERS + 1].decode("utf-8", "replace")
    return text if len(text) <= _SHOWN_CHARACTERS else f"{text[:_SHOWN_CHARACTERS]}…"


class Hearing(Link):
    """The receiving half of a conversation."""

    __slots__ = (
        "acked", "doubted", "endpoint", "full", "heard_ns", "kept", "last", "listener", "listens", "opaque", "options",
        "pending", "queues", "ready", "reply", "script", "serial", "slot", "wheel", "whole", "window",
    )  # fmt: skip

    structured = True

    def __init__(self, endpoint: Endpoint, options: LinkOptions, listener: Listener, script: Script) -> None:
        super().__init__()
        self.endpoint = endpoint
        self.options = options
        self.listener = listener
        self.script = script
        self.window = window_of(script, options, _DEFAULT_WINDOW)
        self.ready = False
        """Logged in, and not lost since."""
        self.listens = False
        """It asked for notifications."""
        self.heard_ns = 0
        """When the latest answer came."""
        self.slot = 0
        self.wheel: Wheel | None = None
        self.doubted = False
        self.kept: Known = {}
        """What answers gave to remember."""
        self.serial = 0
        """The id of the latest request."""
        self.pending: dict[int, Asked] = {}
        """Requests without an answer by their id, oldest first."""
        self.queues: dict[int, tuple[Say, deque[int]]] = {}
        """The same in order, for each kind of request, where answers carry no ids."""
        self.reply: Request | None = None
        """The answer to a notification, ready to be filled in."""
        self.full = False
        """The window was hit, and the listener has not been told of room since."""
        self.acked: list[int] = []
        self.last = b""
        """The latest message that nobody waited for."""
        notification = script.notification
        self.whole = not (notification.payload or notification.each)
        """A notification is its payload, nothing around it."""
        says = [*script.login, script.publish, *(script.listening.steps if script.listening else ())]
        readable = notification.when or notification.topic or not self.whole
        self.opaque = not readable and all(say is None or say.answer is None for say in says)
        """Whatever comes is a payload, no need to read it."""

    @abstractmethod
    def say(self, target: bytes, body: bytes) -> None:
        """Write one message of a dialogue now."""

    @abstractmethod
    def fail(self, detail: str, reason: int) -> None:
        """End the connection and tell so."""

    def known(self) -> Known:
        """What every template may use."""
        options = self.options
        known: Known = {"client_id": options.client_id, "host": self.endpoint.host}
        if options.username is not None:
            known["username"] = options.username
        if options.password is not None:
            known["password"] = options.password.reveal()
        return {**known, **options.known, **self.kept}

    def queue_of(self, say: Say) -> deque[int]:
        """The requests of one kind, in order."""
        found = self.queues.get(id(say))
        if found is None:
            found = self.queues[id(say)] = (say, deque())
        return found[1]

    # ── what comes in ────────────────────────────────────────────────────────────────────────────────────────────

    def hear(self, body: bytes, at_ns: int, wire_bytes: int, heard: Heard = ANYTHING) -> None:
        """One message came in: an answer, a notification, or nonsense. `settle` must follow."""
        if self.opaque:
            if self.listens:
                self._notified(None, body, at_ns, wire_bytes, heard)
            return
        document = read_json(body)
        script = self.script
        notification = script.notification
        if document is MISSING:
            if self.whole and self.listens and heard.may_notify and not notification.when:
                self._notified(document, body, at_ns, wire_bytes, heard)
            else:
                self._unreadable(body, at_ns, heard)
            return
        pending = self.pending if heard.may_answer else None
        if pending and script.ids:
            found = at_path(document, script.ids)
            if type(found) is str and len(found) < 20 and found.isascii() and found.isdecimal():
                found = int(found)
            asked = pending.get(found) if type(found) is int else None
            if asked is not None and (not asked[0].answer or fits(document, asked[0].answer)):
                self._answer(found, asked, document, at_ns)
                return
        is_one = fits(document, notification.when) if notification.when else None
        if not is_one and pending and not script.ids:
            for say, queue in self.queues.values():
                if queue and fits(document, say.answer or {}):
                    serial = queue.popleft()
                    asked = pending.get(serial)
                    if asked is not None:
                        self._answer(serial, asked, document, at_ns)
                    return
        if is_one or (is_one is None and self.listens and heard.may_notify):
            self._notified(document, body, at_ns, wire_bytes, heard)
        else:
            self.last = body[: _SHOWN_CHARACTERS + 1]

    def settle(self, at_ns: int) -> None:
        """Tell what the messages of one chunk have answered, and that there is room again."""
        if self.acked:
            tokens, self.acked = self.acked, []
            self.listener.acknowledged(self, tokens, at_ns, Completion.ACKED, 0)
        if self.full and self.ready and len(self.pending) < self.window:
            self.full = False
            self.listener.writable(self)

    def _answer(self, serial: int, asked: Asked, document: Any, at_ns: int) -> None:
        say, token, _, waiter = asked
        del self.pending[serial]
        self.heard_ns = at_ns
        if waiter is not None:
            if not waiter.done():
                waiter.set_result(document)
        elif not say.success or fits(document, say.success):
            self.acked.append(token)
        else:
            code = code_of(document, [*say.success, *(say.answer or ())])
            completion, reason = (Completion.REFUSED, code) if code > 0 else (Completion.FAILED, Failure.UNEXPECTED)
            self.listener.acknowledged(self, (token,), at_ns, completion, reason)

    def _unreadable(self, body: bytes, at_ns: int, heard: Heard) -> None:
        pending = self.pending if heard.may_answer else None
        # Who asked for no notifications and waits for one answer has got that answer, such as it is.
        if not pending or (self.listens and heard.may_notify) or (self.script.ids and len(pending) > 1):
            self.listener.malformed(self, f"no JSON: {shown(body)}", Failure.UNEXPECTED)
            return
        serial = next(iter(pending))
        _, token, _, waiter = pending.pop(serial)
        for _, queue in self.queues.values():
            if queue and queue[0] == serial:
                queue.popleft()
        if waiter is None:
            self.listener.acknowledged(self, (token,), at_ns, Completion.FAILED, Failure.MALFORMED)
        elif not waiter.done():
            waiter.set_exception(LinkError(f"its answer is no JSON: {shown(body)}", code=Failure.MALFORMED))

    def _notified(self, document: Any, body: bytes, at_ns: int, wire_bytes: int, heard: Heard) -> None:
        notification = self.script.notification
        items = at_path(document, notification.each) if notification.each else (document,)
        if not isinstance(items, list | tuple):
            self.listener.malformed(self, f"no list at {notification.each}: {shown(body)}", Failure.UNEXPECTED)
            items = ()
        share = wire_bytes // len(items) if items else 0
        unread = 0
        for item in items:
            found = body if self.whole else at_path(item, notification.payload) if notification.payload else item
            payload = payload_of(found, notification.encoding)
            if payload is None:
                # With an answer wanted there are messages without a payload that only ask whether somebody listens.
                unread += found is not MISSING or notification.answer is None
                continue
            named = at_path(item, notification.topic) if notification.topic else None
            topic = named.encode("utf-8", "replace") if isinstance(named, str) else heard.topic
            self.listener.arrived(self, at_ns, heard.flags, topic, payload, share)
        if unread:
            words = f"no payload in {notification.encoding} at {notification.payload or 'its place'}"
            self.listener.malformed(self, f"{words}: {shown(body)}", Failure.UNEXPECTED)
        if notification.answer is not None:
            self._reply(notification.answer, document)

    def _reply(self, say: Say, document: Any) -> None:
        self.serial += 1
        values: dict[str, Value] = {"id": self.serial, "seq": self.serial}
        for name, where in say.keep.items():
            value = picked(where, document, {}, 0)
            if value is None:
                words = f"a notification without {where}, which its answer needs"
                self.listener.malformed(self, words, Failure.UNEXPECTED)
                return
            values[name] = value
        try:
            if self.reply is None:
                known = {name: value for name, value in self.known().items() if name not in values}
                self.reply = Request(say, known, values)
            target, body, _ = self.reply.render(values)
            self.say(target, body)
        except InputError as error:
            self.listener.malformed(self, f"a notification cannot be answered: {error.message}", Failure.UNEXPECTED)
        except LinkError:
            # Whoever was told of the notification has closed the link.
            return

    # ── answers that do not come ─────────────────────────────────────────────────────────────────────────────────

    def await_answers(self) -> int:
        """Have somebody look whether answers come; the tick that is now."""
        wheel = self.wheel
        if wheel is None:
            wheel = self.wheel = wheel_of(asyncio.get_running_loop())
        if not self.slot:
            self.doubted = False
            wheel.enter(self, wheel.tick + self._patience())
        return wheel.tick

    def _patience(self) -> int:
        return patience(self.options.answer_timeout_s)

    def beat(self) -> int:
        """Is an answer overdue? Called by the wheel; returns when to look again."""
        assert self.wheel is not None
        now, patience = self.wheel.tick, self._patience()
        overdue: list[int] = []
        following = 0
        for serial, asked in self.pending.items():
            if now - asked[2] < patience:
                following = asked[2] + patience
                break
            overdue.append(serial)
        if not overdue:
            self.doubted = False
            return following
        if not self.doubted:
            # When this very process was stalled, the answers may wait in the socket: read once more, then judge.
            self.doubted = True
            return now + 1
        self.doubted = False
        self._forsake(overdue)
        return following if self.pending else 0

    def _forsake(self, serials: Sequence[int]) -> None:
        """No answer came to these in time."""
        detail = f"timeout: no answer within {self.options.answer_timeout_s:g} s"
        words = f"{detail}; the latest other message was {shown(self.last)}" if self.last else detail
        asked = [self.pending.pop(serial) for serial in serials]
        self._tell_failed(asked, words, Failure.TIMEOUT)
        if not self.script.ids and any(waiter is None for *_, waiter in asked):
            # Nobody can tell any more which answer belongs to which request.
            self.fail(f"{detail}, and later answers cannot be told apart", Failure.TIMEOUT)
        else:
            self.settle(self.listener.now_ns())

    def forget(self, serials: Iterable[int]) -> None:
        """No answer will come to these."""
        for serial in serials:
            asked = self.pending.pop(serial)
            if not self.script.ids:
                self.queue_of(asked[0]).remove(serial)

    def drop(self, detail: str, reason: int) -> None:
        """The connection is gone: what was in flight has failed."""
        self.ready = self.listens = self.full = False
        self.reply = None
        asked, self.pending = list(self.pending.values()), {}
        self.queues.clear()
        self.acked = []
        if asked:
            self._tell_failed(asked, detail, reason)
        if self.wheel is not None:
            self.wheel.leave(self)
            self.wheel = None

    def _tell_failed(self, asked: Sequence[Asked], detail: str, reason: int) -> None:
        tokens = [token for _, token, _, waiter in asked if waiter is None]
        for *_, waiter in asked:
            if waiter is not None and not waiter.done():
                waiter.set_exception(LinkError(detail, code=reason))
        if tokens:
            self.listener.acknowledged(self, tokens, self.listener.now_ns(), Completion.FAILED, reason)
