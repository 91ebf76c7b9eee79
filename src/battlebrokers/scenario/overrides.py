"""`--set path=value`: change anything in a scenario from the command line, before it is checked.

Called by the reader. `null` removes a key; whatever is wrong with a value is later blamed on the option, not the file.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from battlebrokers.errors import Mistake
from battlebrokers.scenario.document import Document, parse_value
from battlebrokers.scenario.patterns import nearest
from battlebrokers.secrets import masked_setting

_NAMED_GROUPS = ("fleets", "clients")


def apply_overrides(document: Document, overrides: Sequence[str]) -> None:
    """Apply them in order; mistakes are noted in the document."""
    for override in overrides:
        path_text, equals, value_text = override.partition("=")
        parts = path_text.strip().split(".")
        option = f"--set {masked_setting(override)}"
        if equals and all(parts):
            _apply(document, parts, parse_value(value_text), option)
        else:
            _refuse(document, option, "needs the form path=value", "such as --set fleets.air.devices=10")


def _apply(document: Document, parts: list[str], value: Any, option: str) -> None:
    holder: Any = document.data
    done: tuple[str | int, ...] = ()
    for part in parts[:-1]:
        key = _key(document, holder, part, done, option)
        if key is None:
            return
        if isinstance(holder, dict) and key not in holder:
            if done and done[0] in _NAMED_GROUPS and len(done) == 1:
                _refuse(document, option, f"there is no `{part}` in {done[0]}", nearest(part, list(holder)))
                return
            holder[key] = {}
        holder = holder[key]
        done = (*done, key)
        if not isinstance(holder, dict | list):
            _refuse(document, option, f"{'.'.join(map(str, done))} is a value and has nothing inside")
            return
    key = _key(document, holder, parts[-1], done, option)
    if key is None:
        return
    path = (*done, key)
    if isinstance(holder, list):
        assert isinstance(key, int)
        holder[key : key + 1] = [] if value is None else [value]
    elif value is None:
        holder.pop(key, None)
    else:
        holder[key] = value
    document.options[path] = option


def _key(document: Document, holder: Any, part: str, done: tuple[str | int, ...], option: str) -> str | int | None:
    if isinstance(holder, dict):
        return part
    place = int(part) if part.isdecimal() and len(part) < 9 else -1
    if 0 <= place <= len(holder):
        return place
    where = ".".join(map(str, done))
    _refuse(document, option, f"{where} is a list of {len(holder)}; {part!r} is no place in it", f"0 … {len(holder)}")
    return None


def _refuse(document: Document, option: str, message: str, hint: str = "") -> None:
    document.mistakes.append(Mistake(option, 0, "", message, hint))
