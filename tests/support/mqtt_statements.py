"""The table of MQTT's normative statements (`tests/conformance/mqtt/statements.txt`): read here, written as a page.

Called by its test and by `scripts/generate-reference`. Pure: text in, rows out.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

TABLE = Path(__file__).resolve().parent.parent / "conformance" / "mqtt" / "statements.txt"
NO_TEST = "none"
"""In the place of a test: one is still to be written."""
_ABOUT = """\
The {old} normative statements of MQTT 3.1.1 and the {new} of MQTT 5 by their numbers (appendix B of each
specification), in our words: what they ask, whom they bind, what our client does, and the test that shows it.
Statements that bind servers only are listed so that none is missing; some have a test all the same, because our client
notices when a server breaks them. The tests run over real sockets, against servers that follow a script:
`pytest tests/conformance/mqtt`.

What ends a connection is counted as a malformed arrival. The code in brackets is the reason of the DISCONNECT we send
in MQTT 5; 3.1.1 has none, and the connection is closed without a word."""


@dataclass(frozen=True)
class Statement:
    """One row: its numbers in both versions, whom it binds, our words, and which tests (file, name) show it."""

    section: str
    old: tuple[str, ...]
    new: tuple[str, ...]
    whom: str
    words: str
    conduct: str
    tests: tuple[tuple[str, str], ...]
    untested: bool = False


def _numbers(cell: str) -> tuple[str, ...]:
    if cell == "-":
        return ()
    section, _, last = cell.rpartition("-")
    return tuple(f"{section}-{number}" for number in last.split(","))


def read_statements(text: str) -> list[Statement]:
    """The rows of the table."""
    files = dict(re.findall(r"^# (\w) = (\S+)$", text, re.MULTILINE))
    section, rows = "", []
    for line in text.splitlines():
        if line.startswith("## "):
            section = line[3:]
        elif line and not line.startswith("#"):
            old, new, whom, words, conduct, tests = (cell.strip() for cell in line.split(" | "))
            named = tests.split("; ") if tests not in ("-", NO_TEST) else []
            found = tuple((files[one[0]], one[2:]) for one in named)
            rows.append(Statement(section, _numbers(old), _numbers(new), whom, words, conduct, found, tests == NO_TEST))
    return rows


def conformance_page(text: str) -> str:
    """The reference page."""
    rows = read_statements(text)
    old, new = (sum(len(getattr(row, name)) for row in rows) for name in ("old", "new"))
    lines = ["# MQTT, statement by statement", "", _ABOUT.format(old=old, new=new)]
    section = ""
    for row in rows:
        if row.section != section:
            section = row.section
            lines += [
                "",
                f"## {section}",
                "",
                "| 3.1.1 | 5 | binds | statement | our client | test |",
                "|---|---|---|---|---|---|",
            ]
        cells = (
            *map(_shown, (row.old, row.new)),
            row.whom,
            row.words,
            _dash(row.conduct),
            _dash("<br>".join(_names(row))),
        )
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def _names(row: Statement) -> Iterator[str]:
    return (f"`{Path(file).stem}::{test}`" for file, test in row.tests)


def _shown(numbers: tuple[str, ...]) -> str:
    return ", ".join(f"MQTT-{number}" for number in numbers)


def _dash(text: str) -> str:
    return "" if text == "-" else text
