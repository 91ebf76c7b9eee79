"""Starts a contender and waits until it truly answers; a broker given by URL is only looked at.

Called by `run`. Blocks; from asyncio use `asyncio.to_thread`. Whatever goes wrong, no process and no port is left.
"""

from __future__ import annotations

import contextlib
import re
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Protocol

from battlebrokers.contenders import containers
from battlebrokers.contenders.account import UNPRIVILEGED, Account, account_of, gives_up_root
from battlebrokers.contenders.availability import ENGINE, Available, Missing, availability
from battlebrokers.contenders.broker_url import BrokerUrl, is_url, parse_broker_url
from battlebrokers.contenders.companions import companion_contender, companion_ports
from battlebrokers.contenders.configuration import Configuration, Templates, TlsServerFiles, put_together
from battlebrokers.contenders.contained import Contained
from battlebrokers.contenders.container_wires import container_wires
from battlebrokers.contenders.dialogue import registration_of, scripts_of
from battlebrokers.contenders.handshake import must_accept
from battlebrokers.contenders.listening import find_listening
from battlebrokers.contenders.neighbours import Neighbours, is_here
from battlebrokers.contenders.place import Place
from battlebrokers.contenders.process import KeptProcess
from battlebrokers.contenders.reach import paths_needed
from battlebrokers.contenders.reader import split_host
from battlebrokers.contenders.readiness import all_accept, owns, question_for
from battlebrokers.contenders.running import REACH_TIMEOUT_S, RunningContender
from battlebrokers.contenders.spec import Contender, Profile
from battlebrokers.contenders.template import render
from battlebrokers.contenders.wires import ports_of, wires_of, wires_of_url
from battlebrokers.errors import ContenderError, EnvironmentNotReady, Interrupted, UsageError
from battlebrokers.record.wire import Wire

__all__ = ["Listener", "RunningContender", "TlsServerFiles", "start_contender"]

PORT_ATTEMPTS = 3
LAST_LINES = 15
GIVEN_UP_S = 5.0
"""For a broker nobody waits for any longer: it may have built what only it takes down."""
SEARCHED_LINES = 100
"""Where the reason is looked for: a stack trace may follow it."""
POLL_S = 0.02
READ_LOG_S = 0.5

_NOT_ALLOWED = re.compile(r"permission denied|eacces|not permitted", re.IGNORECASE)
_PORT_TAKEN = re.compile(r"already in use|address in use|eaddrinuse", re.IGNORECASE)


class Listener(Protocol):
    """Somebody who must be on the wire before the contender is, and before each of those that run beside it."""

    def before_start(self, wires: Sequence[Wire]) -> None:
        """Called when the ports of one of them are chosen and it has not been started."""

    def after_start(self) -> None:
        """Called when its process exists and nobody has talked to it."""

    def inside(self, wire: Wire) -> None:
        """Called when one of its services is found in a container that has just been started."""

    def called_off(self) -> None:
        """Called when the one announced last did not start; it may come again, on other ports."""


def start_contender(
    name_or_url: str,
    profile: Profile,
    folder: Path,
    host: str = "127.0.0.1",
    tls: TlsServerFiles | None = None,
    listener: Listener | None = None,
    given_up: Callable[[], bool] = lambda: False,
) -> RunningContender:
    """Start a contender in a folder, or look at one by URL; returns when it answers, else raises its last words.

    A listener is told the wires of its services before anything is started or touched. Once somebody has given up,
    what was started is gone again, and `Interrupted` raised.
    """
    if is_url(name_or_url):
        url = parse_broker_url(name_or_url)
        if listener is not None and url.transport == "memory":
            raise UsageError(f"{url.shown} has no wire to capture", hint="Leave out --capture.")
        if listener is not None:
            listener.before_start(wires_of_url(url))
        return _look_at(url)
    name, where = split_host(name_or_url)
    contender = Contender.find(name)
    if contender.run.external or (where and all(contender.ports.values())):
        return _visit(contender, where or contender.run.host or host, listener)
    if where:
        raise UsageError(
            f"{contender.name} is started here, and not on {where}: its file does not say at which ports it is there",
            hint="Give a file of your own with `run: {external: true}` and its ports, or its URL if it speaks plain "
            "MQTT, AMQP or CoAP.",
        )
    return start_described(contender, profile, folder, host, tls, listener, given_up)


