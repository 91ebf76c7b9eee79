"""`bb sdn demo`: an application of the network broker at work, with its log and a picture of what happened."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final, Literal

import typer
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

from battlebrokers.cli.interruption import interruptible
from battlebrokers.cli.sdn.app import TokenFile, sdn_app
from battlebrokers.cli.sdn.asking import URL, Rest, Url, asked, rest_at
from battlebrokers.cli.sdn.ground import Ground, ground
from battlebrokers.errors import BattleError, EnvironmentNotReady, ExitCode, Interrupted, UsageError
from battlebrokers.output import PlainConsole
from battlebrokers.units import parse_duration_ns

if TYPE_CHECKING:
    from battlebrokers.sdn.applications.temperature.application import Application, Event, Topic

demo_app = typer.Typer(help="Applications of the network broker, at work.", no_args_is_help=True)
sdn_app.add_typer(demo_app, name="demo")

_SHORTEST_INTERVAL_S: Final = 0.01
_COUNTERS_S: Final = 2.0
_STYLES: Final = {"published": "dim", "fired": "bold red", "triggered": "green", "unexpected": "bold red"}


@demo_app.command("temperature")
def temperature(
    seconds: Annotated[float, typer.Option("--seconds", min=0.1, help="How long the sensor publishes.")] = 20.0,
    interval: Annotated[str, typer.Option("--interval", help="From one reading to the next.")] = "500ms",
    threshold: Annotated[float, typer.Option("--threshold", help="Above it actuators are triggered, in °C.")] = 24.5,
    seed: Annotated[int, typer.Option("--seed", help="Same seed, same weather.")] = 1,
    mode: Annotated[
        Literal["reactive", "direct", "group", "tree"], typer.Option("--mode", help="Who makes copies.")
    ] = "tree",
    folder: Annotated[Path, typer.Option("--folder", metavar="DIR", help="For log and picture.")] = Path("temperature"),
    url: Url = URL,
    token_file: TokenFile = None,
) -> int:
    """Run the temperature application: a sensor, two monitors, two actuators, each a host of the lab `sensors`.

    Starts a lab and a controller where none is, and takes them away again. Exit code 10: a copy got lost or astray.
    """
    interval_s = parse_duration_ns(interval) / 1e9
    if interval_s < _SHORTEST_INTERVAL_S:
        raise UsageError(f"--interval {interval} is too short", hint="10ms is the least")
    from battlebrokers.sdn.applications.temperature.application import Application

    application = Application(seed, threshold, interval_s)
    console = PlainConsole()
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as fault:
        raise EnvironmentNotReady(f"{folder} cannot be made: {fault.strerror}", hint="--folder DIR") from fault
    with (
        interruptible("nothing was published yet", "everything that was started is gone again"),
        ground("sensors", rest_at(url, token_file), lambda words: console.print(words, style="dim")) as standing,
    ):
        return _perform(application, standing, console, folder, mode, interval_s, seconds)


def _perform(
    application: Application,
    standing: Ground,
    console: Console,
    folder: Path,
    mode: str,
    interval_s: float,
    seconds: float,
) -> int:
    from battlebrokers.sdn.applications.temperature.application import copies_missing, log_line
    from battlebrokers.sdn.applications.temperature.conduct import conduct, sockets_of

    log, drawing = folder / "temperature.log", folder / "temperature.svg"
    hosts, interrupted = standing.topology.hosts, False
    with (
        sockets_of(standing.laboratory) as sockets,
        _resources(standing, mode) as addresses,
        log.open("w", encoding="utf-8", buffering=1) as sink,
        _bar(console) as bar,
    ):
        task = bar.add_task("publishing", total=seconds)

        def tell(event: Event) -> None:
            line = log_line(event, hosts[event.host].ipv4, application.threshold_c)
            print(line, file=sink)
            console.print(line, style=_STYLES.get(event.kind, ""), markup=False, soft_wrap=True)

        try:
            conduct(
                application, sockets, addresses, interval_s=interval_s, seconds=seconds, tell=tell,
                on_time=lambda at_s: bar.update(task, completed=at_s),
            )  # fmt: skip
        except KeyboardInterrupt:
            interrupted = True
        ended_s = application.events[-1].at_s if interrupted and application.events else seconds
        drawing.write_text(_drawn(application, standing, addresses, ended_s), encoding="utf-8")
    console.print(f"log: {log}   picture: {drawing}", soft_wrap=True)
    if interrupted:
        raise Interrupted("interrupted: log and picture tell what happened until then")
    missing = copies_missing(application.events)
    astray = sum(event.kind == "unexpected" for event in application.events)
    fired = sum(event.kind == "fired" for event in application.events)
    published = sum(event.kind == "published" for event in application.events)
    console.print(f"{published} readings, {fired} triggers, {missing} copies lost, {astray} datagrams astray")
    return ExitCode.EXPECTATION_FAILED if missing or astray else ExitCode.PASS


@contextmanager
def _resources(standing: Ground, mode: str) -> Iterator[dict[Topic, str]]:
    """Both resources with their subscribers; gone afterwards."""
    from battlebrokers.sdn.applications.temperature.application import SUBSCRIBERS

    made: dict[Topic, str] = {}
    try:
        for topic, subscribers in SUBSCRIBERS.items():
            name = f"temperature/{topic}"
            # Nobody else runs this on this lab, its sockets would be taken: what has the name is what a crash left.
            for left in asked(standing.rest, "GET", f"/api/v1/resources?name={name}"):
                asked(standing.rest, "DELETE", f"/api/v1/resources/{left['address']}")
            told = asked(standing.rest, "POST", "/api/v1/resources", {"mode": mode, "name": name})
            made[topic] = told["address"]
            for host in subscribers:
                who = standing.topology.hosts[host]
                path = f"/api/v1/resources/{made[topic]}/subscribers"
                asked(standing.rest, "POST", path, {"mac": who.mac, "ipv4": who.ipv4})
        yield made
    finally:
        for address in made.values():
            # What led here is what people should hear of, not that the controller is gone too.
            with suppress(BattleError):
                asked(standing.rest, "DELETE", f"/api/v1/resources/{address}")


def _drawn(application: Application, standing: Ground, addresses: dict[Topic, str], seconds: float) -> str:
    from battlebrokers.sdn.applications.temperature.application import SENSOR, Kind, Topic
    from battlebrokers.sdn.applications.temperature.picture import Counted, Place, picture

    sent = sum(event.kind is Kind.PUBLISHED and event.host == SENSOR for event in application.events)
    fired = sum(event.kind is Kind.FIRED for event in application.events)
    wanted = {Topic.MONITORING: sent, Topic.ACTUATORS: fired}
    switches = {number: name for name, number in standing.topology.switches.items()}
    hosts = {name: Place(host.ipv4, switches[host.port.switch]) for name, host in standing.topology.hosts.items()}
    counted = {}
    for topic, address in addresses.items():
        told = _counters(standing.rest, address, wanted[topic])
        counted[topic] = Counted(address, told["mode"], told["published"], told["delivered"])
    return picture(application.events, hosts, counted, application.threshold_c, seconds)


def _counters(rest: Rest, address: str, published: int) -> Any:
    """A resource's counters; those of the switches are a moment late."""
    until = time.monotonic() + _COUNTERS_S
    while True:
        told = asked(rest, "GET", f"/api/v1/resources/{address}")
        if told["published"] >= published or time.monotonic() > until:
            return told
        time.sleep(0.1)


def _bar(console: Console) -> Progress:
    return Progress(
        TextColumn("{task.description}", style="bold", markup=False), BarColumn(bar_width=28), TimeElapsedColumn(),
        console=console, transient=True, disable=not console.is_terminal,
    )  # fmt: skip
