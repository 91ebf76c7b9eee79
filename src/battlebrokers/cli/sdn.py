"""`bb sdn`: the broker inside the network. Its controller, its REST from the shell, and a lab to try it in."""

from __future__ import annotations

import asyncio
import json
import shutil
import sys
import urllib.error
import urllib.request
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.table import Table

from battlebrokers.cli.options import AsJson
from battlebrokers.errors import ContenderError, EnvironmentNotReady, ExitCode, InputError, UsageError

sdn_app = typer.Typer(
    help="A broker that is the network itself: topics are addresses, switches make the copies.", no_args_is_help=True
)
lab_app = typer.Typer(help="A network of namespaces and Open vSwitch on this machine.", no_args_is_help=True)
sdn_app.add_typer(lab_app, name="lab")

Url = Annotated[str, typer.Option("--url", envvar="BB_SDN", help="Where the controller's REST is.")]
_CONTROLLER_S = 5.0
_URL = "http://127.0.0.1:8080"
_STATE = Path.home() / ".local" / "state" / "battlebrokers" / "sdn.json"


@sdn_app.command("controller")
def controller(
    host: Annotated[str, typer.Option("--host", help="The address to listen on.")] = "127.0.0.1",
    port: Annotated[int, typer.Option("--port", min=0, max=65535, help="For REST and the page; 0 = any.")] = 8080,
    openflow_port: Annotated[int, typer.Option("--openflow-port", min=0, max=65535, help="For switches.")] = 6653,
    state: Annotated[
        Path | None,
        typer.Option("--state", help="Where subscriptions are kept; else ~/.local/state/battlebrokers/sdn.json."),
    ] = None,
) -> int:
    """Run the controller: OpenFlow 1.3 for switches, REST and a live page for people. Ends with Ctrl-C.

    Subscriptions and the network survive a restart; in group and tree mode deliveries go on meanwhile.
    """
    from battlebrokers.sdn.service import Places, serve  # slow to import: a web server and a codec

    def tell(openflow: int, http: int) -> None:
        typer.echo(f"switches: tcp:{host}:{openflow}   page: http://{host}:{http}/   REST: http://{host}:{http}/docs")
        sys.stdout.flush()

    asyncio.run(serve(Places(host, openflow_port, port, state or _STATE), tell))
    return ExitCode.PASS


@sdn_app.command("resources")
def resources(url: Url = _URL, as_json: AsJson = False) -> int:
    """List resources with their subscribers and counters."""
    found = _asked(url, "GET", "/api/v1/resources")
    if as_json:
        typer.echo(json.dumps(found, indent=2))
        return ExitCode.PASS
    table = Table(box=None, header_style="bold")
    for name in ("resource", "id", "mode", "copies from", "published", "delivered", "refused", "subscribers"):
        table.add_column(name)
    for one in found:
        who = ", ".join(f"{sub['ipv4']} ({sub['seen_at'] or 'not seen yet'})" for sub in one["subscribers"])
        numbers = (str(one[name]) for name in ("published", "delivered", "refused"))
        table.add_row(one["address"], str(one["id"]), one["mode"], one["source"], *numbers, who or "none")
    Console().print(table if found else "no resources yet: bb sdn create")
    return ExitCode.PASS


@sdn_app.command("create")
def create(
    mode: Annotated[str, typer.Option("--mode", help="reactive, group or tree.")] = "tree",
    source: Annotated[str, typer.Option("--from", help="Whom copies come from: publisher or resource.")] = "publisher",
    url: Url = _URL,
) -> int:
    """Create a resource; prints its address."""
    typer.echo(_asked(url, "POST", "/api/v1/resources", {"mode": mode, "source": source})["address"])
    return ExitCode.PASS


@sdn_app.command("delete")
def delete(resource: Annotated[str, typer.Argument(help="Its address, such as 1.1.1.1.")], url: Url = _URL) -> int:
    """Delete a resource with its subscriptions."""
    _asked(url, "DELETE", f"/api/v1/resources/{resource}")
    return ExitCode.PASS


