"""What the keys of a scenario must mean together: the mistakes no single key can show. Called by the reader.

Each rule yields (path, message, hint); none stops at the first.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path as FilePath

from battlebrokers.errors import QuantityError
from battlebrokers.scenario.credentials import read_logins
from battlebrokers.scenario.document import Path
from battlebrokers.scenario.kinds import RANDOM_ID, parse_duration_range
from battlebrokers.scenario.model import Clients, Connection, Fleet, Payload, Scenario
from battlebrokers.scenario.patterns import CLIENT_VARIABLES, DEVICE_VARIABLES, compile_pattern
from battlebrokers.scenario.payloads import is_charset
from battlebrokers.scenario.resolve import ALSO_OF, MQTT5_ONLY, effective, may_encrypt, strange_to
from battlebrokers.units import format_duration, parse_duration_ns

Finding = tuple[Path, str, str]

MOST_DEVICES = 2**24 - 1
_CONTENTS = ("text", "value", "fixed", "random_bytes", "template", "file")
_SIZED = ("text", "fixed", "file")
_SECOND_NS = 1_000_000_000


def check_rules(scenario: Scenario) -> Iterator[Finding]:
    """All mistakes of a scenario whose keys are valid one by one."""
    if not scenario.fleets and not scenario.clients:
        yield (), "has neither fleets nor clients", "nothing would happen"
    if parse_duration_ns(scenario.phases.measure) == 0:
        yield ("phases", "measure"), "must be longer than 0", "nothing would be measured"
    if scenario.phases.until_silent:
        endless = [name for name, fleet in scenario.fleets.items() if effective(scenario, fleet, "at_most") is None]
        if endless or not scenario.fleets:
            why = f"`{endless[0]}` never falls silent" if endless else "there are no fleets"
            yield ("phases", "until_silent"), why, "give every fleet an `at_most`"
    for name in scenario.fleets.keys() & scenario.clients.keys():
        yield ("clients", name), f"`{name}` is also the name of a fleet", "names are unique"
    devices = sum(fleet.devices for fleet in scenario.fleets.values())
    if devices > MOST_DEVICES:
        yield ("fleets",), f"{devices} devices do not fit into the header's 24 bits", f"at most {MOST_DEVICES}"
    yield from _tls(scenario, scenario, ())
    if scenario.defaults is not None:
        yield from _tls(scenario, scenario.defaults, ("defaults",))
        yield from _payload(scenario.defaults.payload, ("defaults", "payload"))
        yield from _defaults_mqtt(scenario, scenario.defaults, ("defaults",))
        yield from _defaults_mqtt5(scenario)
        yield from _counted_in_seconds(scenario.defaults, ("defaults",))
    yield from _defaults_mqtt(scenario, scenario, ())
    for name, fleet in scenario.fleets.items():
        yield from _fleet(scenario, fleet, ("fleets", name))
    for name, group in scenario.clients.items():
        yield from _clients(scenario, group, ("clients", name))
    yield from _client_ids(scenario)


def _fleet(scenario: Scenario, fleet: Fleet, path: Path) -> Iterator[Finding]:
    silent = effective(scenario, fleet, "at_most") == 0
    for key in ("every", "payload"):
        if effective(scenario, fleet, key) is None and not silent:
            yield (*path, key), f"`{key}` is missing here and in `defaults`", ""
    if not fleet.topic:
        yield (*path, "topic"), "needs at least one topic", ""
    yield from _payload(fleet.payload, (*path, "payload"))
    yield from _variables(scenario, fleet, path, DEVICE_VARIABLES)
    yield from _node(scenario, fleet, path, fleet.devices)


def _clients(scenario: Scenario, group: Clients, path: Path) -> Iterator[Finding]:
    yield from _variables(scenario, group, path, CLIENT_VARIABLES)
    if group.subscriptions is not None:
        patterns = [compile_pattern(text, CLIENT_VARIABLES, ranges=True) for text in group.subscribe]
        filters = sum(len(pattern.expand(dict.fromkeys(CLIENT_VARIABLES, "x"))) for pattern in patterns)
        if group.subscriptions > filters:
            yield (
                (*path, "subscriptions"),
                f"asks for {group.subscriptions} of {filters} filters",
                "add filters to `subscribe`",
            )
    if group.share is not None and not group.subscribe:
        yield (*path, "share"), "shares nothing", "add `subscribe`"
    yield from _node(scenario, group, path, group.count)


def _node(scenario: Scenario, group: Fleet | Clients, path: Path, count: int) -> Iterator[Finding]:
    """Rules that devices and clients share."""
    protocol = effective(scenario, group, "protocol")
    if protocol != "mqtt":
        for key in strange_to(protocol):
            if getattr(group, key, None):
                yield (*path, key), *_strange(key, protocol)
    elif effective(scenario, group, "version") != "5":
        for key in MQTT5_ONLY:
            if getattr(group, key, None):
                yield (*path, key), f"`{key}` exists in MQTT 5 only", "add `version: 5`"
        if group.will is not None and group.will.delay is not None:
            yield (*path, "will", "delay"), "a will delay exists in MQTT 5 only", "add `version: 5`"
    if effective(scenario, group, "session") == "persistent" and RANDOM_ID.fullmatch(
        effective(scenario, group, "client_id") or ""
    ):
        yield (
            (*path, "session"),
            "a persistent session is found again by its client id, and random ids are new in every run",
            "give `client_id` a pattern",
        )
    yield from _tls(scenario, group, path)
    yield from _credentials(scenario, group, path, count)
    yield from _times(scenario, group, path)


def _variables(scenario: Scenario, group: Fleet | Clients, path: Path, allowed: tuple[str, ...]) -> Iterator[Finding]:
    """Keys that devices and clients share may use only the variables of their side, also those said for all."""
    client_id = effective(scenario, group, "client_id")
    credentials = effective(scenario, group, "credentials")
    password = credentials.password if credentials else None
    texts = {
        ("client_id",): client_id if client_id is None or not RANDOM_ID.fullmatch(client_id) else None,
        ("will", "topic"): group.will.topic if group.will else None,
        ("credentials", "username"): credentials.username if credentials else None,
        ("credentials", "password"): password.reveal() if password is not None else None,
    }
    for keys, text in texts.items():
        own = getattr(group, keys[0]) is not None
        try:
            if text is not None:
                compile_pattern(text, allowed, environment=keys[0] == "credentials")
        except QuantityError as error:
            message = error.message if own else f"{error.message} for `{path[-1]}`"
            yield (*(path if own else ("defaults",)), *keys), message, error.hint


def _tls(scenario: Scenario, level: Scenario | Connection, path: Path) -> Iterator[Finding]:
    if level.tls is None:
        return
    if (level.tls.certificate is None) != (level.tls.key is None):
        absent = "key" if level.tls.key is None else "certificate"
        yield (*path, "tls"), f"mutual TLS needs the {absent} too", "give both or none"
    groups = (
        [*scenario.fleets.values(), *scenario.clients.values()] if not isinstance(level, Fleet | Clients) else [level]
    )
    if groups and not any(may_encrypt(scenario, group) for group in groups):
        yield (*path, "tls"), "certificates without encryption", "add `transport: tls` (or wss)"


def _credentials(scenario: Scenario, group: Fleet | Clients, path: Path, count: int) -> Iterator[Finding]:
    credentials = effective(scenario, group, "credentials")
    if credentials is None:
        return
    where: Path = (*path, "credentials") if group.credentials is not None else ("defaults", "credentials")
    if credentials.csv is not None:
        if credentials.username is not None or credentials.password is not None:
            yield where, "comes from a CSV file and from patterns", "use one of them"
        try:
            rows = len(read_logins(FilePath(credentials.csv)))
            if rows < count:
                yield (*where, "csv"), f"has {rows} rows for {count} nodes", "a row for each"
        except QuantityError as error:
            yield (*where, "csv"), error.message, error.hint
    elif credentials.username is None and (
        effective(scenario, group, "protocol") == "mqtt" and effective(scenario, group, "version") != "5"
    ):
        yield where, "a password needs a user name in MQTT 3.1.1", "add `username`"


def _payload(payload: Payload | None, path: Path) -> Iterator[Finding]:
    if payload is None:
        return
    given = [key for key in _CONTENTS if getattr(payload, key) is not None]
    if len(given) != 1:
        found = " and ".join(f"`{key}`" for key in given) if given else "none"
        yield path, f"needs exactly one content, found {found}", "one of " + ", ".join(_CONTENTS)
        return
    if payload.size is not None and given[0] not in _SIZED:
        yield (*path, "size"), f"`size` does not go with `{given[0]}`", "it repeats or cuts text, fixed and file"
    if payload.size is not None and (payload.text or payload.fixed or payload.file or "") == "":
        yield (*path, "size"), "there is nothing to repeat", "give some text"
    if given[0] == "random_bytes" and is_charset(payload.encoding or "none"):
        yield (*path, "encoding"), "random bytes are no text", "use none, base64 or binhex"


def _times(scenario: Scenario, group: Fleet | Clients, path: Path) -> Iterator[Finding]:
    phases = scenario.phases
    load_ns = sum(parse_duration_ns(text) for text in (phases.warm_up, phases.measure, phases.cool_down))
    load = f"the load lasts {format_duration(load_ns)}"
    if group.join is not None and parse_duration_range(group.join)[1] >= load_ns:
        yield (*path, "join"), f"{group.join} is after the load has ended", load
    away = group.away
    if away is not None:
        if parse_duration_range(away.at)[1] >= load_ns:
            yield (*path, "away", "at"), f"{away.at} is after the load has ended", load
        if away.every is not None and parse_duration_ns(away.every) <= parse_duration_ns(away.for_):
            yield (
                (*path, "away", "every"),
                f"comes back after {away.for_} but leaves again every {away.every}",
                "make `every` longer",
            )
    yield from _counted_in_seconds(group, path)
    if group.will is not None:
        yield from _whole_seconds(group.will.delay, (*path, "will", "delay"), 2**32 - 1)


def _counted_in_seconds(level: Connection, path: Path) -> Iterator[Finding]:
    yield from _whole_seconds(level.keep_alive, (*path, "keep_alive"), 65_535)
    yield from _whole_seconds(level.session_expiry, (*path, "session_expiry"), 2**32 - 1)


def _whole_seconds(text: str | None, path: Path, most: int) -> Iterator[Finding]:
    """MQTT counts these in whole seconds."""
    duration_ns = parse_duration_ns(text) if text is not None else 0
    if duration_ns % _SECOND_NS:
        yield path, f"{text} is not a whole number of seconds", "MQTT counts it in seconds"
    elif duration_ns > most * _SECOND_NS:
        yield path, f"{text} is too long for MQTT", f"at most {most}s"


def _strange(key: str, protocol: str) -> tuple[str, str]:
    if protocol == "auto":
        return f"`{key}` belongs to MQTT, and `protocol: auto` may choose another", "say `protocol: mqtt`"
    advice = "the contender's address tells it" if key == "transport" else "leave it out, or say `protocol: mqtt`"
    where = " and ".join(["MQTT", *(name for name, keys in ALSO_OF.items() if key in keys)])
    return f"`{key}` exists in {where} only, and this speaks {protocol}", advice


def _defaults_mqtt(scenario: Scenario, level: Scenario | Connection, path: Path) -> Iterator[Finding]:
    """Keys said for all need at least one fleet whose protocol knows them."""
    protocols = [
        effective(scenario, group, "protocol") for group in (*scenario.fleets.values(), *scenario.clients.values())
    ]
    for key in strange_to("auto") if protocols else ():
        if getattr(level, key, None) and all(key in strange_to(protocol) for protocol in protocols):
            yield (*path, key), *_strange(key, protocols[0])


def _defaults_mqtt5(scenario: Scenario) -> Iterator[Finding]:
    """Keys of MQTT 5 in `defaults` need at least one fleet that speaks it."""
    groups = [*scenario.fleets.values(), *scenario.clients.values()]
    spoken = {
        effective(scenario, group, "version") for group in groups if effective(scenario, group, "protocol") == "mqtt"
    }
    if "5" in spoken or (groups and not spoken):
        return
    for key in MQTT5_ONLY:
        if getattr(scenario.defaults, key):
            yield ("defaults", key), f"`{key}` exists in MQTT 5 only", "add `version: 5`"


def _client_ids(scenario: Scenario) -> Iterator[Finding]:
    """Two fleets with one pattern would throw each other out, unless the pattern tells them apart."""
    seen: dict[str, str] = {}
    for role, groups in (("fleets", scenario.fleets), ("clients", scenario.clients)):
        for name, group in groups.items():
            text = effective(scenario, group, "client_id")
            if text is None or RANDOM_ID.fullmatch(text):
                continue
            names = {match for match in ("fleet", "device", "client", "number") if f"{{{match}}}" in text}
            if names - {"number"} or (names and seen.get(text, role) == role):
                seen.setdefault(text, role)
                continue
            if text in seen:
                path: Path = (role, name, "client_id") if group.client_id is not None else ("defaults", "client_id")
                yield path, f"{text!r} gives two fleets the same client ids", "add {fleet}"
            seen[text] = role
