"""A contender's dialect made ready to travel: a Script per protocol for links, a Registration for the controller.

Called by `lifecycle` when a contender answers, and by whoever asks what it can be told. Pure; knows no network.
"""

from __future__ import annotations

from typing import Any

import msgspec

from battlebrokers.contenders.dialect import WAYS, Notified, Pattern, Register, Speech, Step, Subscribe
from battlebrokers.contenders.dialect_checks import ATTRIBUTE, TOPIC_NAMES, kept_by, names_used
from battlebrokers.contenders.spec import Contender
from battlebrokers.protocols.script import Listening, Notification, Say, Script

ANYTHING = "*"
"""How a file says that a path must only be there."""


class Registration(msgspec.Struct, frozen=True, omit_defaults=True):
    """What the controller says over HTTP before and after a run; plain data."""

    login: list[Say] = []
    """Once; what it keeps is `controller.NAME` for everybody."""
    resource: list[Say] = []
    """Once for every topic; with a model once for every resource."""
    attribute: list[Say] = []
    """With a model, once for every topic."""
    device: list[Say] = []
    client: list[Say] = []
    remove_attribute: list[Say] = []
    remove_resource: list[Say] = []
    remove_device: list[Say] = []
    remove_client: list[Say] = []
    remove_controller: list[Say] = []
    """For what `login` made; last and once."""
    listing: Say | None = None
    """Once, when all is registered."""
    listed: str = "$"
    """The list in its answer whose elements are counted."""
    has_model: bool = False
    """Topics are attributes of resources."""


def registration_of(contender: Contender) -> Registration | None:
    """What must be registered, or None when nothing has to be."""
    register = contender.register_
    if register is None:
        return None
    return Registration(
        login=_says(register.login),
        resource=_says(register.resource),
        attribute=_says(register.attribute),
        device=_says(register.device),
        client=_says(register.client),
        remove_attribute=_says(register.remove.attribute),
        remove_resource=_says(register.remove.resource),
        remove_device=_says(register.remove.device),
        remove_client=_says(register.remove.client),
        remove_controller=_says(register.remove.controller),
        listing=say(register.list_) if register.list_ is not None else None,
        listed=register.list_.each if register.list_ is not None else "$",
        has_model=contender.model is not None,
    )


def scripts_of(contender: Contender) -> dict[str, Script]:
    """Protocol → how it is spoken; a protocol the contender speaks plainly has none."""
    if contender.speak is None:
        return {}
    register = contender.register_ or Register()
    about_topic = {*TOPIC_NAMES, ATTRIBUTE, *kept_by([*register.resource, *register.attribute])}
    dialects = {protocol: speech for protocol, speech in contender.speak.spoken.items() if not speech.is_plain}
    return {protocol: _script(protocol, speech, about_topic) for protocol, speech in dialects.items()}


def _script(protocol: str, speech: Speech, about_topic: set[str]) -> Script:
    return Script(
        protocol=protocol,
        login=_says(speech.login),
        publish=None if speech.publish is None else say(speech.publish),
        listening=None if speech.subscribe is None else _listening(speech.subscribe, protocol, about_topic),
        notification=_notification(speech.notification),
        logout=_says(speech.logout),
        ids=getattr(speech, "ids", ""),
        username=getattr(speech, "username", ""),
        password=getattr(speech, "password", ""),
        headers=dict(speech.headers),
        subprotocol=getattr(speech, "subprotocol", ""),
        replies=getattr(speech, "replies", ""),
        namespace=getattr(speech, "namespace", ""),
        to=getattr(speech, "to", ""),
        window=speech.window,
        answer_within_s=speech.answer_within_s,
    )


def say(step: Step, *, repeat: bool = False) -> Say:
    """One step as links and the controller see it."""
    verb = step.verbs[0] if step.verbs else "send"  # a call is answered without a verb
    message = step.send
    target = "" if verb == "send" else str(getattr(step, verb))
    return Say(
        verb=verb,
        target=target,
        headers=dict(step.headers),
        json=step.json_ if message is None or isinstance(message, str) else message,
        text=message if isinstance(message, str) else step.text,
        statuses=list(step.is_.statuses),
        success=_pattern(step.is_.paths),
        answer=None if step.answer is None else _pattern(step.answer),
        keep=dict(step.keep),
        repeat=repeat,
    )


def _says(steps: list[Step]) -> list[Say]:
    return [say(step) for step in steps]


def _listening(subscribe: Subscribe, protocol: str, about_topic: set[str]) -> Listening:
    def each(steps: list[Step]) -> list[Say]:
        """Those that name the topic are said for each topic, and so are those that use what these kept."""
        of_topic = set() if subscribe.wildcards else set(about_topic)
        said = []
        for step in steps:
            repeat = not of_topic.isdisjoint(names_used(step))
            of_topic |= set(step.keep) if repeat else set()
            said.append(say(step, repeat=repeat))
        return said

    all_of_them = each([*subscribe.steps, *([subscribe.fetch] if subscribe.fetch else []), *subscribe.undo])
    steps = all_of_them[: len(subscribe.steps)]
    undo = all_of_them[len(all_of_them) - len(subscribe.undo) :]
    fetch = all_of_them[len(subscribe.steps)] if subscribe.fetch else None
    return Listening(
        way=subscribe.way or WAYS[protocol][0], steps=steps, fetch=fetch, wildcards=subscribe.wildcards, undo=undo,
        quiet=subscribe.quiet, at=subscribe.at,
    )  # fmt: skip


def _notification(notified: Notified) -> Notification:
    answer = notified.answer
    heard = None if answer is None else msgspec.structs.replace(say(answer), statuses=[answer.status])
    return Notification(
        when=_pattern(notified.when),
        each=notified.each,
        payload=notified.payload,
        encoding=notified.encoding or ("base64" if notified.payload else "raw"),
        topic=notified.topic,
        answer=heard,
    )


def _pattern(pattern: Pattern) -> dict[str, Any]:
    return {path: None if wanted == ANYTHING else wanted for path, wanted in pattern.items()}