def start_described(
    contender: Contender,
    profile: Profile,
    folder: Path,
    host: str = "127.0.0.1",
    tls: TlsServerFiles | None = None,
    listener: Listener | None = None,
    given_up: Callable[[], bool] = lambda: False,
) -> RunningContender:
    """Start a contender that was read already, after those that run beside it; the listener hears of each in turn."""
    here = availability(contender)
    if isinstance(here, Missing):
        raise EnvironmentNotReady(f"{contender.name} cannot run here: {here.what} is missing", hint=here.hint)
    templates = put_together(contender, profile, tls)
    with contextlib.ExitStack() as undo:
        beside: list[RunningContender] = []
        ports_beside: dict[str, str] = {}
        for name, companion in contender.beside.items():
            there = start_described(
                companion_contender(name, companion), profile, folder / "beside" / name, host, None, listener, given_up
            )
            undo.enter_context(there)
            beside.append(there)
            ports_beside |= companion_ports(name, companion, there)
        found = {name: path for name, path in here.found.items() if name != ENGINE}
        known = {
            **found,
            **ports_beside,
            "host": contender.run.host or host,
        }
        tls_files = tls.values() if tls is not None else {}
        start = Start(here, templates, known, folder, host, given_up, tls_files, account_of(contender))
        running = _start_main(contender, profile, start, beside, listener)
        undo.pop_all()
        running.known = {**running.known, **ports_beside}
        return running


@dataclass(frozen=True, slots=True)
class Start:
    """All that is known before ports are chosen."""

    here: Available
    templates: Templates
    known: Mapping[str, str]
    folder: Path
    host: str
    given_up: Callable[[], bool]
    tls_files: Mapping[str, str]
    account: Account | None


def _start_main(
    contender: Contender, profile: Profile, start: Start, beside: list[RunningContender], listener: Listener | None
) -> RunningContender:
    attempts_left = PORT_ATTEMPTS
    host = start.known["host"]
    # Inside a container ports are as they are; here they are free ones. A compose file has published them already.
    fixed = {} if contender.run.container else {name: port for name, port in contender.ports.items() if port}
    while True:
        attempts_left -= 1
        place = Place(
            start.folder, host, start.templates.ports, contender.logs, fixed,
            held_there=not contender.run.namespace, account=start.account,
        )  # fmt: skip
        try:
            values = {**start.known, **place.lend(start.tls_files), **place.values()}
            configuration = _as_run(contender, start, start.templates.filled(values), place)
            contained = _contained(contender, start, place)
            process = _start(contender, configuration, place, contained, listener, start)
        except _NotReadyError as failure:
            if attempts_left and _PORT_TAKEN.search("\n".join([str(failure), *place.last_lines(SEARCHED_LINES)])):
                continue
            raise _failure(contender, place, str(failure)) from None
        except BaseException:
            place.close()
            raise
        if process.as_root:
            configuration = replace(configuration, account="")
        credentials = contender.credentials
        return RunningContender(
            name=contender.name,
            version=start.here.version,
            profile=profile,
            endpoints=dict(configuration.endpoints),
            config_sha256=configuration.sha256,
            config_text=configuration.text,
            capabilities=contender.able(start.here.version),
            credentials=(credentials.username, credentials.password) if credentials is not None else (None, None),
            service_names={name: service.processes for name, service in contender.services.items()},
            described=contender.services,
            pairing=contender.pairing,
            scripts=scripts_of(contender),
            registration=registration_of(contender),
            model=contender.model,
            known=_addresses(host, place.ports.numbers),
            beside=beside,
            contained=contained,
            process=process,
            warnings=_warnings(contender, start.account, process.as_root or place.as_root),
            place=place,
        )


