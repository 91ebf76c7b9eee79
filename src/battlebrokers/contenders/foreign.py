"""Contender files that are not shipped with us, and what a contender would start or install here, in words.

Asked by the command line before anything of such a file runs. Reads files and looks for programs; starts nothing.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path

from battlebrokers.contenders.availability import located, version_questions
from battlebrokers.contenders.broker_url import is_url
from battlebrokers.contenders.install import install_commands
from battlebrokers.contenders.reader import SPECS, find_contender, split_host
from battlebrokers.contenders.spec import Contender, Profile
from battlebrokers.contenders.template import names_in, render
from battlebrokers.secrets import masked_document, masked_setting

_PLAIN_WORD = re.compile(r"[\w@%+=:,./${}-]+", re.ASCII)


def is_foreign(broker: str) -> bool:
    """Whether this names a contender file that did not come with us."""
    name, _ = split_host(broker)
    return name.endswith((".yaml", ".yml")) and not is_url(name) and Path(name).parent.resolve() != SPECS.resolve()


def would_start(broker: str, profile: Profile = "stock") -> list[str]:
    """All that is run to use this contender here, a line each; empty when somebody else runs it."""
    if is_url(broker):
        return []
    contender = find_contender(broker)
    if contender.run.external or (split_host(broker)[1] and all(contender.ports.values())):
        return []
    found = located(contender)
    lines = [f"asks for a version: {_words(command, found)}" for command in version_questions(contender)]
    for companion in contender.beside.values():
        what = f"the contender {companion.contender}" if companion.contender else _words(companion.command, found)
        lines.append(f"starts beside it: {what}")
    lines.append(f"starts: {_main(contender, found)}")
    env = {**contender.run.env, **contender.profiles[profile].env}
    if env:
        lines.append(f"with: {_words([_masked_variable(name, value) for name, value in env.items()], found)}")
    files = {**contender.files, **contender.profiles[profile].files}
    if files:
        lines.append(f"configured by: {_words(list(files), {})}")
    return lines


def would_install(contender: Contender) -> list[str]:
    """All that is run to install it, a line each."""
    return [f"installs: {_words(command, {})}" for command in install_commands(contender)]


def printable(text: str) -> str:
    """A text of somebody else as it may stand on a terminal: what would move its cursor or colour is spelled out."""
    return "".join(letter if letter.isprintable() else repr(letter)[1:-1] for letter in text)


def _masked_variable(name: str, value: str) -> str:
    """A variable of its environment; masked before it is quoted, which would change how its secrets are spelled."""
    _, _, shown = masked_setting(f"{name}={value}").partition("=")
    return f"{name}={masked_document(shown)}"


def _main(contender: Contender, found: Mapping[str, str]) -> str:
    run = contender.run
    if run.compose:
        return f"all of the compose file {_words([run.compose], found)}"
    command = _words(run.command, found)
    if run.container:
        mounts = "".join(f", with {_words([path], found)} as {inside}" for inside, path in run.mounts.items())
        return f"the container {' '.join([run.container, command]).strip()}{mounts}"
    return f"in the network namespace {run.namespace}: {command}" if run.namespace else command


def _words(command: Sequence[str], found: Mapping[str, str]) -> str:
    """A command as one would type it, with what was found in place of its names."""
    filled = [render(word, {name: found.get(name, f"${{{name}}}") for name in names_in(word)}) for word in command]
    return printable(" ".join(word if _PLAIN_WORD.fullmatch(word) else shlex.quote(word) for word in filled))
