"""`bb report`: tell what is known of one run, or of several as a battle."""

from __future__ import annotations

import webbrowser
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from battlebrokers.analysis.conclusion import Conclusion, draw_conclusion
from battlebrokers.analysis.ranking import rank
from battlebrokers.catalog.entries import runs_directory
from battlebrokers.catalog.references import resolve_runs
from battlebrokers.errors import UsageError
from battlebrokers.output import PlainConsole, echo, echo_json
from battlebrokers.report.battle import print_battle
from battlebrokers.report.export import to_json, to_junit, to_markdown, write_csv
from battlebrokers.report.html import render_report
from battlebrokers.report.terminal import print_run
from battlebrokers.tables.run_folder import write_atomically


def report(
    refs: Annotated[
        list[str], typer.Argument(metavar="RUN", help="Id or its start, folder, LAST, LAST~1, or a battle's id.")
    ],
    html: Annotated[Path | None, typer.Option(help="Write the self-contained HTML report to this file.")] = None,
    json: Annotated[bool, typer.Option("--json", help="Print the summary object (a list for several runs).")] = False,
    csv: Annotated[Path | None, typer.Option(help="Write every table as CSV into this directory.")] = None,
    junit: Annotated[Path | None, typer.Option(help="Write expectations as JUnit XML to this file.")] = None,
    markdown: Annotated[bool, typer.Option("--markdown", help="Print Markdown for a pull request.")] = False,
    open_: Annotated[bool, typer.Option("--open", help="Open the HTML report in a browser.")] = False,
    runs: Annotated[Path | None, typer.Option(help="Directory of the runs; $BB_RUNS or ./runs if absent.")] = None,
) -> None:
    """Tell what is known of a run; of several runs, who is better and how sure that is."""
    conclusions = [draw_conclusion(folder) for folder in resolve_runs(refs, runs_directory(runs))]
    said = PlainConsole(stderr=True)
    page = html or (conclusions[0].folder.report_path if open_ and len(conclusions) == 1 else None)
    if open_ and page is None:
        page = conclusions[0].folder.path.parent / f"battle-{conclusions[0].summary.run}.html"
    if page is not None:
        _write(page, render_report(conclusions, page.parent).encode(), said)
    if csv is not None:
        _write_csv(conclusions, csv, said)
    if junit is not None:
        _write(junit, to_junit(conclusions), said)
    if json:
        echo_json(to_json(conclusions).decode(), nl=False)
    elif markdown:
        echo(to_markdown(conclusions), nl=False)
    elif page is None and csv is None and junit is None:
        _print(conclusions)
    if open_ and page is not None:
        webbrowser.open(page.resolve().as_uri())


def _print(conclusions: list[Conclusion]) -> None:
    console = PlainConsole()
    if len(conclusions) == 1:
        print_run(console, conclusions[0])
    else:
        print_battle(console, rank([conclusion.summary for conclusion in conclusions]))


def _write(path: Path, content: bytes, said: Console) -> None:
    try:
        write_atomically(path, content)
    except OSError as error:
        raise UsageError(f"{path} cannot be written: {error.strerror}") from error
    said.print(f"wrote {path}", highlight=False, soft_wrap=True, markup=False)


def _write_csv(conclusions: list[Conclusion], folder: Path, said: Console) -> None:
    for conclusion in conclusions:
        target = folder / conclusion.summary.run if len(conclusions) > 1 else folder
        count = len(write_csv(conclusion.facts, target))
        said.print(f"wrote {count} tables to {target}", highlight=False, soft_wrap=True, markup=False)
