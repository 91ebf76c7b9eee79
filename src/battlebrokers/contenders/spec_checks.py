"""What can be wrong between parts of a contender file that are each right alone. Called by `reader`; pure."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

from battlebrokers.contenders.dialect import REQUESTS, Register, Speak, Step
from battlebrokers.contenders.dialect_checks import RUN_NAMES, KeyMistake, KeyPath, check_dialect, kept_by, names_used
from battlebrokers.contenders.offers import protocol_of
from battlebrokers.contenders.path_checks import path_checks
from battlebrokers.contenders.spec import Contender
from battlebrokers.contenders.template import names_in
from battlebrokers.scenario.patterns import nearest
from battlebrokers.secrets import MASK, masked_document

ALWAYS_KNOWN = ("host", "dir", "data", "user", "specs")
"""Names every template may use: where to listen, the folder, the folder for its data, who we are, where specs lie."""
TLS_NAMES = ("tls.certificate", "tls.key", "tls.client_ca")


def cross_checks(contender: Contender, ports_of: Callable[[str], Sequence[str] | None]) -> Iterator[KeyMistake]:
    """What is wrong between parts of a file that are each right alone: (path, message, hint).

    `ports_of` tells the names of a shipped contender's ports, None when there is no such contender.
    """
    port_names = [*contender.ports, *(contender.tls.ports if contender.tls is not None else [])]
    yield from path_checks(contender)
    yield from _addresses(contender, port_names)
    if sum("*" in service.processes for service in contender.services.values()) != 1:
        yield ("services",), 'exactly one service must be ["*"]', "it takes every process no other service names"
    yield from _open_secrets(contender)
    companions: list[str] = []
    for name, companion in contender.beside.items():
        if companion.contender is None:
            companions.append(f"port.{name}")
            continue
        ports = ports_of(companion.contender) if companion.contender != contender.name else None
        if ports is None:
            yield ("beside", name), f"no contender that could run beside it is called {companion.contender!r}", ""
        companions += [f"{name}.{port}" for port in ports or ()]
    addresses = [*(f"port.{port}" for port in contender.ports), *companions]
    yield from _templates(contender, addresses)
    register, speak = contender.register_ or Register(), contender.speak or Speak()
    yield from check_dialect(register, speak, addresses, has_model=contender.model is not None)
    yield from _by_the_controller(register, addresses)
    spoken = contender.speak.spoken if contender.speak is not None else {}
    offered = {protocol_of(key) for key in contender.endpoints}
    for protocol in spoken:
        if protocol not in offered:
            yield ("speak", protocol), f"there is no endpoint for {protocol}", "add it to endpoints"
    for protocol, speech in spoken.items():
        if protocol != "coap" and speech.subscribe is not None and speech.subscribe.quiet:
            yield ("speak", protocol, "subscribe", "quiet"), f"nobody is quiet over {protocol}", "only CoAP observes"
        for other in speech.subscribe.deaf_to if speech.subscribe is not None else ():
            where = ("speak", protocol, "subscribe", "deaf_to", other)
            if other == protocol:
                yield where, f"clients over {protocol} that never hear it need no `subscribe`", ""
            elif other not in offered:
                yield where, f"there is no endpoint for {other}", nearest(other, sorted(offered))
    yield from _asked_over_http(contender, offered)
    if contender.register_ is not None and "http" not in offered:
        yield ("register",), "registering needs an endpoint for http", "add it to endpoints"
    for protocol in sorted({"http", "websocket"} & offered - set(spoken)):
        asked = contender.register_ is not None or contender.ready.get or any(_requests_over_udp(contender))
        if protocol != "http" or not asked:
            yield ("endpoints", protocol), f"`speak` does not tell how {protocol} is spoken", ""


def _by_the_controller(register: Register, addresses: Sequence[str]) -> Iterator[KeyMistake]:
    """What it asks for and removes of its own; it knows no topic and no node then."""
    known = {*RUN_NAMES, *addresses, *(f"controller.{name}" for name in kept_by(register.login))}
    steps: list[tuple[KeyPath, Step]] = []
    if register.list_ is not None:
        steps.append((("register", "list"), register.list_))
    steps += [(("register", "remove", "controller", n), step) for n, step in enumerate(register.remove.controller)]
    for path, step in steps:
        if not step.verbs:
            yield path, "says nothing", f"one of {', '.join(REQUESTS)}"
        for verb in step.verbs:
            if verb not in REQUESTS:
                yield (*path, verb), "cannot be said here", f"valid: {', '.join(REQUESTS)}"
            elif not str(getattr(step, verb)).startswith(("/", "${")):
                yield (*path, verb), f"{getattr(step, verb)!r} is not a path", "it starts with /"
        for name in sorted(names_used(step) - known):
            yield path, f"${{{name}}} is not known here", nearest(name, sorted(known))


def _requests_over_udp(contender: Contender) -> Iterator[KeyPath]:
    """Steps of a subscription over UDP that are requests to the HTTP endpoint."""
    udp = contender.speak.udp if contender.speak is not None else None
    if udp is None or udp.subscribe is None:
        return
    for key, steps in (("steps", udp.subscribe.steps), ("undo", udp.subscribe.undo)):
        for number, step in enumerate(steps):
            yield from (("speak", "udp", "subscribe", key, number, verb) for verb in step.verbs if verb in REQUESTS)


def _asked_over_http(contender: Contender, offered: set[str]) -> Iterator[KeyMistake]:
    for path in _requests_over_udp(contender) if "http" not in offered else ():
        yield path, "a request needs an endpoint for http", "add it to endpoints"


def _addresses(contender: Contender, port_names: Sequence[str]) -> Iterator[KeyMistake]:
    """Ports that are named but not there, or that have no number where only numbers will do."""
    ready = contender.ready
    if ready.port and ready.port not in contender.ports:
        yield ("ready", "port"), f"{ready.port} is not one of ports", nearest(ready.port, list(contender.ports))
    if ready.get and "http" not in contender.endpoints:
        yield ("ready", "get"), "asking needs an endpoint for http", "add it to endpoints"
    for name, service in contender.services.items():
        for port in service.ports or []:
            if isinstance(port, str) and port not in port_names:
                yield ("services", name, "ports"), f"{port} is not one of ports", nearest(port, list(port_names))
    run = contender.run
    if run.external or run.compose or run.container:
        how = "external" if run.external else "compose" if run.compose else "container"
        for name, number in contender.ports.items():
            if not number:
                yield ("ports",), f"{name} has no number, and `{how}` does not let us choose", f"{{{name}: 1883}}"


def _open_secrets(contender: Contender) -> Iterator[KeyMistake]:
    """Arguments can be read by everybody on the machine, so no secret may be among them."""
    commands: dict[KeyPath, list[str]] = {("run", "command"): contender.run.command}
    for name, companion in contender.beside.items():
        commands["beside", name, "command"] = companion.command
    for path, command in commands.items():
        if MASK in masked_document(" ".join(command)):
            yield path, "a secret among the arguments can be read by everybody", "put it into `env` or `files`"


def _templates(contender: Contender, addresses: Sequence[str]) -> Iterator[KeyMistake]:
    """Names nobody knows, in everything that starts and configures it; files that nobody writes."""
    folders = [f"{name}.folder" for name, need in contender.needs.items() if need.python or need.node]
    known = [*ALWAYS_KNOWN, *contender.needs, *folders, *addresses]
    raw = contender.model_dump()
    tls = raw.pop("tls")
    raw["version"] = [{key: each[key] for key in ("command", "glob", "file")} for each in raw["version"]]
    for part in ("version", "endpoints", "run", "files", "profiles"):
        yield from _unknown_names(raw[part], (part,), known)
    for name, companion in contender.beside.items():
        yield from _unknown_names(companion.command, ("beside", name, "command"), [*known, name])
    for profile, spec in contender.profiles.items():
        written = sorted({*contender.files, *spec.files})
        for stranger in sorted(set(spec.append) - set(written)):
            where = ("profiles", profile, "append", stranger)
            yield where, "no such file is written", nearest(stranger, written)
    if contender.tls is not None:
        known += [*TLS_NAMES, *(f"port.{port}" for port in contender.tls.ports)]
        yield from _unknown_names(tls, ("tls",), known)
        written = sorted({*contender.files, *(name for spec in contender.profiles.values() for name in spec.files)})
        for key in ("append", "append_with_client_ca"):
            for stranger in sorted(set(tls[key]) - set(written)):
                yield ("tls", key, stranger), "no profile writes such a file", nearest(stranger, written)


def _unknown_names(value: Any, path: KeyPath, known: list[str]) -> Iterator[KeyMistake]:
    if isinstance(value, str):
        for name in sorted(names_in(value).difference(known)):
            yield path, f"${{{name}}} is not known here", nearest(name, known)
    elif isinstance(value, dict):
        for key, item in value.items():
            yield from _unknown_names(item, (*path, key), known)
    elif isinstance(value, list):
        for number, item in enumerate(value):
            yield from _unknown_names(item, (*path, number), known)
