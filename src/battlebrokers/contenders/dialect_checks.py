"""Checks of `register` and `speak` that need more than one key: verbs, ways, and every name a template uses. Pure.

Called by `reader`. A name that nobody will know when it is needed is a mistake of the file, found before anything runs.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from battlebrokers.contenders.dialect import (
    REQUESTS,
    SAID_OVER,
    SAY_NOTHING_BY_THEMSELVES,
    SUBSCRIBED_OVER,
    WAYS,
    Notified,
    Register,
    Speak,
    Speech,
    Step,
    Subscribe,
)
from battlebrokers.errors import InputError
from battlebrokers.protocols import phrase
from battlebrokers.protocols.script import Verb
from battlebrokers.scenario.patterns import nearest

KeyPath = tuple[str | int, ...]
KeyMistake = tuple[KeyPath, str, str]

RUN_NAMES = ("host", "run", "username", "password")
"""Known to everybody, the controller included."""
NODE_NAMES = (*RUN_NAMES, "name", "role", "number", "client_id", "fleet")
TOPIC_NAMES = ("topic", "resource")
ATTRIBUTE = "attribute"
"""Known of a topic where the file has a `model`."""
MESSAGE_NAMES = ("payload", "id", "seq", *TOPIC_NAMES)

_ANY_PLACEHOLDER = re.compile(r"\$\{[^}]*\}?")
_PLACEHOLDER = re.compile(r"\$\{[a-z][a-z0-9_.]*(\|[a-z0-9]+)?\}")


def kept_by(steps: Iterable[Step]) -> set[str]:
    """The names these steps keep."""
    return {name for step in steps for name in step.keep}


def check_dialect(
    register: Register, speak: Speak, addresses: Sequence[str], *, has_model: bool
) -> Iterator[KeyMistake]:
    """What is wrong with a dialect; `addresses` are the names of ports and companions."""
    yield from _Checks(register, speak, addresses, has_model=has_model).all()


class _Checks:
    def __init__(self, register: Register, speak: Speak, addresses: Sequence[str], *, has_model: bool) -> None:
        self._register = register
        self._has_model = has_model
        self._speak = speak
        called_back = any(
            speech.subscribe is not None and speech.subscribe.way == "callback" for speech in speak.spoken.values()
        )
        controller = {f"controller.{name}" for name in kept_by(register.login)}
        self._everybody = {*RUN_NAMES, *addresses, *controller}
        self._of_resource = {"resource", *([] if has_model else ["topic"])}
        self._of_topic = {*TOPIC_NAMES, *kept_by([*register.resource, *register.attribute])}
        self._of_topic |= {ATTRIBUTE} if has_model else set()
        self._node = {*NODE_NAMES, *addresses, *controller}
        self._device = self._node | kept_by(register.device)
        self._callback = {"callback"} if called_back else set()
        self._client = self._node | kept_by(register.client) | self._callback
        self._listeners = {f"listener.{name}" for name in kept_by(register.client)}

    def all(self) -> Iterator[KeyMistake]:
        yield from self._registration()
        for protocol, speech in self._speak.spoken.items():
            yield from self._speech(speech, protocol, ("speak", protocol))

    def _registration(self) -> Iterator[KeyMistake]:
        register = self._register
        first = {*RUN_NAMES, *(name for name in self._everybody if not name.startswith("controller."))}
        yield from self._in_order(register.login, ("register", "login"), first, REQUESTS)
        resource = self._everybody | self._of_resource
        yield from self._in_order(register.resource, ("register", "resource"), resource, REQUESTS)
        yield from self._attributes(resource)
        yield from self._in_order(register.device, ("register", "device"), self._node, REQUESTS)
        client = self._node | self._callback
        yield from self._in_order(register.client, ("register", "client"), client, REQUESTS)
        remove = register.remove
        resource |= kept_by(register.resource)
        yield from self._in_order(remove.resource, ("register", "remove", "resource"), resource, REQUESTS)
        yield from self._in_order(remove.device, ("register", "remove", "device"), self._device, REQUESTS)
        yield from self._in_order(remove.client, ("register", "remove", "client"), self._client, REQUESTS)

    def _attributes(self, resource: set[str]) -> Iterator[KeyMistake]:
        made, removed = self._register.attribute, self._register.remove.attribute
        known = resource | kept_by(self._register.resource) | {"topic", ATTRIBUTE}
        for steps, path in ((made, ("register", "attribute")), (removed, ("register", "remove", "attribute"))):
            if steps and not self._has_model:
                yield path, "there are no attributes without a `model`", "model: {attribute: last-level}"
            else:
                yield from self._in_order(steps, path, known, REQUESTS)
            known = known | kept_by(made)

    def _speech(self, speech: Speech, protocol: str, path: KeyPath) -> Iterator[KeyMistake]:
        if speech.is_plain and protocol not in SAY_NOTHING_BY_THEMSELVES:
            return
        verbs = SAID_OVER[protocol]
        logged_in = kept_by(speech.login)
        # What is said when connecting is said by devices and by clients, as far as either is there.
        sides = [names for names, there in ((self._device, speech.publish), (self._client, speech.subscribe)) if there]
        both = set.intersection(*sides) if sides else self._node
        for key in ("headers", "username", "password", "replies", "namespace"):
            yield from _names(getattr(speech, key, ""), (*path, key), both)
        around = _said_around(protocol)
        yield from self._in_order(speech.login, (*path, "login"), both | {"id"}, around)
        yield from self._in_order(speech.logout, (*path, "logout"), both | logged_in | {"id"}, around)
        if speech.publish is None and speech.subscribe is None:
            yield path, "says neither publish nor subscribe", ""
        if speech.publish is not None:
            known = self._device | logged_in | self._of_topic | set(MESSAGE_NAMES) | self._listeners
            yield from self._step(speech.publish, (*path, "publish"), known, verbs)
            of_topic = known - {"payload", "id", "seq"}
            yield from _address(getattr(speech, "to", ""), (*path, "to"), of_topic, "${address}:${port}")
            if speech.publish.subscribe is not None:
                yield (*path, "publish", "subscribe"), "does not publish", ""
            if not self._carries_payload(speech.publish):
                yield (*path, "publish"), "never says ${payload}", "the payload must be in json, text or send"
        if speech.subscribe is not None:
            yield from self._subscribe(speech, protocol, (*path, "subscribe"), self._client | logged_in)
        if speech.notification != Notified() and speech.subscribe is None:
            yield (*path, "notification"), "nobody is notified without `subscribe`", ""
        yield from self._notification(speech, protocol, (*path, "notification"), self._client | logged_in)
        if protocol == "amqp":
            yield from _amqp(speech, path)

    def _subscribe(self, speech: Speech, protocol: str, path: KeyPath, client: set[str]) -> Iterator[KeyMistake]:
        listening = speech.subscribe
        assert listening is not None
        verbs = SUBSCRIBED_OVER[protocol]
        ways = WAYS[protocol]
        way = listening.way or (ways[0] if len(ways) == 1 else None)
        if way is None:
            yield path, "does not say which `way`", f"over {protocol}: {', '.join(ways)}"
        elif way not in ways:
            yield (*path, "way"), f"{way} does not exist over {protocol}", f"valid: {', '.join(ways)}"
        elif way in ("stream", "poll", "observe") and listening.fetch is None:
            yield path, f"has no `fetch`, the request that {_VERB_OF[way]}", ""
        elif way in ("push", "callback") and listening.fetch is not None:
            yield (*path, "fetch"), f"nothing is fetched when notifications come by {way}", "use `steps`"
        about = {"filter"} if listening.wildcards else self._of_topic
        if listening.at and protocol != "udp":
            yield (*path, "at"), f"over {protocol} clients are told on their connection", "only UDP listens elsewhere"
        elif listening.at and listening.wildcards:
            yield (*path, "at"), "a filter with wildcards has no address", "without `wildcards` every topic has one"
        else:
            yield from _address(listening.at, (*path, "at"), client | about, ":${port}")
        known = client | about | {"id"}
        yield from self._in_order(listening.steps, (*path, "steps"), known, verbs)
        known |= kept_by(listening.steps)
        if listening.fetch is not None:
            yield from self._step(listening.fetch, (*path, "fetch"), known, verbs)
        undo_verbs = _said_around(protocol) if protocol == "amqp" else verbs
        yield from self._in_order(listening.undo, (*path, "undo"), known, undo_verbs)

    def _notification(self, speech: Speech, protocol: str, path: KeyPath, client: set[str]) -> Iterator[KeyMistake]:
        answer = speech.notification.answer
        if answer is None:
            return
        if protocol not in ("http", "websocket", "mqtt"):
            yield (*path, "answer"), f"notifications over {protocol} are not answered", ""
        known = client | kept_by([answer]) | {"id"}
        if protocol == "http":
            if answer.verbs:
                yield (*path, "answer", answer.verbs[0]), "a call is answered with status, headers and json or text", ""
            yield from _names(_said(answer), (*path, "answer"), known)
        else:
            yield from self._step(answer, (*path, "answer"), known, SAID_OVER[protocol])

    def _in_order(
        self, steps: Sequence[Step], path: KeyPath, known: set[str], verbs: Sequence[str]
    ) -> Iterator[KeyMistake]:
        """Steps said one after the other: each knows what those before it kept."""
        known = set(known)
        for number, step in enumerate(steps):
            yield from self._step(step, (*path, number), known, verbs)
            known |= set(step.keep)

    def _step(self, step: Step, path: KeyPath, known: set[str], verbs: Sequence[str]) -> Iterator[KeyMistake]:
        if not step.verbs:
            yield path, "says nothing", f"one of {', '.join(verbs)}"
        for verb in step.verbs:
            if verb not in verbs:
                yield (*path, verb), "cannot be said here", f"valid: {', '.join(verbs)}"
            target = getattr(step, verb)
            if verb in REQUESTS and not target.startswith(("/", "${")):
                yield (*path, verb), f"{target!r} is not a path", "it starts with /"
        if step.head is not None and (step.is_.paths or any(where.startswith("$") for where in step.keep.values())):
            yield (*path, "head"), "its answer has no body to look into", "statuses and `header:Name` are all it has"
        yield from _names(_said(step), path, known)

    @staticmethod
    def _carries_payload(step: Step) -> bool:
        used: set[str] = set()
        for text in _texts(_said(step)):
            used |= _used(text)
        return "payload" in used


def _said_around(protocol: str) -> tuple[Verb, ...]:
    """What can be said when coming and going: AMQP binds queues only to subscribe, and unbinds them by itself."""
    return ("publish",) if protocol == "amqp" else SAID_OVER[protocol]


def _amqp(speech: Speech, path: KeyPath) -> Iterator[KeyMistake]:
    """What other protocols can be told and AMQP has no place for: answers to messages, bodies of bindings."""
    listening = speech.subscribe or Subscribe()
    lists: dict[KeyPath, Sequence[Step]] = {
        ("login",): speech.login,
        ("subscribe", "steps"): listening.steps,
        ("subscribe", "undo"): listening.undo,
        ("logout",): speech.logout,
    }
    places = [((*path, *where, at), step) for where, steps in lists.items() for at, step in enumerate(steps)]
    if speech.publish is not None:
        places.append(((*path, "publish"), speech.publish))
    for place, step in places:
        for key in sorted({"is_", "answer", "keep"} & step.model_fields_set):
            hint = "a publish is done when the broker confirms it"
            yield (*place, key.removesuffix("_")), "nobody answers a message over amqp", hint
        if step.subscribe is None:
            continue
        for key in sorted({"json_", "text"} & step.model_fields_set):
            yield (*place, key.removesuffix("_")), "a binding carries no message", ""
        for name in sorted(step.headers.keys() - {"exchange"}):
            yield (*place, "headers", name), "a binding has no headers", "only `exchange`, the one it is made at"
    if listening.steps and not any(step.subscribe is not None for step in listening.steps):
        yield (*path, "subscribe", "steps"), "never says `subscribe`", "the routing key the client's queue is bound to"


_VERB_OF = {"stream": "streams", "poll": "polls", "observe": "observes"}


def _said(step: Step) -> dict[str, Any]:
    """The parts of a step that are templates, by the keys of the file."""
    parts: dict[str, Any] = {verb: getattr(step, verb) for verb in step.verbs}
    return {**parts, "json": step.json_, "text": step.text, "headers": step.headers}


def _texts(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        for key, item in value.items():
            yield from (key, *_texts(item))
    elif isinstance(value, list):
        for item in value:
            yield from _texts(item)


def _used(text: str) -> set[str]:
    """The names a template uses; none when it has mistakes, which are told elsewhere."""
    try:
        return phrase.plain(text).names
    except InputError:
        return set()


def names_used(step: Step) -> set[str]:
    """Every name a step's templates use."""
    return {name for text in _texts(_said(step)) for name in _used(text)}


