"""Starts a contender and waits until it truly answers; a broker given by URL is only looked at.

Called by `run`. Blocks; from asyncio use `asyncio.to_thread`. Whatever goes wrong, no process and no port is left.
"""

from __future__ import annotations

import re
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Protocol

import psutil

from battlebrokers.contenders.availability import Missing, availability
from battlebrokers.contenders.broker_url import BrokerUrl, is_url, parse_broker_url
from battlebrokers.contenders.configuration import Configuration, TlsServerFiles, put_together
from battlebrokers.contenders.dialogue import registration_of, scripts_of
from battlebrokers.contenders.handshake import accepts, greet, must_accept
from battlebrokers.contenders.place import Place
from battlebrokers.contenders.process import KeptProcess
from battlebrokers.contenders.running import REACH_TIMEOUT_S, RunningContender
from battlebrokers.contenders.spec import Contender, Profile
from battlebrokers.contenders.wires import wires_of, wires_of_url
from battlebrokers.errors import ContenderError, EnvironmentNotReady
from battlebrokers.record.wire import Wire

__all__ = ["Listener", "RunningContender", "TlsServerFiles", "start_contender"]

PORT_ATTEMPTS = 3
LAST_LINES = 15
POLL_S = 0.02
READ_LOG_S = 0.5

_PORT_TAKEN = re.compile(r"address already in use|address in use|eaddrinuse", re.IGNORECASE)


class Listener(Protocol):
    """Somebody who must be on the wire before the contender is, and again when the contender starts anew."""

    def before_start(self, wires: Sequence[Wire]) -> None:
        """Called when ports are chosen and nothing has been started."""

    def after_start(self) -> None:
        """Called when the process exists and nobody has talked to it."""


def start_contender(
    name_or_url: str,
    profile: Profile,
    folder: Path,
    host: str = "127.0.0.1",
    tls: TlsServerFiles | None = None,
    listener: Listener | None = None,
) -> RunningContender:
    """Start a contender in a folder, or look at one by URL; returns when it answers, else raises its last words.

    A listener is told the wires of its services before anything is started or touched.
    """
    if is_url(name_or_url):
        url = parse_broker_url(name_or_url)
        if listener is not None:
            listener.before_start(wires_of_url(url))
        return _look_at(url)
    contender = Contender.find(name_or_url)
    here = availability(contender)
    if isinstance(here, Missing):
        raise EnvironmentNotReady(f"{contender.name} cannot run here: {here.what} is missing", hint=here.hint)
    templates = put_together(contender, profile, tls)
    known = {**here.found, **(tls.values() if tls is not None else {}), "host": host}
    attempts_left = PORT_ATTEMPTS
    while True:
        attempts_left -= 1
        place = Place(folder, host, templates.ports, contender.logs)
        configuration = templates.filled({**known, **place.values()})
        try:
            process = _start(contender, configuration, place, listener)
        except _NotReadyError as failure:
            if attempts_left and _PORT_TAKEN.search("\n".join([str(failure), *place.last_lines(100)])):
                continue
            raise _failure(contender, place, str(failure)) from None
        return RunningContender(
            name=contender.name,
            version=here.version,
            profile=profile,
            endpoints=dict(configuration.endpoints),
            config_sha256=configuration.sha256,
            config_text=configuration.text,
            capabilities=contender.able(here.version),
            service_names={name: service.processes for name, service in contender.services.items()},
            described=contender.services,
            pairing=contender.pairing,
            scripts=scripts_of(contender),
            registration=registration_of(contender),
            known={name: value for name, value in place.values().items() if name.startswith("port.")} | {"host": host},
            process=process,
            place=place,
        )


class _NotReadyError(Exception):
    """Why it is not up."""


def _look_at(url: BrokerUrl) -> RunningContender:
    must_accept(url.host, url.port, url.url, REACH_TIMEOUT_S)
    return RunningContender(
        name=url.place,
        version="unknown",
        profile="external",
        endpoints={url.transport: url.url},
        credentials=(url.username, url.password),
    )


def _start(contender: Contender, configuration: Configuration, place: Place, listener: Listener | None) -> KeptProcess:
    """A process that answers; when it does not, or we are interrupted, all of it is gone again."""
    try:
        if listener is not None:
            listener.before_start(wires_of(contender, place.ports.numbers, place.host))
        process = place.start(configuration, contender.stop)
        try:
            if listener is not None:
                listener.after_start()
            urls = [parse_broker_url(url) for url in configuration.endpoints.values()]
            _wait_until_ready(process, contender, urls, place)
        except BaseException:
            process.kill()
            raise
    except BaseException:
        place.close()
        raise
    return process


def _wait_until_ready(process: KeptProcess, contender: Contender, urls: Sequence[BrokerUrl], place: Place) -> None:
    """Wait until our own process listens on every endpoint and answers an MQTT CONNECT."""
    port = place.ports.numbers[contender.ready.port]
    now = time.monotonic()
    until = now + contender.ready.within_s
    read_log_at = now + READ_LOG_S
    why = "it does not listen on all its ports"
    while now < until:
        status = process.poll()
        if status is not None:
            raise _NotReadyError(f"it ended with {_told(status)}")
        if all(accepts(url.host, url.port, 1.0) for url in urls):
            if not _owns(process, port):
                raise _NotReadyError(f"port {port} is another process's (address already in use)")
            why = greet(urls[0].host, port, 5.0)
            if not why and process.poll() is None:
                return
        if now >= read_log_at:
            # some brokers log that a port is taken and stay
            if _PORT_TAKEN.search("\n".join(place.last_lines(LAST_LINES))):
                raise _NotReadyError("a port it needs is taken")
            read_log_at = now + READ_LOG_S
        time.sleep(POLL_S)
        now = time.monotonic()
    raise _NotReadyError(f"not ready after {contender.ready.within_s:g} s: {why}")


def _owns(process: KeptProcess, port: int) -> bool:
    """Whether one of its processes listens on the port; true when the system does not let us see."""
    for pid in process.pids():
        try:
            if _lives_elsewhere(pid):
                return True
            connections = psutil.Process(pid).net_connections(kind="tcp")
        except psutil.AccessDenied:
            return True
        except psutil.NoSuchProcess:
            continue
        if any(each.status == psutil.CONN_LISTEN and each.laddr.port == port for each in connections):
            return True
    return False


def _lives_elsewhere(pid: int) -> bool:
    """Whether it has a network of its own, where nobody else can have taken its port and where we cannot look."""
    try:
        return Path(f"/proc/{pid}/ns/net").readlink() != Path("/proc/self/ns/net").readlink()
    except OSError:
        return False


def _told(status: int) -> str:
    return f"status {status}" if status >= 0 else f"signal {-status}"


def _failure(contender: Contender, place: Place, why: str) -> ContenderError:
    lines = place.last_lines(LAST_LINES)
    told = "\n".join(f"    {line}" for line in lines) or "    (it printed nothing)"
    hint = next((each.hint for each in contender.hints if any(re.search(each.match, line) for line in lines)), "")
    if not hint and _PORT_TAKEN.search("\n".join([why, *lines])):
        hint = "Something else listens on its ports; end that, or try again."
    return ContenderError(
        f"{contender.name} did not start: {why}\n  its last lines:\n{told}",
        hint=hint or f"Its configuration and logs are in {place.folder}.",
    )
