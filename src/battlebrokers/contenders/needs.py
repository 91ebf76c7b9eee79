"""What a contender needs to be here, and how its version is learnt. Models of a contender file, used by `spec`."""

from __future__ import annotations

import re
from typing import Annotated, Literal

from pydantic import AfterValidator, model_validator

from battlebrokers.contenders.strict import Strict

PackageManager = Literal["apt", "dnf", "apk", "brew", "pip", "pip-own", "npm", "npm-overrides", "commands"]
"""`pip-own` is a virtual environment of the contender's own; `npm-overrides` pins what its packages depend on."""


def _a_regex(pattern: str) -> str:
    try:
        re.compile(pattern)
    except re.error as error:
        raise ValueError(f"is not a regular expression: {error}") from None
    return pattern


def _a_regex_with_one_group(pattern: str) -> str:
    if re.compile(_a_regex(pattern)).groups != 1:
        raise ValueError("needs exactly one (group)")
    return pattern


Regex = Annotated[str, AfterValidator(_a_regex)]
OneGroup = Annotated[str, AfterValidator(_a_regex_with_one_group)]


class Need(Strict):
    """One thing that must be here: an executable, a file, a Python module, a Node module, or rights."""

    executable: str | None = None
    also_in: list[str] = []
    """Folders to look in besides PATH; they come first, because a wrapper on PATH may hide the real program."""
    at_least: str | None = None
    """The oldest version that will do, as told by `--version`."""
    file: list[str] | None = None
    """Where a file may be; the first that is there."""
    python: str | None = None
    node: str | None = None
    rights: Literal["root"] | None = None
    """What whoever starts it must be."""

    @model_validator(mode="after")
    def _exactly_one(self) -> Need:
        if sum(kind is not None for kind in (self.executable, self.file, self.python, self.node, self.rights)) != 1:
            raise ValueError("say exactly one of executable, file, python, node, rights")
        return self


class VersionSource(Strict):
    """One way to learn the version without starting the broker; `match` picks it out of what is read."""

    command: list[str] | None = None
    glob: str | None = None
    file: str | None = None
    """A file of a module it needs, such as `${NAME}/package.json`."""
    python: str | None = None
    match: OneGroup = r"(\d+(?:\.\d+)+\S*)"

    @model_validator(mode="after")
    def _exactly_one(self) -> VersionSource:
        if sum(kind is not None for kind in (self.command, self.glob, self.file, self.python)) != 1:
            raise ValueError("say exactly one of command, glob, file, python")
        return self


def version_key(version: str) -> tuple[int, ...]:
    """A version as numbers that sort; what is not a number ends it."""
    numbers = []
    for part in version.split("."):
        digits = re.match(r"\d+", part)
        if digits is None:
            break
        numbers.append(int(digits.group()))
    return tuple(numbers)
