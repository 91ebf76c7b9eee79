"""`bb sdn lab`: a network of namespaces and Open vSwitch on this machine."""

from __future__ import annotations

import json
import os
import re
import shutil
from typing import Annotated, Any

import typer

from battlebrokers import signals
from battlebrokers.cli.options import AsJson
from battlebrokers.cli.sdn.app import sdn_app
from battlebrokers.errors import ExitCode, UsageError
from battlebrokers.output import echo, echo_json

lab_app = typer.Typer(help="A network of namespaces and Open vSwitch on this machine.", no_args_is_help=True)
sdn_app.add_typer(lab_app, name="lab")

_CONTROLLER_S = 5.0
_CALLS = re.compile(r"(tcp|ssl):[^\s:]+:\d{1,5}|(tcp|ssl):\[[0-9a-fA-F:.]+\]:\d{1,5}|unix:\S+")


@lab_app.command("up")
def up(
    topology: Annotated[
        str, typer.Argument(help="paper, sensors, tree, ring, chain:4x2, …, or a YAML file.")
    ] = "paper",
    controller: Annotated[str, typer.Option("--controller", help="Where the switches call.")] = "tcp:127.0.0.1:6653",
    cables: Annotated[
        str, typer.Option("--cables", help="Between switches: veth (can be captured and cut) or patch (faster).")
    ] = "",
) -> int:
    """Build a network; one that is there already is taken down first."""
    from battlebrokers.sdn.lab.laboratory import Laboratory
    from battlebrokers.sdn.lab.sweeping import take_down_the_dead
    from battlebrokers.sdn.lab.topology import find_topology

    if not _CALLS.fullmatch(controller):
        raise UsageError(f"'{controller}' is no address switches can call", hint="for example tcp:127.0.0.1:6653")
    wanted = find_topology(topology, cables)
    laboratory = Laboratory()
    if os.geteuid() == 0:
        take_down_the_dead()
    with signals.keeping("no network is left"):
        laboratory.up(wanted, controller)
        try:
            answered = laboratory.await_controller(_CONTROLLER_S)
            laboratory.announce(wanted)
        except KeyboardInterrupt:
            # As while it is built: who interrupts has no lab.
            laboratory.down()
            raise
    echo(f"{wanted.title}: {len(wanted.switches)} switches, {len(wanted.hosts)} hosts, {len(wanted.wires)} links")
    for host in wanted.hosts.values():
        echo(f"  {host.name:10} {host.ipv4:12} {host.mac}  at {host.port}")
    if not answered:
        echo(f"no controller answers at {controller} yet: start one with `bb sdn controller`", err=True)
    return ExitCode.PASS


@lab_app.command("down")
def down() -> int:
    """Take the network away, also what a crash left of one, or of `bb sdn serve`."""
    from battlebrokers.sdn.lab.laboratory import Laboratory
    from battlebrokers.sdn.lab.sweeping import take_down_the_dead

    Laboratory().down()
    if os.geteuid() == 0:
        take_down_the_dead()
    return ExitCode.PASS


@lab_app.command("status")
def lab_status(as_json: AsJson = False) -> int:
    """Show what is there."""
    from battlebrokers.sdn.lab.laboratory import Laboratory

    found = Laboratory().status()
    facts: dict[str, Any] = {
        "topology": found.topology.name if found.topology else None,
        "daemons": found.daemons,
        "hosts": found.hosts_up,
        "connected": found.connected,
    }
    if as_json:
        echo_json(json.dumps(facts, indent=2))
    elif found.topology is None:
        echo("no lab is up: bb sdn lab up paper")
    else:
        echo(f"{found.topology.title}: {len(found.hosts_up)} of {len(found.topology.hosts)} hosts")
        for daemon, pid in found.daemons.items():
            if pid is None:
                echo(f"  {daemon} does not run, so nothing is switched: build the lab again with `bb sdn lab up`")
        for switch, connected in found.connected.items() if all(found.daemons.values()) else ():
            echo(f"  {switch}  {'controller answers' if connected else 'no controller: bb sdn controller'}")
    return ExitCode.PASS


@lab_app.command("exec", context_settings={"ignore_unknown_options": True})
def lab_exec(
    host: Annotated[str, typer.Argument(help="A host of the lab.")],
    words: Annotated[list[str], typer.Argument(help="The command and its arguments.")],
) -> int:
    """Run a command as a host: `bb sdn lab exec h1 -- ip address`."""
    from battlebrokers.sdn.lab.laboratory import Laboratory

    if shutil.which(words[0]) is None:
        raise UsageError(f"there is no command '{words[0]}'")
    return Laboratory().exec(host, words)


@lab_app.command("cut")
def lab_cut(
    cable: Annotated[int, typer.Argument(help="Which cable between switches, counted from 1.")],
    restore: Annotated[bool, typer.Option("--restore", help="Put it back.")] = False,
) -> int:
    """Take a cable between switches out, to see the paths change."""
    from battlebrokers.sdn.lab.laboratory import Laboratory

    Laboratory().cut(cable, restore=restore)
    return ExitCode.PASS
