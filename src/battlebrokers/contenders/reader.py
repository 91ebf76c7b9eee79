"""Reads contender files: strict, all mistakes at once, each with file, line and the nearest valid name.

Called by `lifecycle`, `availability` and the command line. Adding a broker is adding a file; no code changes.
"""

from __future__ import annotations

import errno
import types
import typing
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pydantic import BaseModel, ValidationError

from battlebrokers.contenders.spec import Contender, Pairing
from battlebrokers.contenders.spec_checks import cross_checks
from battlebrokers.errors import InputError, UsageError
from battlebrokers.scenario.patterns import nearest
from battlebrokers.secrets import MASK, remember_in

if TYPE_CHECKING:
    from battlebrokers.scenario.document import Document

SPECS = Path(__file__).parent / "specs"

KeyPath = tuple[str | int, ...]
KeyMistake = tuple[KeyPath, str, str]
"""Where in the file, what is wrong, what to do."""

_OUTSIDE = "it is outside the folder of this file"

_TEXTS = ("files", "append", "append_with_client_ca")
"""Keys whose values are texts of configuration files."""


def contender_names() -> list[str]:
    """The names of the shipped contenders, sorted."""
    return sorted(path.stem for path in SPECS.glob("*.yaml"))


def load_contenders() -> list[Contender]:
    """Every shipped contender, by name."""
    return [_shipped(name) for name in contender_names()]


def split_host(name: str) -> tuple[str, str]:
    """`name@host` → both; a name alone has no host."""
    before, at, after = name.rpartition("@")
    return (before, after) if at and "/" not in after else (name, "")


def find_contender(name: str) -> Contender:
    """A shipped contender by name, or your own by the path of its `.yaml` file; a host behind `@` does not matter."""
    name, _ = split_host(name)
    if name.endswith((".yaml", ".yml")):
        return read_contender(Path(name))
    names = contender_names()
    if name not in names:
        user, colon, _ = name.partition(":")
        name = f"{user}:{MASK}" if colon else name  # an address without its scheme: what follows may be a password
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
    return parse_contender(_text_of(path), str(path))


def _text_of(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except OSError as error:
        hint = "`bb brokers` lists the contenders that come with us; `bb brokers new NAME` begins a file of your own."
        raise InputError(f"{path} cannot be read: {error.strerror or error}", hint=hint) from error
    except UnicodeDecodeError as error:
        raise InputError(
            f"{path} is not text in UTF-8: byte {error.start + 1} is wrong", hint="A contender file is YAML in UTF-8."
        ) from error


def parse_contender(text: str, where: str) -> Contender:
    """The contender a text describes; `where` names the text in messages."""
    from battlebrokers.scenario.document import read_document  # slow to import, and not needed to follow a URL

    document = read_document(text, where)
    as_written = document.data
    if not document.mistakes:
        with_files = _with_files(document)
        try:
            contender = Contender.model_validate(with_files)
        except ValidationError as error:
            for each in error.errors(include_url=False):
                path, message, hint = _explained(each)
                document.mistake(_written_path(path, as_written), message, hint)
        else:
            for path, message, hint in cross_checks(contender, _ports_of):
                document.mistake(_written_path(path, as_written), message, hint)
            if not document.mistakes:
                if Path(where).parent != SPECS:  # what we ship with is known to everybody
                    remember_in(as_written)
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

    document = read_document(_text_of(path), str(path))
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


def _ports_of(name: str) -> list[str] | None:
    return list(_shipped(name).ports) if name in contender_names() else None


def _with_files(document: Document) -> dict[str, Any]:
    """What the file says, with `{file: PATH}` replaced by the text of that file: beside it, else beside ours.

    A list of texts and files is one text.
    """
    own = Path(document.where).parent

    def text_of(value: Any, path: KeyPath) -> Any:
        if isinstance(value, list):
            texts = [text_of(part, (*path, number)) for number, part in enumerate(value)]
            return "".join(texts) if all(isinstance(text, str) for text in texts) else value
        if not isinstance(value, dict) or list(value) != ["file"] or not isinstance(value["file"], str):
            return value
        name: str = value["file"]
        for folder in (own, SPECS):
            try:
                return _text_beside(folder, name)
            except FileNotFoundError as error:
                why = error.strerror
            except (OSError, ValueError) as error:
                why = getattr(error, "strerror", None) or str(error)
                break
        document.mistake(path, f"{name} cannot be read: {why}", "it is looked for beside this file, and nowhere above")
        return ""

    def texts_of(part: Any, path: KeyPath) -> Any:
        return {name: text_of(value, (*path, name)) for name, value in part.items()} if isinstance(part, dict) else part

    def filled(part: Any, path: KeyPath) -> Any:
        if not isinstance(part, dict):
            return part
        return {**part, **{key: texts_of(part[key], (*path, key)) for key in _TEXTS if key in part}}

    data: dict[str, Any] = filled(document.data, ())
    if "tls" in data:
        data["tls"] = filled(data["tls"], ("tls",))
    if isinstance(data.get("profiles"), dict):
        data["profiles"] = {name: filled(part, ("profiles", name)) for name, part in data["profiles"].items()}
    return data


def _text_beside(folder: Path, name: str) -> str:
    """The text of a file in this folder or below it, links followed; raises OSError for any other."""
    top = folder.resolve()
    place = (top / name).resolve()
    if not place.is_relative_to(top):
        raise PermissionError(errno.EPERM, _OUTSIDE, name)
    if place.exists() and not place.is_file():
        raise OSError(errno.EINVAL, "it is not a regular file", name)
    return place.read_text(encoding="utf-8")


def _written_path(path: KeyPath, data: Any) -> KeyPath:
    """The path as it stands in the file, where one step may be written without the list around it."""
    written: list[str | int] = []
    for step in path:
        if isinstance(step, int) and isinstance(data, dict):
            continue
        written.append(step)
        if isinstance(data, dict):
            data = data.get(str(step))
        elif isinstance(data, list) and isinstance(step, int) and step < len(data):
            data = data[step]
        else:
            data = None
    return tuple(written)


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
            fields = {field.alias or name: field.annotation for name, field in here.model_fields.items()}
            here = fields.get(str(step))
        else:
            here = (typing.get_args(here) or (None,))[-1]
        here = _bare(here)
    if not (isinstance(here, type) and issubclass(here, BaseModel)):
        return []
    return [field.alias or name for name, field in here.model_fields.items()]


def _bare(annotation: Any) -> Any:
    """A type without `Annotated` and `| None` around it."""
    while typing.get_origin(annotation) in (typing.Annotated, typing.Union, types.UnionType):
        annotation = typing.get_args(annotation)[0]
    return annotation