@sdn_app.command("subscribe")
def subscribe(
    resource: Annotated[str, typer.Argument(help="Its address, such as 1.1.1.1.")],
    who: Annotated[str, typer.Argument(help="A host of the lab, or MAC address,IPv4 address.")],
    url: Url = _URL,
) -> int:
    """Subscribe a host; it receives from the moment this ends."""
    mac, ipv4 = _addresses(who)
    _asked(url, "POST", f"/api/v1/resources/{resource}/subscribers", {"mac": mac, "ipv4": ipv4})
    return ExitCode.PASS


@sdn_app.command("unsubscribe")
def unsubscribe(
    resource: Annotated[str, typer.Argument(help="Its address, such as 1.1.1.1.")],
    who: Annotated[str, typer.Argument(help="A host of the lab, or its MAC address.")],
    url: Url = _URL,
) -> int:
    """Unsubscribe a host; it receives nothing from the moment this ends."""
    mac = who if ":" in who else _addresses(who)[0]
    _asked(url, "DELETE", f"/api/v1/resources/{resource}/subscribers/{mac}")
    return ExitCode.PASS


@sdn_app.command("publish")
def publish(
    resource: Annotated[str, typer.Argument(help="Its address, such as 1.1.1.1.")],
    text: Annotated[str, typer.Argument(help="The message.")],
    host: Annotated[str, typer.Option("--as", help="The host of the lab that sends it.")] = "",
    port: Annotated[int, typer.Option("--port", min=1, max=65535, help="The UDP port.")] = 5005,
    url: Url = _URL,
) -> int:
    """Publish a message, as a host of the lab or from the controller."""
    payload = text.encode()
    if len(payload) > 1472:
        raise InputError(
            f"{len(payload)} bytes do not fit into one packet of 1500",
            hint="at most 1472: the network refuses fragments",
        )
    if not host:
        typer.echo(
            _asked(url, "POST", f"/api/v1/resources/{resource}/messages", {"text": text, "port": port})["message"]
        )
        return ExitCode.PASS
    from battlebrokers.sdn.lab.laboratory import Laboratory

    with Laboratory().udp_socket(host) as sender:
        sender.sendto(payload, (resource, port))
    return ExitCode.PASS


@sdn_app.command("listen")
def listen(
    host: Annotated[str, typer.Argument(help="The host of the lab that listens.")],
    port: Annotated[int, typer.Option("--port", min=1, max=65535, help="The UDP port.")] = 5005,
    count: Annotated[
        int, typer.Option("--count", "-n", min=0, help="End after so many messages; 0 = with Ctrl-C.")
    ] = 0,
) -> int:
    """Print what a host of the lab receives."""
    from battlebrokers.sdn.lab.laboratory import Laboratory

    with Laboratory().udp_socket(host, port) as receiver:
        number = 0
        while not count or number < count:
            payload, (address, sender_port) = receiver.recvfrom(65536)
            typer.echo(f"{address}:{sender_port}  {payload.decode('utf-8', 'backslashreplace')}")
            sys.stdout.flush()
            number += 1
    return ExitCode.PASS


@sdn_app.command("status")
def status(url: Url = _URL, as_json: AsJson = False) -> int:
    """Show switches, hosts and what was dropped, as the controller sees them."""
    topology, statistics = _asked(url, "GET", "/api/v1/topology"), _asked(url, "GET", "/api/v1/statistics")
    if as_json:
        typer.echo(json.dumps({"topology": topology, "statistics": statistics}, indent=2))
        return ExitCode.PASS
    table = Table(box=None, header_style="bold")
    for name in ("switch", "connected", "ports", "rules", "groups", "packet-ins", "packet-outs", "errors"):
        table.add_column(name)
    for one in topology["switches"]:
        words = ("rules", "groups", "packet_ins", "packet_outs", "errors")
        table.add_row(
            f"s{one['number']}",
            "yes" if one["connected"] else "no",
            str(len(one["ports"])),
            *(str(one[w]) for w in words),
        )
    console = Console()
    console.print(table if topology["switches"] else "no switch has called yet: bb sdn lab up paper")
    where = ", ".join(f"{host['ipv4']} at s{host['switch']}:{host['port']}" for host in topology["hosts"])
    console.print(f"links: {len(topology['links'])}   hosts: {where or 'none seen yet'}")
    drops = ", ".join(f"{count} {kind}" for kind, count in statistics["drops"].items() if count)
    console.print(f"dropped: {drops or 'nothing'}")
    return ExitCode.PASS


