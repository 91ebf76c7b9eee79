"""Reads contender files: strict, all mistakes at once, each with file, line and the nearest valid name.

Called by `lifecycle`, `availability` and the command line. Adding a broker is adding a file; no code changes.
"""

from __future__ import annotations

import types
import typing
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ValidationError

from battlebrokers.contenders.spec import Contender, Pairing
from battlebrokers.contenders.template import names_in
from battlebrokers.errors import InputError, UsageError
from battlebrokers.scenario.patterns import nearest

SPECS = Path(__file__).parent / "specs"

ALWAYS_KNOWN = ("host", "dir", "data", "user", "specs")
"""Names every template may use: where to listen, the folder, the folder for its data, who we are, where specs lie."""
TLS_NAMES = ("tls.certificate", "tls.key", "tls.client_ca")

KeyPath = tuple[str | int, ...]
KeyMistake = tuple[KeyPath, str, str]
"""Where in the file, what is wrong, what to do."""


def contender_names() -> list[str]:
    """The names of the shipped contenders, sorted."""
    return sorted(path.stem for path in SPECS.glob("*.yaml"))


def load_contenders() -> list[Contender]:
    """Every shipped contender, by name."""
    return [_shipped(name) for name in contender_names()]


def find_contender(name: str) -> Contender:
    """A shipped contender by name, or your own by the path of its `.yaml` file."""
    if name.endswith((".yaml", ".yml")):
        return read_contender(Path(name))
    names = contender_names()
    if name not in names:
        raise UsageError(
            f"no contender is called {name!r}: {nearest(name, names)}",
            hint="Give a name from `bb brokers`, a URL such as mqtt://host:1883, or a contender file (.yaml).",
        )
    return _shipped(name)


@cache
def _shipped(name: str) -> Contender:
    return read_contender(SPECS / f"{name}.yaml")


def read_contender(path: Path) -> Contender:
    """The contender a file describes, or an InputError with every mistake in it."""
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"{path} cannot be read: {error}") from error
    return parse_contender(text, str(path))


def parse_contender(text: str, where: str) -> Contender:
    """The contender a text describes; `where` names the text in messages."""
    from battlebrokers.scenario.document import read_document  # slow to import, and not needed to follow a URL

    document = read_document(text, where)
    if not document.mistakes:
        try:
            contender = Contender.model_validate(document.data)
        except ValidationError as error:
            for each in error.errors(include_url=False):
                document.mistake(*_explained(each))
        else:
            for mistake in cross_checks(contender):
                document.mistake(*mistake)
            if not document.mistakes:
                return contender
    noun = "mistake" if len(document.mistakes) == 1 else "mistakes"
    lines = "\n".join(f"  {mistake}" for mistake in document.mistakes)
    raise InputError(
        f"{len(document.mistakes)} {noun} in the contender file\n{lines}",
        hint="The files shipped with BattleBrokers (contenders/specs) show every key in use.",
    )


def read_pairing(path: Path) -> Pairing:
    """The section `pairing` of a contender file, or of a file that has nothing else."""
    from battlebrokers.scenario.document import read_document

    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"{path} cannot be read: {error}") from error
    document = read_document(text, str(path))
    if not document.mistakes:
        section = document.data.get("pairing")
        try:
            return Pairing.model_validate(section if section is not None else {})
        except ValidationError as error:
            for each in error.errors(include_url=False):
                document.mistake(*_explained(each | {"loc": ("pairing", *each["loc"])}))
    raise InputError(
        "\n".join(str(mistake) for mistake in document.mistakes),
        hint="For example: pairing: {type: action, id: requestId, answers: {device/get: device/get}}",
    )


def cross_checks(contender: Contender) -> Iterator[KeyMistake]:
    """What is wrong between parts of a file that are each right alone: (path, message, hint)."""
    for missing in sorted({"stock", "tuned"} - set(contender.profiles)):
        yield ("profiles",), f"has no profile `{missing}`", ""
    if contender.ready.port not in contender.ports:
        yield (
            ("ready", "port"),
            f"{contender.ready.port} is not one of ports",
            nearest(contender.ready.port, contender.ports),
        )
    if sum("*" in service.processes for service in contender.services.values()) != 1:
        yield ("services",), 'exactly one service must be ["*"]', "it takes every process no other service names"
    port_names = [*contender.ports, *(contender.tls.ports if contender.tls is not None else [])]
    for name, service in contender.services.items():
        for port in service.ports or []:
            if isinstance(port, str) and port not in port_names:
                yield ("services", name, "ports"), f"{port} is not one of ports", nearest(port, port_names)
    known = [*ALWAYS_KNOWN, *contender.needs, *(f"port.{port}" for port in contender.ports)]
    raw = contender.model_dump()
    tls = raw.pop("tls")
    raw["version"] = [{key: each[key] for key in ("command", "glob", "file")} for each in raw["version"]]
    for part in ("version", "endpoints", "run", "profiles"):
        yield from _unknown_names(raw[part], (part,), known)
    if contender.tls is not None:
        known += [*TLS_NAMES, *(f"port.{port}" for port in contender.tls.ports)]
        yield from _unknown_names(tls, ("tls",), known)
        written = sorted({name for profile in contender.profiles.values() for name in profile.files})
        for key in ("append", "append_with_client_ca"):
            for stranger in sorted(set(tls[key]) - set(written)):
                yield ("tls", key, stranger), "no profile writes such a file", nearest(stranger, written)


def _unknown_names(value: Any, path: KeyPath, known: list[str]) -> Iterator[KeyMistake]:
    if isinstance(value, str):
        for name in sorted(names_in(value).difference(known)):
            yield path, f"${{{name}}} is not known here", nearest(name, known)
    elif isinstance(value, dict):
        for key, item in value.items():
            yield from _unknown_names(item, (*path, key), known)
    elif isinstance(value, list):
        for number, item in enumerate(value):
            yield from _unknown_names(item, (*path, number), known)


def _explained(error: Any) -> KeyMistake:
    path = tuple(error["loc"])
    if error["type"] == "extra_forbidden":
        return path, "is not a key here", nearest(str(path[-1]), _fields_at(path[:-1]))
    if error["type"] == "missing":
        return path, "is missing", ""
    if path and path[-1] == "[key]":
        path = path[:-1]
    return path, str(error["msg"]).removeprefix("Value error, "), ""


def _fields_at(path: KeyPath) -> list[str]:
    """The keys the model allows at a path."""
    here: Any = Contender
    for step in path:
        if isinstance(here, type) and issubclass(here, BaseModel):
            here = here.model_fields[str(step)].annotation
        else:
            here = typing.get_args(here)[-1]
        if isinstance(here, types.UnionType):
            here = typing.get_args(here)[0]
    return list(here.model_fields) if isinstance(here, type) and issubclass(here, BaseModel) else []
