"""Servers that speak wrongly, instead of a broker: every protocol, from silence to floods."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from functools import partial
from typing import Final

from chaos.fault import Fault, Must, Seen
from chaos.garbage import COAP_ANSWERS, TCP_BEHAVIOURS, full_backlog, tcp_server, udp_server
from chaos.place import Place

_CODES: Final = frozenset({0, 4, 5})
"""With the analysis left out a run that could be measured ends with 0: its verdict counts what failed."""
_MUST: Final = Must(_CODES, memory_mib=500)
_SHORT: Final = frozenset(
    {"mqtt/hangs up at once", "mqtt/answers random bytes", "mqtt/announces 256 MiB", "http/answers random bytes",
     "amqp/announces 4 GiB", "ws/upgrades with a wrong key", "coap/answers random bytes", "mqtt/refuses with 5"}
)  # fmt: skip


def faults() -> list[Fault]:
    """All of them."""
    found = [_fault("mqtt", "accepts nobody", full_backlog)]
    for scheme, behaviours in TCP_BEHAVIOURS.items():
        found += [_fault(scheme, name, partial(tcp_server, behaviour)) for name, behaviour in behaviours.items()]
    return found + [_fault("coap", name, partial(udp_server, answer)) for name, answer in COAP_ANSWERS.items()]


def _fault(scheme: str, name: str, server: Callable[[], AbstractContextManager[int]]) -> Fault:
    what = partial(_run, scheme=scheme, server=server)
    return Fault("server", f"{scheme} {name}", what, _MUST, f"{scheme}/{name}" in _SHORT, within_s=150)


def _run(place: Place, *, scheme: str, server: Callable[[], AbstractContextManager[int]]) -> Seen:
    protocol = {"mqtts": "mqtt", "ws": "mqtt"}.get(scheme, scheme)
    subscribes = "" if scheme == "http" else _CLIENTS
    place.write("load.yaml", _LOAD.format(protocol=protocol, clients=subscribes))
    with server() as port:
        place.record(
            "run", "load.yaml", "--broker", f"{scheme}://127.0.0.1:{port}", "--no-html", "--runs", str(place.runs)
        )
        return place.seen()


_CLIENTS: Final = 'clients:\n  listener: {count: 1, subscribe: ["chaos/#"]}\n'
_LOAD: Final = """\
name: chaos
protocol: {protocol}
fleets:
  sensor: {{devices: 2, topic: "chaos/{{device}}", payload: {{random_bytes: 60}}, every: 20/s, qos: 1}}
{clients}phases: {{measure: 1s, drain: 1s, quiet: 200ms}}
"""
