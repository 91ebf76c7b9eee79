"""`bb sdn ladder`: the way of one message through the network, from captures of every cable and of OpenFlow."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from battlebrokers import signals
from battlebrokers.cli.options import AsJson
from battlebrokers.cli.sdn.app import TokenFile, sdn_app
from battlebrokers.cli.sdn.asking import URL, Rest, Url, asked, resource_path, rest_at
from battlebrokers.errors import EnvironmentNotReady, ExitCode, UsageError
from battlebrokers.output import PlainConsole, echo_json
from battlebrokers.scratch import Scratch

if TYPE_CHECKING:
    from battlebrokers.sdn.ladder.steps import Ladder


@sdn_app.command("ladder")
def ladder(
    resource: Annotated[str, typer.Option("--resource", help="Its address, such as 1.1.1.1.")] = "",
    host: Annotated[str, typer.Option("--as", help="The host of the lab that publishes.")] = "",
    taken: Annotated[
        Path | None, typer.Option("--from", help="A folder with captures taken before; nothing is published.")
    ] = None,
    out: Annotated[Path | None, typer.Option("--out", help="Keep the captures in this folder.")] = None,
    text: Annotated[str, typer.Option("--text", help="The message.")] = "hello",
    port: Annotated[int, typer.Option("--port", min=1, max=65535, help="The UDP port.")] = 5005,
    timeout_s: Annotated[
        float, typer.Option("--timeout", min=0.1, max=60, help="Seconds to wait for all copies.")
    ] = 5.0,
    with_arp: Annotated[
        bool, typer.Option("--arp", help="Let the host forget the resource's address first, so that it asks for it.")
    ] = False,
    svg: Annotated[Path | None, typer.Option("--svg", help="Write the picture to this file.")] = None,
    html: Annotated[Path | None, typer.Option("--html", help="Write a page with the picture to this file.")] = None,
    url: Url = URL,
    token_file: TokenFile = None,
    as_json: AsJson = False,
) -> int:
    """Show who handed one message to whom: host, switches, controller, subscribers, with times in microseconds.

    Publishes a marked message in the lab and captures it on every cable and on the OpenFlow port.
    """
    from battlebrokers.sdn.ladder.facts import read_facts
    from battlebrokers.sdn.ladder.picture import page
    from battlebrokers.sdn.ladder.picture import svg as drawn
    from battlebrokers.sdn.ladder.sightings import read_captures
    from battlebrokers.sdn.ladder.steps import build

    if (taken is None) == (not resource and not host):
        raise UsageError(
            "a ladder is of a message to publish or of captures",
            hint="bb sdn ladder --resource 1.1.1.1 --as h1, or bb sdn ladder --from FOLDER",
        )
    if taken is None and not (resource and host):
        missing = "--as" if resource else "--resource"
        raise UsageError(f"{missing} is missing", hint="bb sdn ladder --resource 1.1.1.1 --as h1")
    kept = f"what was captured is in {taken or out}" if taken or out else "nothing was captured"
    with Scratch("bb-ladder-") as passing, signals.keeping(kept):
        folder = taken or out or passing
        if taken is None:
            rest = rest_at(url, token_file)
            _take(rest, resource, host, folder, text=text, port=port, timeout_s=timeout_s, with_arp=with_arp)
        facts = read_facts(folder)
        made = build(facts, read_captures(folder, facts))
    for path, content in ((svg, drawn), (html, page)):
        if path is not None:
            _write(path, content(made))
    _tell(made, as_json=as_json)
    return ExitCode.PASS


def _take(
    rest: Rest, resource: str, host: str, folder: Path, *, text: str, port: int, timeout_s: float, with_arp: bool
) -> None:  # fmt: skip
    from battlebrokers.sdn.lab.laboratory import DEFAULT_NAMES, Laboratory
    from battlebrokers.sdn.ladder.taking import Wanted, take

    known = asked(rest, "GET", resource_path(resource))
    take(Laboratory(), DEFAULT_NAMES, Wanted(known, host, text, port, timeout_s, with_arp), folder)


def _tell(made: Ladder, *, as_json: bool) -> None:
    from battlebrokers.sdn.ladder import words

    if as_json:
        echo_json(json.dumps(words.as_json(made), indent=2))
        return
    console = PlainConsole()
    console.print(words.heading(made), style="bold", soft_wrap=True, highlight=False)
    for line in words.lines(made, console.width):
        console.print(line, soft_wrap=True, highlight=False)
    for remark in words.remarks(made):
        console.print(remark, style="yellow", soft_wrap=True, highlight=False)


def _write(path: Path, content: str) -> None:
    try:
        path.write_text(content, encoding="utf-8")
    except OSError as fault:
        raise EnvironmentNotReady(f"{path} cannot be written: {fault.strerror}", hint="choose another place") from fault
