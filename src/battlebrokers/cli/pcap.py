"""`bb pcap`: from capture files to tables, a page and text files, without a run around them."""

from __future__ import annotations

import json
from itertools import islice
from pathlib import Path
from typing import Annotated, Any
from urllib.parse import unquote, urlsplit

import typer

from battlebrokers.analysis.wire import Wire, read_wire
from battlebrokers.cli.interruption import interruptible
from battlebrokers.cli.options import AsJson, Quiet, SparkMaster
from battlebrokers.cli.progress import RunProgress
from battlebrokers.contenders.reader import read_pairing
from battlebrokers.dissect.capture_format import layout_of
from battlebrokers.errors import InputError, UsageError
from battlebrokers.output import PlainConsole, echo_json
from battlebrokers.pipeline.client import Analyst
from battlebrokers.record.route import resolved
from battlebrokers.report.captures import print_captures
from battlebrokers.report.captures_page import render_wire
from battlebrokers.report.export import kind_records, write_wire_csv
from battlebrokers.report.service_text import write_service_texts
from battlebrokers.tables.endpoints import ANYWHERE, endpoint, split_endpoint
from battlebrokers.tables.run_folder import RunFolder, write_atomically

_MOST_KINDS = 500
"""So many rows about kinds of messages are printed as JSON; all are in kinds.csv."""

_FRONT_BYTES = 64
_PACKED = (b"\x1f\x8b", b"\x28\xb5\x2f\xfd")
"""How files packed with gzip and zstd begin."""
_NAMES_HINT = "for example --names redis=10.0.0.5:6379 --names broker=[2001:db8::5]:1883"
_KEY_LOG_BYTES = 64 << 20
"""Every task is told all secrets: a longer key log is not taken."""


def pcap(
    files: Annotated[list[str], typer.Argument(metavar="FILE", help="pcap or pcapng, also .gz and .zst.")],
    out: Annotated[
        str, typer.Option("--out", metavar="DIR", help="Where to write the page, text files and tables.")
    ] = "capture",
    names: Annotated[
        list[str],
        typer.Option("--names", metavar="SERVICE=ADDRESS", help="Who lives where, once each: redis=10.0.0.5[:6379]."),
    ] = [],  # noqa: B006 - Typer copies it
    pairing: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="A file whose section `pairing` says which messages answer which."),
    ] = None,
    tls_keys: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="A key log, as programs write it to the file that SSLKEYLOGFILE names: opens TLS connections.",
        ),
    ] = None,
    csv: Annotated[Path | None, typer.Option(help="Also write the tables as CSV into this directory.")] = None,
    spark_master: SparkMaster = "local[*]",
    as_json: AsJson = False,
    quiet: Quiet = False,
) -> int:
    """Look inside captures: who talked to whom, what was asked, what was answered, and how long it took."""
    out = _without_scheme(out)
    if csv is not None and "://" in out:
        raise UsageError("--csv needs a local --out", hint="Copy the tables here first, or give a local directory.")
    services = parse_names(names)
    pairs = read_pairing(pairing).model_dump() if pairing is not None else None
    places = [_place(file) for file in files]
    if tls_keys is not None:
        _check_key_log(tls_keys)
    unfinished = f"the tables in {out} are not whole", "Decode the captures again."
    with RunProgress(quiet=quiet or as_json) as progress, interruptible(*unfinished):
        progress.begin(f"decode {len(files)} captures" if len(files) > 1 else f"decode {Path(files[0]).name}")
        with start_analyst(spark_master) as analyst:
            if "://" not in out:
                _forget_earlier(RunFolder(Path(out)))
            keys = tls_keys and tls_keys.resolve()
            summary = analyst.decode(places, _target(out), services, progress.step, pairs, keys)
    wire = None if "://" in out else write_report(RunFolder(Path(out)), summary, csv)
    report = "" if "://" in out else str(RunFolder(Path(out)).report_path)
    if as_json:
        kinds = list(islice(kind_records(wire), _MOST_KINDS)) if wire else []
        echo_json(json.dumps(summary | {"kinds": kinds}, indent=2))
    else:
        print_captures(PlainConsole(), summary, out, report=report)
    return 0


