"""A network to stand on: the lab and the controller that are there, or ones of our own until the work is done.

Used by commands that show something on a network. What was there before is left as it was.
"""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final
from urllib.parse import urlsplit

from battlebrokers.cli.sdn.asking import Rest, TokenRefusedError, asked
from battlebrokers.errors import ContenderError, EnvironmentNotReady, InputError
from battlebrokers.scratch import Scratch
from battlebrokers.sdn.token import given_token

if TYPE_CHECKING:
    from battlebrokers.sdn.lab.laboratory import Laboratory
    from battlebrokers.sdn.lab.topology import Topology

_OPENFLOW_PORT: Final = 6653
_START_S: Final = 30.0
_END_S: Final = 15.0
_LOOK_S: Final = 0.05

Say = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Ground:
    """A network that is up and known to its controller."""

    laboratory: Laboratory
    topology: Topology
    rest: Rest


@contextmanager
def ground(topology: str, rest: Rest, say: Say) -> Iterator[Ground]:
    """The network of that topology, its controller at `rest` or one of our own."""
    from battlebrokers.sdn.lab.laboratory import Laboratory
    from battlebrokers.sdn.lab.open_vswitch import what_is_missing
    from battlebrokers.sdn.lab.sweeping import take_down_the_dead
    from battlebrokers.sdn.lab.topology import find_topology

    wanted, laboratory = find_topology(topology), Laboratory()
    missing = what_is_missing()
    if missing is not None:
        raise missing
    status = laboratory.status()
    # A lab whose daemons are gone is what a crash left: building one clears it away.
    there = status.topology if all(status.daemons.values()) else None
    if there is not None and there != wanted:
        raise InputError(f"another lab is up: {there.name}", hint="take it down first: bb sdn lab down")
    with ExitStack() as stack:
        openflow = f"tcp:{urlsplit(rest.url).hostname}:{_OPENFLOW_PORT}"
        if not _answers(rest):
            if there is not None:
                raise EnvironmentNotReady(
                    f"the lab {topology} is up, but no controller answers at {rest.url}",
                    hint="start it: bb sdn controller; or take the lab down and a controller comes with a new one",
                )
            say("starting a controller")
            url, openflow = stack.enter_context(_controller())
            # It takes its token from the same environment.
            rest = Rest(url, given_token(None))
        if there is None:
            take_down_the_dead()
            say(f"building the lab {topology}: {len(wanted.switches)} switches, {len(wanted.hosts)} hosts")
            stack.callback(laboratory.down)
            laboratory.up(wanted, openflow)
        say("waiting until the controller knows all links and hosts")
        _await_everything(laboratory, wanted, rest)
        yield Ground(laboratory, wanted, rest)


def _answers(rest: Rest) -> bool:
    try:
        return "switches" in asked(rest, "GET", "/api/v1/topology")
    except TokenRefusedError:
        raise
    except (EnvironmentNotReady, InputError, ContenderError, TypeError, ValueError):
        # Nobody there, or somebody who is no controller.
        return False


@contextmanager
def _controller() -> Iterator[tuple[str, str]]:
    """A controller on free ports; gives the URL of its REST and where switches call."""
    with Scratch("bb-sdn-") as folder:
        log = folder / "controller.log"
        words = [
            sys.executable, "-m", "battlebrokers.cli.main", "sdn", "controller",
            "--port", "0", "--openflow-port", "0", "--state", str(folder / "state.json"),
        ]  # fmt: skip
        with log.open("wb") as sink:
            # A session of its own: Ctrl-C is for us, and we end it when the network is no longer needed.
            process = subprocess.Popen(
                words, stdin=subprocess.DEVNULL, stdout=sink, stderr=sink, start_new_session=True
            )
        try:
            yield _ready(process, log)
        finally:
            process.terminate()
            try:
                process.wait(_END_S)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


def _ready(process: subprocess.Popen[bytes], log: Path) -> tuple[str, str]:
    until = time.monotonic() + _START_S
    while True:
        said = log.read_text(errors="replace")
        if "REST:" in said and said.endswith("\n"):
            words = said.split()
            return words[words.index("page:") + 1].rstrip("/"), words[words.index("switches:") + 1]
        if process.poll() is not None or time.monotonic() > until:
            raise ContenderError(f"the controller did not start: {said.strip()[-400:] or 'it says nothing'}")
        time.sleep(_LOOK_S)


def _await_everything(laboratory: Laboratory, topology: Topology, rest: Rest) -> None:
    until = time.monotonic() + _START_S
    hosts = {(host.mac, host.ipv4, host.port.switch, host.port.number) for host in topology.hosts.values()}
    laboratory.await_controller(_START_S)
    laboratory.announce(topology)
    while True:
        told = asked(rest, "GET", "/api/v1/topology")
        seen = {(one["mac"], one["ipv4"], one["switch"], one["port"]) for one in told["hosts"]}
        if len(told["links"]) >= len(topology.wires) and hosts <= seen:
            return
        if time.monotonic() > until:
            raise EnvironmentNotReady(
                f"the controller at {rest.url} does not know the whole lab: {len(told['links'])} of "
                f"{len(topology.wires)} links, {len(hosts & seen)} of {len(hosts)} hosts",
                hint="is it the one the switches call? bb sdn lab status, bb sdn status",
            )
        # A host that spoke before its switch was ready was not heard.
        laboratory.announce(topology)
        time.sleep(_LOOK_S)
