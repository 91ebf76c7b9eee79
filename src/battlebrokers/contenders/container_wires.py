"""The wires of services in containers that we start: each is known once its container runs.

Called by `lifecycle` when somebody listens. What others started is named in a contender's file, and told by `wires`.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator

from battlebrokers.contenders.contained import Contained
from battlebrokers.contenders.spec import Contender
from battlebrokers.contenders.wires import ports_of
from battlebrokers.record.wire import Wire

_OTHERS_WITHIN_S = 10.0
"""After the first container of a composition; later ones stay where they were looked for."""
_POLL_S = 0.02


def container_wires(contender: Contender, contained: Contained, going: Callable[[], bool]) -> Iterator[Wire]:
    """Each service's wire as soon as its container runs; ends with the last of them, or when nobody comes any more."""
    # A composition publishes some ports under other numbers, and the others not at all: all of its packets are taken.
    ports = {} if contained.compose_file else ports_of(contender, contender.ports)
    waiting = [
        name
        for name, service in contender.services.items()
        if (contained.compose_file or ports[name])
        and not (service.container or service.namespace or service.interface or service.filter)
    ]
    until = time.monotonic() + contender.ready.within_s
    while waiting and going() and time.monotonic() < until:
        found = {name: container for name in waiting if (container := contained.running(name))}
        for name, container in found.items():
            yield Wire(name, ports.get(name, ()), container=container)
        waiting = [name for name in waiting if name not in found]
        if found:
            until = min(until, time.monotonic() + _OTHERS_WITHIN_S)
        elif waiting:
            time.sleep(_POLL_S)
