"""What is printed: nothing in it steers the terminal, and nobody prints but the one who sees to that."""

from __future__ import annotations

import ast
import io
import json
import logging
import warnings
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.progress import Progress, TextColumn
from rich.table import Table
from rich.text import Text

import battlebrokers
from battlebrokers.output import PlainConsole, echo, echo_json, print_errors_visibly
from battlebrokers.secrets import remember
from battlebrokers.visible import visible, visible_json
from support.examples import examples

SOURCES = Path(battlebrokers.__file__).parent
HOSTILE = "\x1b[2J\x1b]0;title\x07\r\x9b31m\x7f\u202etxt.\u2028\ud800\U000e0041[red]:boom:[/red]"
SHOWN = "\\x1b[2J\\x1b]0;title\\x07\\r\\x9b31m\\x7f\\u202etxt.\\u2028\\ud800\\U000e0041[red]:boom:[/red]"


def _steers(text: str) -> list[str]:
    return [c for c in text if c != "\n" and (not c.isprintable() and c != " ")]


def test_control_characters_become_visible_escapes() -> None:
    assert visible(HOSTILE) == SHOWN
    assert visible("a\nb\tc") == "a\\nb\\tc"
    assert visible("a\nb\tc", keep_breaks=True) == "a\nb\\tc"
    assert visible("Größe ± 5 µs • ✓ 漢字") == "Größe ± 5 µs • ✓ 漢字"


@given(st.text(alphabet=st.characters(), max_size=80))
@examples(100)
def test_no_text_has_anything_left_that_steers(text: str) -> None:
    assert not any(ord(c) < 32 or 127 <= ord(c) < 160 for c in visible(text))
    visible(text).encode()  # no half of a surrogate pair


@given(st.recursive(st.text(max_size=20), lambda inner: st.lists(inner) | st.dictionaries(st.text(max_size=9), inner)))
@examples(100)
def test_a_json_document_means_the_same_afterwards(value: object) -> None:
    document = visible_json(json.dumps(value, ensure_ascii=False, indent=2))
    assert json.loads(document) == value
    assert not any((ord(c) < 32 and c != "\n") or 127 <= ord(c) < 160 for c in document)


def test_lines_are_printed_without_what_steers(capsys: pytest.CaptureFixture[str]) -> None:
    remember("hunter2hunter2")
    echo(f"first {HOSTILE}\nsecond hunter2hunter2", err=True)
    echo_json(json.dumps({"name": HOSTILE, "said": "hunter2hunter2"}, ensure_ascii=False))
    told = capsys.readouterr()
    assert told.err == f"first {SHOWN}\nsecond •••\n"
    assert json.loads(told.out) == {"name": HOSTILE, "said": "•••"}
    assert _steers(told.out) == []


def test_tables_texts_and_strings_are_drawn_without_what_steers() -> None:
    sink = io.StringIO()
    console = PlainConsole(file=sink, width=300)
    table = Table(HOSTILE, "plain", title=HOSTILE)
    table.add_row(HOSTILE, Text(HOSTILE + "\nfake line", "red"))
    console.print(table)
    console.print(HOSTILE, style="bold")
    console.print(Text.assemble(("a", "red"), HOSTILE, "\nnext: rm -rf"), soft_wrap=True)
    told = sink.getvalue()
    assert _steers(told) == []
    assert "\\x1b[2J" in told
    assert "[red]:boom:[/red]" in told
    assert not any(line.strip().startswith(("fake line", "next:")) for line in told.splitlines())


def test_a_terminal_gets_our_colours_and_nobody_elses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("NO_COLOR", raising=False)
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("TERM", "xterm-256color")
    sink = io.StringIO()
    console = PlainConsole(file=sink, width=200)
    console.print(Text(f"a{HOSTILE}b", "red"))
    columns = TextColumn("{task.fields[label]}", style="bold", markup=False)
    with Progress(columns, console=console, transient=True) as bars:
        bars.add_task("x", label=HOSTILE)
        bars.refresh()
    told = sink.getvalue()
    assert "\x1b[31m" in told
    assert not any(foreign in told for foreign in ("\x1b[2J", "\x1b]0", "\x9b", "\u202e", "\x07", "\x7f"))


def test_warnings_log_lines_and_errors_of_threads_are_printed_visibly(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for place, name in ((warnings, "showwarning"), (logging, "lastResort")):
        monkeypatch.setattr(place, name, getattr(place, name))
    for name in ("sys.excepthook", "threading.excepthook"):
        monkeypatch.setattr(name, None)
    print_errors_visibly()
    warnings.showwarning(f"w {HOSTILE}", UserWarning, "x", 1)
    assert logging.lastResort is not None
    logging.lastResort.handle(logging.makeLogRecord({"msg": f"l {HOSTILE}", "levelno": logging.ERROR}))
    told = capsys.readouterr().err
    assert told.count("\\x1b[2J") == 2
    assert _steers(told) == []


def test_nobody_prints_past_the_one_place() -> None:
    """A terminal is written to by `output`; `main` has one fixed word to say before it can be loaded."""
    found = []
    for path in sorted(SOURCES.rglob("*.py")):
        place = str(path.relative_to(SOURCES))
        if place in ("output.py", "cli/main.py"):
            continue
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Call) and _prints(ast.unparse(node.func), node):
                found.append(f"{place}:{node.lineno}: {ast.unparse(node)[:60]}")
    # Processes of ours whose stderr is a log file, and never a terminal.
    allowed = ("run/worker.py", "pipeline/analyst.py", "contenders/keeper.py")
    assert [each for each in found if not each.startswith(allowed)] == []


def _prints(name: str, call: ast.Call) -> bool:
    to_a_file = name == "print" and any(
        word.arg == "file" and "sys." not in ast.unparse(word.value) for word in call.keywords
    )
    printing = {"print", "typer.echo", "click.echo", "typer.secho", "Console", "rich.print", "traceback.print_exc"}
    return (name in printing and not to_a_file) or name.startswith(("sys.stdout.w", "sys.stderr.w", "sys.__std"))
