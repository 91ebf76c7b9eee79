"""Consent: nothing that a contender file of somebody else names is run before the user has seen it and said yes.

Called by the verbs that start or install contenders, before they do anything else. Remembers nothing.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Sequence

import typer

from battlebrokers.contenders.foreign import is_foreign, printable, would_install, would_start
from battlebrokers.contenders.reader import find_contender
from battlebrokers.contenders.spec import Profile
from battlebrokers.errors import UsageError
from battlebrokers.output import echo


def require_trust(brokers: Iterable[str], profile: Profile, *, trusted: bool) -> None:
    """Ask, or refuse where nobody can be asked, for each contender file that would start something here."""
    for broker in dict.fromkeys(brokers):
        if is_foreign(broker) and not trusted:
            _ask(broker, would_start(broker, profile))


def require_trust_to_install(names: Iterable[str], *, trusted: bool) -> None:
    """The same for what installing runs; looking whether it is here already may ask programs for their versions."""
    for name in dict.fromkeys(names):
        if is_foreign(name) and not trusted:
            asked = [line for line in would_start(name) if line.startswith("asks for")]
            _ask(name, [*asked, *would_install(find_contender(name))])


def _ask(file: str, lines: Sequence[str]) -> None:
    if not lines:
        return
    name = printable(file)
    told = "\n".join(f"  {line}" for line in lines)
    if not (sys.stdin.isatty() and sys.stderr.isatty()):
        raise UsageError(
            f"{name} did not come with BattleBrokers, and nothing of it runs unless you trust it\n{told}",
            hint="If that is what you want to run here, say --trust.",
        )
    echo(f"{name} did not come with BattleBrokers. To use it:\n{told}", err=True)
    if not typer.confirm("Run that here?", default=False, err=True):
        raise UsageError(f"{name} is not trusted; nothing of it was run", hint="--trust says yes without asking.")