def _names(value: Any, path: KeyPath, known: set[str]) -> Iterator[KeyMistake]:
    """Names that are not known, and templates that are none, wherever they stand in a structure."""
    if isinstance(value, str):
        yield from _names_of_text(value, path, known)
    elif isinstance(value, dict):
        for key, item in value.items():
            yield from _names_of_text(key, (*path, key), known)
            yield from _names(item, (*path, key), known)
    elif isinstance(value, list):
        for number, item in enumerate(value):
            yield from _names(item, (*path, number), known)


def _address(text: str, path: KeyPath, known: set[str], example: str) -> Iterator[KeyMistake]:
    """An address with a port; the names it uses must be known."""
    if text and ":" not in text:
        yield path, f"{text!r} is no address with a port", f"for example {example}"
    yield from _names(text, path, known)


def _names_of_text(text: str, path: KeyPath, known: set[str]) -> Iterator[KeyMistake]:
    for found in _ANY_PLACEHOLDER.findall(text) if "${" in text else []:
        if not _PLACEHOLDER.fullmatch(found) and not _PLACEHOLDER.match(found):
            yield path, f"{found} is not a variable", "${name} or ${name|filter}, in small letters"
    try:
        used = phrase.plain(text).names
    except InputError as error:
        yield path, error.message, error.hint
        return
    for name in sorted(used - known):
        fuller = next((each for each in sorted(known) if each.endswith(f".{name}")), None)
        hint = f"did you mean `{fuller}`?" if fuller else nearest(name, sorted(known))
        yield path, f"${{{name}}} is not known here", hint