@lab_app.command("up")
def up(
    topology: Annotated[
        str, typer.Argument(help="paper, sensors, tree, ring, chain:4x2, …, or a YAML file.")
    ] = "paper",
    controller: Annotated[str, typer.Option("--controller", help="Where the switches call.")] = "tcp:127.0.0.1:6653",
) -> int:
    """Build a network; one that is there already is taken down first."""
    from battlebrokers.sdn.lab.laboratory import Laboratory
    from battlebrokers.sdn.lab.topology import find_topology

    wanted = find_topology(topology)
    laboratory = Laboratory()
    laboratory.up(wanted, controller)
    answered = laboratory.await_controller(_CONTROLLER_S)
    laboratory.announce(wanted)
    typer.echo(f"{wanted.title}: {len(wanted.switches)} switches, {len(wanted.hosts)} hosts, {len(wanted.wires)} links")
    for host in wanted.hosts.values():
        typer.echo(f"  {host.name:10} {host.ipv4:12} {host.mac}  at {host.port}")
    if not answered:
        typer.echo(f"no controller answers at {controller} yet: start one with `bb sdn controller`", err=True)
    return ExitCode.PASS


@lab_app.command("down")
def down() -> int:
    """Take the network away, also what a crash left of one."""
    from battlebrokers.sdn.lab.laboratory import Laboratory

    Laboratory().down()
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
        typer.echo(json.dumps(facts, indent=2))
    elif found.topology is None:
        typer.echo("no lab is up: bb sdn lab up paper")
    else:
        typer.echo(f"{found.topology.title}: {len(found.hosts_up)} of {len(found.topology.hosts)} hosts")
        for switch, connected in found.connected.items():
            typer.echo(f"  {switch}  {'controller answers' if connected else 'no controller: bb sdn controller'}")
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


def _addresses(who: str) -> tuple[str, str]:
    if "," in who:
        mac, _, ipv4 = who.partition(",")
        return mac, ipv4
    from battlebrokers.sdn.lab.laboratory import Laboratory

    host = Laboratory().host(who)
    return host.mac, host.ipv4


def _asked(url: str, method: str, path: str, body: dict[str, Any] | None = None) -> Any:
    data = json.dumps(body).encode() if body is not None else None
    if not url.startswith(("http://", "https://")):
        raise UsageError(f"'{url}' is no URL of a controller", hint="for example http://127.0.0.1:8080")
    request = urllib.request.Request(  # noqa: S310 (http or https, see above)
        url.rstrip("/") + path, data, {"Content-Type": "application/json"}, method=method
    )
    try:
        with urllib.request.urlopen(request, timeout=30) as answer:  # noqa: S310
            told = answer.read()
    except urllib.error.HTTPError as fault:
        raise _refusal(fault) from fault
    except OSError as fault:
        reason = getattr(fault, "reason", fault)
        raise EnvironmentNotReady(f"no controller at {url}: {reason}", hint="start one: bb sdn controller") from fault
    return json.loads(told) if told else None


def _refusal(fault: urllib.error.HTTPError) -> Exception:
    try:
        told = json.loads(fault.read())
    except ValueError:
        return ContenderError(f"the controller answered {fault.code}")
    if "message" in told:
        return InputError(str(told["message"]), hint=str(told.get("hint", "")))
    mistakes = [f"{'.'.join(map(str, one['loc'][1:]))}: {one['msg']}" for one in told.get("detail", [])]
    return InputError("; ".join(mistakes) or f"the controller answered {fault.code}")
