"""YAML text → plain data, with the line of every key and item. Called by the reader; knows nothing of scenarios.

Hostile input is normal input: size, depth and expanded aliases are limited, and whatever is wrong becomes a Mistake.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any

from ruamel.yaml import YAML
from ruamel.yaml.error import MarkedYAMLError, YAMLError
from ruamel.yaml.events import CollectionEndEvent, CollectionStartEvent
from ruamel.yaml.nodes import MappingNode, Node, ScalarNode, SequenceNode

from battlebrokers.errors import Mistake

Path = tuple[str | int, ...]

LARGEST_BYTES = 256_000
_DEEPEST = 40
_MOST_VALUES = 20_000
_SMALL = 16_000
_LONGEST_NUMBER = 40
_TAG = "tag:yaml.org,2002:"


class _TooMuchError(Exception):
    """The document unfolds beyond our limits."""


@dataclass(slots=True)
class Document:
    """What a file says: its data, where each path stands, which options changed it, and what is wrong with it."""

    where: str
    data: dict[str, Any] = field(default_factory=dict)
    lines: dict[Path, int] = field(default_factory=dict)
    options: dict[Path, str] = field(default_factory=dict)
    mistakes: list[Mistake] = field(default_factory=list)
    values: int = 0

    def line_of(self, path: Path) -> int:
        """The line of a path, or of the nearest thing around it."""
        while path and path not in self.lines:
            path = path[:-1]
        return self.lines.get(path, 0)

    def mistake(self, path: Path, message: str, hint: str = "", line: int | None = None) -> None:
        """Note a mistake at a path; what an option set is blamed on the option."""
        option = next((self.options[path[:n]] for n in range(len(path), 0, -1) if path[:n] in self.options), None)
        if option is not None:
            self.mistakes.append(Mistake(option, 0, show_path(path), message, hint))
            return
        found = self.line_of(path) if line is None else line
        self.mistakes.append(Mistake(self.where, found, show_path(path), message, hint))


def show_path(path: Path) -> str:
    """`fleets.air.topic.0`, as `--set` takes it."""
    return ".".join(str(part) for part in path)


def read_document(text: str, where: str) -> Document:
    """Read a YAML mapping; never raises, mistakes are in the result."""
    document = Document(where)
    if len(text) > LARGEST_BYTES:
        document.mistake((), f"is larger than {LARGEST_BYTES} characters", "that is no scenario")
        return document
    try:
        _limit(text)
        root = YAML(typ="safe", pure=True).compose(text)
    except _TooMuchError as error:
        document.mistake((), str(error), "that is no scenario")
        return document
    except MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        message, hint = _explain(str(error.problem or error.context or "is not valid YAML"))
        document.mistake((), message, hint, line=mark.line + 1 if mark else 0)
        return document
    except RecursionError:
        document.mistake((), "is nested too deeply", f"at most {_DEEPEST} levels")
        return document
    except YAMLError as error:
        document.mistake((), f"is not text: {str(error).splitlines()[0]}", "it must be YAML in UTF-8")
        return document
    except Exception as error:  # noqa: BLE001 - whatever the YAML library stumbles over is the file's fault, not ours
        document.mistake((), f"is not valid YAML ({type(error).__name__})")
        return document
    if root is None:
        document.mistake((), "is empty", 'begin with "name: …"')
    elif not isinstance(root, MappingNode):
        document.mistake((), "is not a mapping of keys to values", 'begin with "name: …"', line=1)
    else:
        try:
            document.data = _mapping(document, root, ())
        except _TooMuchError as error:
            document.mistake((), str(error), "write it out, or make it smaller")
        except RecursionError:
            document.mistake((), "a mapping merges itself (<<), directly or by way of others", "merge another one")
    return document


def _limit(text: str) -> None:
    """Stop reading a file of endless small or nested values early: composing them all would take minutes."""
    depth = 0
    if len(text) > _SMALL:
        for count, event in enumerate(YAML(typ="safe", pure=True).parse(text)):
            depth += isinstance(event, CollectionStartEvent) - isinstance(event, CollectionEndEvent)
            if count > _MOST_VALUES:
                raise _TooMuchError(f"holds more than {_MOST_VALUES} values")
            if depth > _DEEPEST:
                raise _TooMuchError(f"is nested more than {_DEEPEST} levels deep")


def parse_value(text: str) -> Any:
    """One value as YAML would read it, for `--set`; plain text when it is not YAML."""
    if text.strip() in ("", "~", "null"):
        return None
    document = read_document(f"value: {text}", "")
    return text if document.mistakes else document.data.get("value", text)


def _explain(problem: str) -> tuple[str, str]:
    if "'\\t'" in problem:
        return "a tab indents this line", "YAML wants spaces"
    if "undefined alias" in problem:
        return problem, "an alias (*name) needs an anchor (&name) before it"
    if "another document" in problem:
        return "holds a second document (---)", "one to a file"
    return f"is not valid YAML: {problem}", ""


def _value(document: Document, node: Node, path: Path) -> Any:
    document.values += 1
    if document.values > _MOST_VALUES:
        raise _TooMuchError(f"unfolds to more than {_MOST_VALUES} values")
    if len(path) > _DEEPEST:
        raise _TooMuchError(f"is nested more than {_DEEPEST} levels deep")
    if isinstance(node, MappingNode):
        return _mapping(document, node, path)
    if isinstance(node, SequenceNode):
        items = []
        for place, child in enumerate(node.value):
            document.lines[(*path, place)] = child.start_mark.line + 1
            items.append(_value(document, child, (*path, place)))
        return items
    assert isinstance(node, ScalarNode)
    return _scalar(document, node, path)


def _mapping(document: Document, node: MappingNode, path: Path) -> dict[str, Any]:
    result: dict[str, Any] = {}
    merged: dict[str, Any] = {}
    for key_node, child in node.value:
        line = key_node.start_mark.line + 1
        if not isinstance(key_node, ScalarNode):
            document.mistake(path, "a key must be a word, not a list or mapping", line=line)
            continue
        key = str(key_node.value)
        if key_node.tag == _TAG + "merge":
            _merge(document, child, path, merged, line)
            continue
        inner = (*path, key)
        if key in result:
            document.mistake(inner, f"`{key}` is said twice", f"first in line {document.lines[inner]}", line=line)
            continue
        document.lines[inner] = line
        value = _value(document, child, inner)
        if value is None:
            document.mistake(inner, f"`{key}` has no value", "give it one, or leave the key out")
            continue
        result[key] = value
    return {**merged, **result}


def _merge(document: Document, node: Node, path: Path, merged: dict[str, Any], line: int) -> None:
    """`<<: *anchor` or `<<: [*one, *two]`: earlier ones win, as YAML has it."""
    for source in node.value if isinstance(node, SequenceNode) else [node]:
        if not isinstance(source, MappingNode):
            document.mistake(path, "<< needs a mapping", "such as <<: *anchor", line=line)
            continue
        value = _value(document, source, path)
        for key in value:
            document.lines.setdefault((*path, key), line)
            merged.setdefault(key, value[key])


def _scalar(document: Document, node: ScalarNode, path: Path) -> Any:
    text = str(node.value)
    kind = str(node.tag).removeprefix(_TAG)
    if kind == "null":
        return None
    if kind == "bool":
        return text.lower() == "true"
    if kind in ("int", "float") and len(text) <= _LONGEST_NUMBER:
        try:
            return _number(text, kind)
        except ValueError:
            return text
    if kind not in ("str", "int", "float", "timestamp", "value", "merge"):
        document.mistake(path, f"the tag {str(node.tag)[:60]} is not allowed", "plain values only")
    return text


def _number(text: str, kind: str) -> int | float:
    digits = text.replace("_", "")
    if kind == "int":
        return int(digits, 0) if digits.lstrip("+-")[:2] in ("0x", "0o") else int(digits)
    value = float(digits.replace(".inf", "inf").replace(".nan", "nan"))
    if not math.isfinite(value):
        raise ValueError(text)
    return value
