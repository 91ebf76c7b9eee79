"""Plain data → Scenario, with every mistake explained at its path. Called by the reader.

Pydantic stops at the first broken model; here broken parts are taken out and the rest is looked at again, so that
one reading finds all there is to find.
"""

from __future__ import annotations

import copy
import types
import typing
from pathlib import Path as FilePath
from typing import Any

from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

from battlebrokers.scenario.document import Document, Path
from battlebrokers.scenario.model import Scenario
from battlebrokers.scenario.patterns import nearest
from battlebrokers.secrets import MASK, is_secret_name

_STAND_INS: dict[str, Any] = {"name": "unnamed", "phases": {"measure": "1h"}}
_MOST_LOOKS = 6


def validate(document: Document, folder: FilePath | None) -> tuple[Scenario | None, set[Path]]:
    """The scenario, and the paths that had to be left out of it; mistakes are noted in the document.

    None if nothing sensible remains.
    """
    data = copy.deepcopy(document.data)
    left_out: set[Path] = set()
    for _ in range(_MOST_LOOKS):
        try:
            return Scenario.model_validate(data, context={"folder": folder}), left_out
        except ValidationError as error:
            details = error.errors(include_url=False)
        except RecursionError:
            document.mistake((), "is nested too deeply")
            return None, left_out
        for detail in details:
            path = _path(detail, data)
            if path not in left_out:
                message, hint = _explain(detail, path)
                document.mistake(path, message, hint)
            left_out.add(path)
        _leave_out(data, [(_path(detail, data), detail["type"] == "missing") for detail in details], left_out)
    return None, left_out


def _path(detail: ErrorDetails, data: Any) -> Path:
    """Where it is, without the index pydantic adds when one text stands for a list of one."""
    path: list[str | int] = []
    for part in detail["loc"]:
        if isinstance(part, int) and not isinstance(data, list):
            break
        path.append(part)
        if isinstance(data, dict):
            data = data.get(str(part))
        elif isinstance(data, list):
            data = data[part] if isinstance(part, int) and part < len(data) else None
    return tuple(path)


def _leave_out(data: dict[str, Any], broken: list[tuple[Path, bool]], left_out: set[Path]) -> None:
    """Remove what is broken; what lacks something required is removed whole."""
    for path, is_missing in sorted(broken, key=lambda item: [str(part).zfill(9) for part in item[0]], reverse=True):
        target = path[:-1] if is_missing and len(path) > 1 else path
        left_out.add(target)
        holder: Any = data
        for part in target[:-1]:
            holder = (
                holder.get(part)
                if isinstance(holder, dict)
                else holder[part]
                if isinstance(part, int) and part < len(holder)
                else None
            )
            if not isinstance(holder, dict | list):
                break
        else:
            _remove(holder, target[-1])
    for key, stand_in in _STAND_INS.items():
        if (key,) in left_out or (key not in data):
            data.setdefault(key, stand_in)


def _remove(holder: dict[str, Any] | list[Any], key: str | int) -> None:
    if isinstance(holder, dict):
        holder.pop(str(key), None)
    elif isinstance(key, int) and key < len(holder):
        holder.pop(key)


def _shown(value: object) -> str:
    if isinstance(value, dict):
        return "a mapping"
    if isinstance(value, list | tuple):
        return "a list"
    if isinstance(value, bool):
        return str(value).lower()
    text = repr(value)
    return text if len(text) <= 60 else text[:60] + "…"


def _explain(detail: ErrorDetails, path: Path) -> tuple[str, str]:
    """What pydantic found, in our words."""
    context = detail.get("ctx", {})
    kind = detail["type"]
    secret = any(is_secret_name(str(part)) for part in path)
    shown = MASK if secret else _shown(detail["input"])
    match kind:
        case "extra_forbidden":
            return f"unknown key `{path[-1]}`", nearest(str(path[-1]), _keys_at(path[:-1]))
        case "missing":
            return f"`{path[-1]}` is missing", ""
        case "value_error":
            error = context.get("error")
            return str(error), getattr(error, "hint", "")
        case "literal_error":
            expected = str(context.get("expected", "")).replace("'", "")
            words = expected.replace(" or ", ", ").split(", ")
            hint = nearest(str(detail["input"]), words) if isinstance(detail["input"], str) else ""
            return f"must be {expected}, not {shown}", hint if hint.startswith("did") else ""
        case "int_type" | "int_from_float" | "int_parsing":
            if str(detail["input"]).lstrip("+-").isdecimal():
                return f"{shown} is too large", ""
            return f"must be a whole number, not {shown}", ""
        case "bool_type" | "bool_parsing":
            return f"must be true or false, not {shown}", ""
        case "model_type" | "dict_type" | "model_attributes_type":
            return f"must be a mapping (key: value), not {shown}", ""
        case "list_type" | "tuple_type":
            return f"must be a list, not {shown}", ""
        case "greater_than_equal":
            return f"must be at least {context.get('ge')}, not {shown}", ""
        case "less_than_equal":
            return f"must be at most {context.get('le')}, not {shown}", ""
        case _:
            return f"{detail['msg'][:1].lower()}{detail['msg'][1:]}, not {shown}", ""


def keys_of(model: type[BaseModel]) -> list[str]:
    """The keys a model takes, as written in YAML."""
    return [field.alias or name for name, field in model.model_fields.items()]


def _keys_at(path: Path) -> list[str]:
    """The valid keys of the mapping at that path."""
    model: Any = Scenario
    for part in path:
        if isinstance(model, type) and issubclass(model, BaseModel):
            field = next((f for name, f in model.model_fields.items() if part in (name, f.alias)), None)
            model = _inner(field.annotation) if field else None
        elif model is not None:
            model = _inner(typing.get_args(model)[-1]) if typing.get_args(model) else None
    return keys_of(model) if isinstance(model, type) and issubclass(model, BaseModel) else []


def _inner(annotation: Any) -> Any:
    """The type inside Optional and Annotated."""
    while typing.get_origin(annotation) in (typing.Union, types.UnionType, typing.Annotated):
        arguments = [item for item in typing.get_args(annotation) if item is not type(None)]
        annotation = arguments[0]
    return annotation