def _warnings(contender: Contender, account: Account | None, as_root: str) -> list[str]:
    """What is not as it should be with one that runs; `as_root` tells why it did not become the account."""
    if account is None and gives_up_root(contender):
        as_root = "there is no such account"
    return [f"{contender.name} runs as root: it cannot run as {UNPRIVILEGED} here ({as_root})"] if as_root else []


def _addresses(host: str, ports: Mapping[str, int]) -> dict[str, str]:
    return {"host": host, **{f"port.{name}": str(number) for name, number in ports.items()}}


def _as_run(contender: Contender, start: Start, configuration: Configuration, place: Place) -> Configuration:
    """The configuration with the command that really is started: through a container engine, or in a namespace."""
    run = contender.run
    contained = _contained(contender, start, place)
    if run.container and contained is not None:
        numbers = place.ports.numbers
        command = containers.container_command(
            contained.engine,
            contained.name,
            run.container,
            configuration.command,
            host=start.known["host"],
            published={numbers[port]: inside for port, inside in contender.ports.items()},
            env=configuration.env,
            mounts={
                inside: place.own(render(path, {**start.known, **place.values()}))
                for inside, path in run.mounts.items()
            },
        )
        return replace(configuration, command=tuple(command), env=containers.secret_environment(configuration.env))
    if contained is not None:
        command = containers.compose_command(contained.engine, contained.name, contained.compose_file)
        return replace(configuration, command=tuple(command))
    account = place.account.name if place.account is not None else ""
    return replace(configuration, namespace=run.namespace, account=account)


def _contained(contender: Contender, start: Start, place: Place) -> Contained | None:
    """The container or compose project it runs in, by the name we give it; None when it runs in none."""
    run = contender.run
    if not run.container and not run.compose:
        return None
    name = f"bb-{contender.name}-{place.ports.numbers[next(iter(contender.ports))]}"
    file = place.own(render(run.compose, {**start.known, **place.values()})) if run.compose else ""
    return Contained(start.here.found.get(ENGINE, ""), name, file)


class _NotReadyError(Exception):
    """Why it is not up."""


def _look_at(url: BrokerUrl) -> RunningContender:
    if url.connects:
        must_accept(url.host, url.port, url.shown, REACH_TIMEOUT_S)
    there = find_listening(url)
    return RunningContender(
        name=url.place if url.transport != "memory" else url.protocol,
        version="unknown",
        profile="external",
        endpoints={url.key: url.url},
        credentials=(url.username, url.password),
        neighbours=there.neighbours(url),
        unseen=there.reason,
    )


def _visit(contender: Contender, host: str, listener: Listener | None) -> RunningContender:
    """A contender of which we know everything, but which somebody else runs."""
    if listener is not None:
        listener.before_start(wires_of(contender, contender.ports, host))
    values = _addresses(host, contender.ports)
    endpoints: dict[str, str] = {key: render(url, values) for key, url in contender.endpoints.items()}
    for key, text in endpoints.items():
        url = parse_broker_url(text, key=key)
        if url.connects:
            must_accept(url.host, url.port, f"{contender.name} at {url.shown}", REACH_TIMEOUT_S)
    why = question_for(contender, endpoints, contender.ports).ask()
    if why:
        raise ContenderError(f"{contender.name} at {host} is not ready: {why}", hint="Is it the right host?")
    credentials = contender.credentials
    return RunningContender(
        name=contender.name,
        version="unknown",
        profile="external",
        endpoints=endpoints,
        capabilities=contender.able("unknown"),
        credentials=(credentials.username, credentials.password) if credentials is not None else (None, None),
        described=contender.services,
        pairing=contender.pairing,
        scripts=scripts_of(contender),
        registration=registration_of(contender),
        model=contender.model,
        known=values,
        neighbours=Neighbours(contender.services, ports_of(contender, contender.ports) if is_here(host) else {}),
    )


