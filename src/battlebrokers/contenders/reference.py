"""The reference of contender files, generated from the models. Called by the docs only."""

from __future__ import annotations

import ast
import inspect
import re
import textwrap
import types
import typing
from typing import Any, Literal

from pydantic import BaseModel

from battlebrokers.contenders import dialect, model, needs, services, spec
from battlebrokers.contenders.dialect_checks import MESSAGE_NAMES, NODE_NAMES, RUN_NAMES
from battlebrokers.contenders.spec_checks import ALWAYS_KNOWN, TLS_NAMES

_INTRODUCTION = """# Contender reference

Generated from the models. [Add a middleware](../how-to/add-a-middleware.md) walks through a contender file.

A contender file is YAML. Unknown keys, unknown variables and wrong kinds are mistakes, told all at once with lines.
A single step may stand where a list of steps may. Most keys can be left out.
"""

_SECTIONS: tuple[tuple[str, type[BaseModel]], ...] = (
    ("The contender", spec.Contender),
    ("`needs`", needs.Need),
    ("`version`", needs.VersionSource),
    ("`capabilities`", spec.BrokerCapabilities),
    ("`since` of capabilities", spec.CapabilityChange),
    ("`run`", spec.Run),
    ("`beside`", spec.Companion),
    ("`profiles`", spec.ProfileSpec),
    ("`tls`", spec.TlsSpec),
    ("`ready`", spec.Ready),
    ("`stop`", spec.Stop),
    ("`credentials`", spec.Credentials),
    ("`services`", services.Service),
    ("`metrics` of a service", services.Metrics),
    ("`hints`", spec.FailureHint),
    ("`model`", model.Model),
    ("`register`", dialect.Register),
    ("`list`, besides", dialect.Listing),
    ("`remove`", dialect.Remove),
    ("`speak`", dialect.Speak),
    ("`speak`: one protocol", dialect.Speech),
    ("`speak.websocket` besides", dialect.WebSocketSpeech),
    ("`speak.mqtt` besides", dialect.MqttSpeech),
    ("`speak.amqp` besides", dialect.AmqpSpeech),
    ("`speak.udp` besides", dialect.UdpSpeech),
    ("`subscribe`", dialect.Subscribe),
    ("`notification`", dialect.Notified),
    ("A step", dialect.Step),
    ("`answer` to a notification, besides", dialect.NotificationAnswer),
    ("`pairing`", services.Pairing),
)


def contender_reference() -> str:
    """The reference as Markdown."""
    parts = [_INTRODUCTION, *(_section(title, model) for title, model in _SECTIONS), _variables()]
    return "\n".join(part.strip() + "\n" for part in parts)


def _section(title: str, model: type[BaseModel]) -> str:
    inherited = {name for base in model.__mro__[1:] if issubclass(base, BaseModel) for name in base.model_fields}
    told = _told_of(model)
    lines = [f"## {title}", "", inspect.cleandoc(model.__doc__ or ""), "", "| key | kind | |", "|---|---|---|"]
    for name, field in model.model_fields.items():
        if name in inherited:
            continue
        needed = " **Required.**" if field.is_required() else ""
        kind = _kind(field.annotation).replace("|", "\\|")
        lines.append(f"| `{field.alias or name}` | {kind} | {told.get(name, '')}{needed} |")
    return "\n".join(lines)


def _told_of(model: type[BaseModel]) -> dict[str, str]:
    """Field → the text that stands below it in the source."""
    [tree] = ast.parse(textwrap.dedent(inspect.getsource(model))).body
    assert isinstance(tree, ast.ClassDef)
    told = {}
    for above, below in zip(tree.body, tree.body[1:], strict=False):
        if (
            isinstance(above, ast.AnnAssign)
            and isinstance(above.target, ast.Name)
            and isinstance(below, ast.Expr)
            and isinstance(below.value, ast.Constant)
        ):
            told[above.target.id] = " ".join(str(below.value.value).split()).replace("|", "\\|")
    return told


_NAMES = {str: "text", int: "whole number", float: "number", bool: "`true`, `false`", Any: "anything"}
_LINKED = {model: title for title, model in _SECTIONS}


def _kind(annotation: Any) -> str:
    origin, arguments = typing.get_origin(annotation), typing.get_args(annotation)
    if origin is typing.Annotated:
        return _kind(arguments[0])
    if origin in (typing.Union, types.UnionType):
        return " or ".join(_kind(each) for each in arguments if each is not type(None))
    if origin is Literal:
        return ", ".join(f"`{value}`" for value in arguments)
    if origin is list:
        return f"list of {_kind(arguments[0])}"
    if origin is dict:
        key = _kind(arguments[0]) if typing.get_origin(arguments[0]) is Literal else "name"
        return f"{key} → {_kind(arguments[1])}"
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        title = _LINKED.get(annotation)
        if annotation is dialect.Expected:
            return "status, list of statuses, or path → value"
        return f"[{title.replace('`', '')}](#{_anchor(title)})" if title else annotation.__name__
    return _NAMES.get(annotation, "text")


def _anchor(title: str) -> str:
    return re.sub(r"[^a-z0-9-]", "", title.lower().replace(" ", "-"))


def _variables() -> str:
    def listed(names: tuple[str, ...]) -> str:
        return ", ".join(f"`${{{name}}}`" for name in names)

    return f"""## Variables

In commands, files, environment and endpoints: {listed(ALWAYS_KNOWN)},
`${{port.NAME}}` of every port, `${{NAME}}` of every need (and `${{NAME.folder}}` of a module), ports of those beside it
(`${{mosquitto.mqtt}}`, `${{port.redis}}`); in `tls` also {listed(TLS_NAMES)}.

In `register` and `speak`, with `${{name|filter}}` where another form is wanted:

- everywhere: {listed(RUN_NAMES)}, `${{port.NAME}}`,
  `${{controller.NAME}}` for what `register.login` kept
- said by or for a device or client: {listed(NODE_NAMES)},
  and what its own steps kept
- about a topic: `${{topic}}`, `${{resource}}` (the topic as one word), and what `register.resource` kept;
  with a `model`, `${{resource}}` is the topic without its last level and `${{attribute}}` that level, and what
  `register.attribute` kept is known as well
- when publishing: {listed(MESSAGE_NAMES)},
  `${{listener.NAME}}` (a list: what `register.client` kept for each who listens)
- when subscribing: `${{filter}}` with `wildcards`, else `${{topic}}` and `${{resource}}`;
  `${{callback}}` with `way: callback`
- filters: `base64`, `hex`, `text`, `url`, `path`, `dots` (`/` becomes `.`), `flat` (anything odd becomes `-`),
  `number`, `json`
"""
