"""`bb pcap`: from capture files to packets, streams, messages and exchanges, without a run around them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from battlebrokers.cli.options import AsJson, Quiet, SparkMaster
from battlebrokers.cli.progress import RunProgress
from battlebrokers.errors import InputError, UsageError
from battlebrokers.pipeline.client import Analyst
from battlebrokers.report.captures import print_captures


def pcap(
    files: Annotated[list[str], typer.Argument(metavar="FILE…", help="pcap or pcapng, also .gz and .zst.")],
    out: Annotated[str, typer.Option("--out", metavar="DIR", help="Where to write the tables.")] = "capture",
    names: Annotated[
        list[str], typer.Option("--names", metavar="SERVICE=ADDRESS", help="Who lives where: redis=10.0.0.5[:6379].")
    ] = [],  # noqa: B006 - Typer copies it
    spark_master: SparkMaster = "local[*]",
    as_json: AsJson = False,
    quiet: Quiet = False,
) -> int:
    """Look inside captures: who talked to whom, what was asked, what was answered, and how long it took."""
    services = parse_names(names)
    places = [_place(file) for file in files]
    with RunProgress(quiet=quiet or as_json) as progress:
        progress.begin(f"decode {len(files)} captures" if len(files) > 1 else f"decode {Path(files[0]).name}")
        with Analyst.start(spark_master, idle=False) as analyst:
            summary = analyst.decode(places, _target(out), services, progress.step)
    if as_json:
        typer.echo(json.dumps(summary, indent=2))
    else:
        print_captures(Console(highlight=False), summary, out)
    return 0


def parse_names(names: list[str]) -> dict[str, str]:
    """`service=address` pairs as address → service."""
    found = {}
    for name in names:
        service, equals, address = name.partition("=")
        if not equals or not service or not address:
            raise UsageError(f"--names {name!r} is not service=address", hint="for example --names redis=10.0.0.5:6379")
        found[address] = service
    return found


def _place(file: str) -> str:
    if "://" in file:
        return file
    path = Path(file)
    if not path.is_file():
        raise InputError(f"{file}: no such file", hint="Give pcap or pcapng files, as written by dumpcap or tcpdump.")
    return str(path.resolve())


def _target(out: str) -> str:
    return out if "://" in out else str(Path(out).resolve())