def _start(
    contender: Contender,
    configuration: Configuration,
    place: Place,
    contained: Contained | None,
    listener: Listener | None,
    start: Start,
) -> KeptProcess:
    """A process that answers; when it does not, or we are interrupted, all of it is gone again."""
    try:
        if listener is not None:
            listener.before_start(wires_of(contender, place.ports.numbers, place.host))
        process = place.start(configuration, contender.stop, paths_needed(contender, start.here.found))
        try:
            if listener is not None:
                listener.after_start()
                if contained is not None:
                    for wire in container_wires(
                        contender, contained, lambda: process.poll() is None and not start.given_up()
                    ):
                        listener.inside(wire)
            _wait_until_ready(process, contender, configuration.endpoints, place, start.given_up)
        except Interrupted:
            process.give_up(GIVEN_UP_S)
            raise
        except BaseException:
            process.kill()
            raise
    except BaseException:
        place.close()
        if listener is not None:
            listener.called_off()
        raise
    return process


def _wait_until_ready(
    process: KeptProcess,
    contender: Contender,
    endpoints: Mapping[str, str],
    place: Place,
    given_up: Callable[[], bool],
) -> None:
    """Wait until our own process listens on every endpoint and gives the right answer."""
    question = question_for(contender, endpoints, place.ports.numbers)
    # An engine of containers listens for them; in that case nobody else can have the port either.
    elsewhere = bool(contender.run.container or contender.run.compose)
    now = time.monotonic()
    until = now + contender.ready.within_s
    read_log_at = now + READ_LOG_S
    why = "it does not listen on all its ports"
    while now < until:
        status = process.poll()
        if status is not None:
            raise _NotReadyError(f"it ended with {_told(status)}")
        if given_up():
            raise Interrupted("interrupted while the broker was starting; nothing was measured")
        if all_accept(endpoints):
            port = question.url.port
            if not elsewhere and not question.datagrams and not owns(process, port):
                raise _NotReadyError(f"port {port} is another process's (address already in use)")
            why = question.ask()
            if not why and not elsewhere and "coap" in endpoints:
                # no connection tells whether somebody is there, and some brokers go on without this port
                port = parse_broker_url(endpoints["coap"], key="coap").port
                why = "" if owns(process, port, datagrams=True) else f"it does not listen for datagrams on port {port}"
            if not why and process.poll() is None:
                return
        if now >= read_log_at:
            # some brokers log that a port is taken and stay
            if _PORT_TAKEN.search("\n".join(place.last_lines(SEARCHED_LINES))):
                raise _NotReadyError("a port it needs is taken")
            read_log_at = now + READ_LOG_S
        time.sleep(POLL_S)
        now = time.monotonic()
    raise _NotReadyError(f"not ready after {contender.ready.within_s:g} s: {why}")


def _told(status: int) -> str:
    return f"status {status}" if status >= 0 else f"signal {-status}"


def _failure(contender: Contender, place: Place, why: str) -> ContenderError:
    lines = place.last_lines(SEARCHED_LINES)
    told = "\n".join(f"    {line}" for line in lines[-LAST_LINES:]) or "    (it printed nothing)"
    hint = next((each.hint for each in contender.hints if any(re.search(each.match, line) for line in lines)), "")
    if not hint and _PORT_TAKEN.search("\n".join([why, *lines])):
        hint = "Something else listens on its ports; end that, or try again."
    if not hint and place.account is not None and any(_NOT_ALLOWED.search(line) for line in lines):
        hint = f"It ran as {place.account.name}. What must be root says so in its file: `run: {{as_root: true}}`."
    return ContenderError(
        f"{contender.name} did not start: {why}\n  its last lines:\n{told}",
        hint=hint or "These are the last lines of its output and logs; its folder was removed.",
    )
