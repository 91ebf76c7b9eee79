"""Reads contender files: strict, all mistakes at once, each with file, line and the nearest valid name.

Called by `lifecycle`, `availability` and the command line. Adding a broker is adding a file; no code changes.
"""

from __future__ import annotations

import difflib
import types
import typing
from collections.abc import Iterable, Iterator
from functools import cache
from io import StringIO
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ValidationError

from battlebrokers.contenders.spec import Contender
from battlebrokers.contenders.template import names_in
from battlebrokers.errors import InputError, Mistake, UsageError

SPECS = Path(__file__).parent / "specs"

ALWAYS_KNOWN = frozenset({"host", "dir", "data", "user", "specs"})
"""Names every template may use: where to listen, the folder, the folder for its data, who we are, where specs lie."""
TLS_NAMES = frozenset({"tls.certificate", "tls.key", "tls.client_ca"})

KeyPath = tuple[str | int, ...]


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
            f"no contender is called {name!r}{nearest(name, names)}",
            hint=f"Known: {', '.join(names)}; or give a URL such as mqtt://host:1883, or a contender file (.yaml).",
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
    from ruamel.yaml import YAML  # slow to import, and not needed to follow a URL
    from ruamel.yaml.error import YAMLError

    try:
        tree = YAML(typ="rt", pure=True).load(StringIO(text))
    except YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        line = mark.line + 1 if mark is not None else 0
        problem = getattr(error, "problem", None) or str(error).splitlines()[0]
        raise _wrong([Mistake(where, line, "", f"is not YAML: {problem}")]) from None
    if not isinstance(tree, dict):
        raise _wrong([Mistake(where, 1, "", "must be a mapping that starts with `name:`")])
    try:
        contender = Contender.model_validate(_plain(tree))
    except ValidationError as error:
        problems = [_explained(each) for each in error.errors(include_url=False)]
    else:
        problems = list(cross_checks(contender))
        if not problems:
            return contender
    raise _wrong([Mistake(where, _line_of(tree, path), _dotted(path), message) for path, message in problems])


def cross_checks(contender: Contender) -> Iterator[tuple[KeyPath, str]]:
    """What is wrong between the parts of a file that are each right alone: (path, message)."""
    for missing in sorted({"stock", "tuned"} - set(contender.profiles)):
        yield ("profiles",), f"has no profile {missing}"
    if contender.ready.port not in contender.ports:
        yield (
            ("ready", "port"),
            f"{contender.ready.port} is not one of ports{nearest(contender.ready.port, contender.ports)}",
        )
    if sum("*" in names for names in contender.services.values()) != 1:
        yield ("services",), 'exactly one service must be ["*"], the one that takes every process no other names'
    known = ALWAYS_KNOWN | set(contender.needs) | {f"port.{port}" for port in contender.ports}
    raw = contender.model_dump()
    tls = raw.pop("tls")
    raw["version"] = [{key: each[key] for key in ("command", "glob", "file")} for each in raw["version"]]
    for part in ("version", "endpoints", "run", "profiles"):
        yield from _unknown_names(raw[part], (part,), known)
    if contender.tls is not None:
        yield from _unknown_names(tls, ("tls",), known | TLS_NAMES | {f"port.{port}" for port in contender.tls.ports})
        written = {name for profile in contender.profiles.values() for name in profile.files}
        for key in ("append", "append_with_client_ca"):
            for stranger in sorted(set(tls[key]) - written):
                yield ("tls", key, stranger), f"no profile writes such a file{nearest(stranger, written)}"


def nearest(name: str, known: Iterable[str]) -> str:
    """`, did you mean …?` when one of the known names is close, else nothing."""
    close = difflib.get_close_matches(name, list(known), n=1, cutoff=0.5)
    return f", did you mean {close[0]}?" if close else ""


def _unknown_names(value: Any, path: KeyPath, known: set[str] | frozenset[str]) -> Iterator[tuple[KeyPath, str]]:
    if isinstance(value, str):
        for name in sorted(names_in(value) - known):
            yield path, f"${{{name}}} is not known here{nearest(name, known)}"
    elif isinstance(value, dict):
        for key, item in value.items():
            yield from _unknown_names(item, (*path, key), known)
    elif isinstance(value, list):
        for number, item in enumerate(value):
            yield from _unknown_names(item, (*path, number), known)


def _explained(error: Any) -> tuple[KeyPath, str]:
    path = tuple(error["loc"])
    if error["type"] == "extra_forbidden":
        valid = _fields_at(path[:-1])
        return path, f"is not a key here{nearest(str(path[-1]), valid) or ' (valid: ' + ', '.join(valid) + ')'}"
    if error["type"] == "missing":
        return path, "is missing"
    if path and path[-1] == "[key]":
        path = path[:-1]
    return path, str(error["msg"]).removeprefix("Value error, ")


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


def _line_of(tree: Any, path: KeyPath) -> int:
    """The line a path starts at, as deep as the file goes along it."""
    line = 1
    for step in path:
        try:
            place = tree.lc.key(step) if isinstance(tree, dict) else tree.lc.item(step)  # type: ignore[attr-defined]
            line = place[0] + 1
            tree = tree[step]
        except (KeyError, IndexError, TypeError, AttributeError):
            break
    return line


def _dotted(path: KeyPath) -> str:
    return ".".join(str(step) for step in path)


def _plain(value: Any) -> Any:
    """Without the marks of the YAML reader, so that strict types see plain ones."""
    if isinstance(value, dict):
        return {_plain(key): _plain(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_plain(item) for item in value]
    if isinstance(value, bool) or value is None:
        return value
    for kind in (str, int, float):
        if isinstance(value, kind):
            return kind(value)
    return value


def _wrong(mistakes: list[Mistake]) -> InputError:
    noun = "mistake" if len(mistakes) == 1 else "mistakes"
    lines = "\n".join(f"  {mistake}" for mistake in mistakes)
    return InputError(
        f"{len(mistakes)} {noun} in the contender file\n{lines}",
        hint="The files shipped with BattleBrokers (contenders/specs) show every key in use.",
    )