def start_analyst(spark_master: str) -> Analyst:
    """An analyst for captures alone."""
    # Captures pass through the JVM in blocks: there is little in it that would be worth compiling well.
    return Analyst.start(spark_master, expected_events=1, idle=False)


def write_report(folder: RunFolder, summary: dict[str, Any], csv: Path | None = None) -> Wire | None:
    """Write the page, a text file per service, and CSV if it is wanted; returns what they tell."""
    wire = read_wire(folder)
    write_atomically(folder.report_path, render_wire(folder, summary, wire).encode())
    if wire is not None:
        write_service_texts(wire, folder.path)
    if csv is not None:
        write_wire_csv(folder, csv, wire)
    return wire


def parse_names(names: list[str]) -> dict[str, str]:
    """`service=address` pairs as address → service; the name of a host stands for all its addresses."""
    found: dict[str, str] = {}
    for name in names:
        service, equals, place = name.partition("=")
        if not equals or not service or not place:
            raise UsageError(f"--names {name!r} is not service=address", hint=_NAMES_HINT)
        try:
            host, port = split_endpoint(place)
        except ValueError as error:
            raise UsageError(f"--names {name!r}: {error}", hint=_NAMES_HINT) from error
        addresses = (host,) if host == ANYWHERE else resolved(host)
        if not addresses:
            raise UsageError(f"--names {name!r}: {host} has no address here", hint="Give its address instead.")
        found |= {endpoint(address, port): service for address in addresses}
    return found


def _check_key_log(path: Path) -> None:
    """Say at once what is wrong with it."""
    # Imported only for those who have one: it takes a while.
    from battlebrokers.dissect.tls_secrets import parse_key_log

    try:
        if path.stat().st_size > _KEY_LOG_BYTES:
            limit = f"{_KEY_LOG_BYTES >> 20} MiB"
            raise InputError(f"{path}: larger than {limit}", hint="Keep the lines of these captures.")
        secrets = parse_key_log(path.read_bytes())
    except OSError as error:
        raise InputError(f"{path}: {error.strerror or error}", hint="A key log is what SSLKEYLOGFILE names.") from error
    if not secrets:
        hint = "Lines like `CLIENT_RANDOM <64 hex digits> <secret>`, as programs write them to SSLKEYLOGFILE."
        raise InputError(f"{path}: no TLS secrets in it", hint=hint)


def _forget_earlier(folder: RunFolder) -> None:
    """What an earlier decoding told does not outlive its tables. Files of others stay."""
    if not folder.decoded_summary_path.exists():
        return
    folder.report_path.unlink(missing_ok=True)
    for text in (folder.path / "services").glob("*.txt"):
        text.unlink(missing_ok=True)


def _place(file: str) -> str:
    """Where a capture lies; what is none is refused here, before Spark starts."""
    file = _without_scheme(file)
    if "://" in file:
        return file
    path = Path(file)
    if path.is_dir():
        raise InputError(f"{file} is a directory", hint="Give the capture files in it, for example DIR/*.pcapng.")
    if path.exists() and not path.is_file():
        raise InputError(f"{file} is no regular file", hint="Captures are read from any place: write it to disk first.")
    if not path.is_file():
        raise InputError(f"{file}: no such file", hint="Give pcap or pcapng files, as written by dumpcap or tcpdump.")
    try:
        with path.open("rb") as capture:
            front = capture.read(_FRONT_BYTES)
    except OSError as error:
        raise InputError(f"{file} cannot be read: {error.strerror or error}", hint="Check its permissions.") from error
    if not front:
        raise InputError(f"{file} is empty", hint="Was the capture stopped before its first packet?")
    if not front.startswith(_PACKED) and layout_of(front) is None:
        raise InputError(f"{file} is no capture", hint="Give pcap or pcapng files, plain or packed with gzip or zstd.")
    return str(path.resolve())


def _without_scheme(place: str) -> str:
    return unquote(urlsplit(place).path) if place.startswith("file://") else place


def _target(out: str) -> str:
    return out if "://" in out else str(Path(out).resolve())
