"""On which wire each service of a contender will be: from its file and its chosen ports, or from a broker's URL.

Called by `lifecycle` before anything is started. Sends nothing but a question for the name of a host.
"""

from __future__ import annotations

from collections.abc import Mapping

from battlebrokers.contenders.broker_url import BrokerUrl
from battlebrokers.contenders.spec import Contender, Service
from battlebrokers.record.route import resolved, way_towards
from battlebrokers.record.wire import LOOPBACK, Wire

URL_SERVICE = "broker"
"""What the only service of a broker given by URL is called."""


def wires_of(contender: Contender, ports: Mapping[str, int], host: str) -> list[Wire]:
    """The wire of every service that listens somewhere or lives somewhere of its own."""
    hosts = resolved(host) or (host,)
    listening = ports_of(contender, ports)
    wires = []
    for name, service in contender.services.items():
        listens_on = listening[name]
        elsewhere = bool(service.namespace or service.container)
        if not (listens_on or service.interface or elsewhere):
            continue
        at_home = not elsewhere and service.interface in ("", LOOPBACK)
        wires.append(
            Wire(
                service=name,
                ports=listens_on,
                hosts=hosts if at_home else (),
                interface=service.interface or (way_towards(hosts) if at_home else ""),
                namespace=service.namespace,
                container=service.container,
                wanted=service.filter,
            )
        )
    return wires


def ports_of(contender: Contender, ports: Mapping[str, int]) -> dict[str, tuple[int, ...]]:
    """Service → the ports it listens on."""
    named = {port for service in contender.services.values() for port in service.ports or ()}
    rest = [number for port, number in ports.items() if port not in named]
    return {name: _ports(service, ports, rest) for name, service in contender.services.items()}


def wires_of_url(url: BrokerUrl) -> list[Wire]:
    """The wire that leads to a broker somewhere else; none if its name cannot be resolved."""
    hosts = resolved(url.host)
    return [Wire(URL_SERVICE, (url.port,), hosts, way_towards(hosts), narrow=True)] if hosts else []


def _ports(service: Service, ports: Mapping[str, int], rest: list[int]) -> tuple[int, ...]:
    if service.ports is None:
        return tuple(rest) if "*" in service.processes else ()
    numbers = [ports.get(port, 0) if isinstance(port, str) else port for port in service.ports]
    return tuple(number for number in numbers if number)  # a port of a TLS set-up that was not asked for is not there
