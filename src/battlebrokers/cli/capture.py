"""`bb capture`: capture the packets of services we did not start, one set of files per service."""

from __future__ import annotations

import threading
import time
from pathlib import Path
from typing import Annotated

import msgspec
import typer

from battlebrokers import signals
from battlebrokers.cli.options import AsJson, CaptureLimit, Quiet, Snap, parse_limits
from battlebrokers.errors import EnvironmentNotReady, ExitCode, UsageError
from battlebrokers.output import echo, echo_json
from battlebrokers.record.wire import Wire, parse_service
from battlebrokers.run.capturing import Capturing
from battlebrokers.tables.manifest import CaptureFacts
from battlebrokers.tables.run_folder import write_atomically
from battlebrokers.units import format_count, format_size

INDEX_FILE = "captures.json"
_WATCH_S = 0.1


def capture(
    services: Annotated[
        list[str],
        typer.Option("--service", "-s", help="A service and where it listens: broker=1883,8883; all packets: broker."),
    ],
    out: Annotated[Path, typer.Option("--out", "-o", help="The folder for the captures.")],
    interfaces: Annotated[
        list[str],
        typer.Option("--interface", "-i", help="Where to listen: eth0 for all services, redis=eth1 for one of them."),
    ] = [],  # noqa: B006 - typer reads the default, nobody changes it
    namespaces: Annotated[
        list[str], typer.Option("--namespace", help="The network namespace to listen in, for all or as service=name.")
    ] = [],  # noqa: B006
    containers: Annotated[
        list[str], typer.Option("--container", help="The container (Docker, Podman), for all or as service=name.")
    ] = [],  # noqa: B006
    seconds: Annotated[float, typer.Option("--seconds", min=0.0, help="How long; 0 = until Ctrl-C.")] = 0.0,
    snap: Snap = "0",
    capture_limit: CaptureLimit = "4GiB",
    as_json: AsJson = False,
    quiet: Quiet = False,
) -> int:
    """Capture the packets of running services, each into files of its own, until the time is over or Ctrl-C.

    DIR/captures.json tells which file is whose, where it was captured and what was lost.
    Exit code: 0 captured, 4 nothing could be captured, 130 Ctrl-C before --seconds were over (the files are complete).
    """
    wires = wires_of_options(services, interfaces, namespaces, containers)
    stopped = threading.Event()
    capturing = Capturing(out.absolute(), out.absolute(), parse_limits(snap, capture_limit), time.time_ns, _warn)
    kept = f"what was captured is in {out}, without {INDEX_FILE}"
    with signals.reacting(stopped.set), signals.keeping(kept):
        try:
            capturing.while_running(wires)
            capturing.after_start()
            if not capturing.running:
                raise EnvironmentNotReady(
                    "nothing can be captured", hint="; ".join(facts.missing for facts in capturing.facts)
                )
            if not (quiet or as_json):
                until = f"for {seconds:g} s" if seconds else "until Ctrl-C"
                echo(f"capturing {', '.join(wire.service for wire in wires)} {until}", err=True)
            in_time = _wait(capturing, stopped, seconds)
        finally:
            facts = capturing.stop()
    told = msgspec.json.format(msgspec.json.encode(facts), indent=2)
    write_atomically(out.absolute() / INDEX_FILE, told)
    if as_json:
        echo_json(told)
    else:
        echo(_in_words(facts, out))
    return ExitCode.PASS if in_time else ExitCode.INTERRUPTED


def wires_of_options(
    services: list[str], interfaces: list[str], namespaces: list[str], containers: list[str]
) -> list[Wire]:
    """One wire per service; an option without `service=` is for all of them."""
    named = dict(parse_service(text) for text in services)
    if len(named) < len(services):
        raise UsageError("a service is named twice", hint="give all its ports at once: --service broker=1883,8883")
    interface = _for_each(interfaces, "--interface", named)
    namespace = _for_each(namespaces, "--namespace", named)
    container = _for_each(containers, "--container", named)
    return [
        Wire(name, ports, interface=interface[name], namespace=namespace[name], container=container[name])
        for name, ports in named.items()
    ]


def _for_each(texts: list[str], option: str, services: dict[str, tuple[int, ...]]) -> dict[str, str]:
    found = dict.fromkeys(services, "")
    for text in sorted(texts, key=lambda each: "=" in each):
        name, equals, value = text.partition("=")
        if not equals:
            found = dict.fromkeys(services, text)
        elif name in services and value:
            found[name] = value
        else:
            raise UsageError(f"{option} {text}: no --service is called {name!r}", hint=f"known: {', '.join(services)}")
    return found


def _wait(capturing: Capturing, stopped: threading.Event, seconds: float) -> bool:
    """Wait for the end; false if a signal came before the time was over."""
    until = time.monotonic() + seconds if seconds else None
    while capturing.running and (until is None or time.monotonic() < until):
        if stopped.wait(_WATCH_S if until is None else min(_WATCH_S, max(until - time.monotonic(), 0.0))):
            return until is None
    return True


def _in_words(facts: list[CaptureFacts], out: Path) -> str:
    lines = []
    for each in facts:
        if not each.files:
            lines.append(f"{each.service}: nothing ({each.missing})")
            continue
        size = sum((out / name).stat().st_size for name in each.files)
        packets = "?" if each.packets is None else format_count(each.packets)
        dropped = "?" if each.dropped is None else format_count(each.dropped)
        where = each.container or each.namespace
        place = f"{each.interface} of {where}" if where else each.interface
        kept = f"{format_size(size)} in {len(each.files)} files"
        lines.append(f"{each.service}: {packets} packets, {dropped} lost, {kept}, {place}")
    return "\n".join([*lines, f"{out}/{INDEX_FILE}"])


def _warn(words: str) -> None:
    echo(f"warning: {words}", err=True)
