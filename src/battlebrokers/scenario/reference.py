"""The scenario reference and the JSON Schema, generated from the model. Called by the docs and `bb schema`."""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel

from battlebrokers.scenario.expectations import BASES, COUNTS, LATENCIES, RATES, STATISTICS
from battlebrokers.scenario.model import (
    Away,
    Clients,
    Connection,
    Credentials,
    Fleet,
    Payload,
    Phases,
    Scenario,
    Speaking,
    Tls,
    Will,
)
from battlebrokers.scenario.patterns import CLIENT_VARIABLES, DEVICE_VARIABLES
from battlebrokers.scenario.templates import FIELDS

_INTRODUCTION = """# Scenario reference

Generated from the models; `bb schema` prints the same as JSON Schema for your editor.

A scenario is a YAML file. Unknown keys are mistakes, zero is zero, and what is absent is absent. `bb check FILE`
reports all mistakes at once, or tells the plan in words. `--set path=value` overrides anything
(`--set fleets.air.devices=10`, `--set expect.0="lost == 0"`; `null` removes a key), `--scale 0.1` multiplies all
counts of devices and clients.
"""

_ANCHORS = {"defaults": "fleets-and-defaults-speaking"}

_QUANTITIES = """## Quantities

| kind | written |
|---|---|
| duration | `500ms`, `10s`, `1m30s`, `2h`; units ns, us, ms, s, m or min, h, d; only 0 needs no unit |
| rate | `100/s`, `5k/s`, `20/min` |
| size | `30` (bytes), `2KiB`, `1MB`; drawn: `180..400`, `normal 256KiB ± 64KiB` (or `+-`), `[30, 4KiB]` |
| count | `50`, `10k`, `1M` |
| pace | see below |

## Paces

| written | meaning |
|---|---|
| `1s`, `100/s` | steady: the same gap between all messages |
| `20s..60s` | each gap drawn evenly from the range |
| `poisson 5s`, `poisson 20/s` | exponential gaps with that mean, like many independent sources |
| `burst 10 every 1s` | 10 messages at the same moment, every second |
| `ramp 10/s..100/s over 30s` | the rate changes in a straight line, then stays |

Devices of a fleet are staggered unless told otherwise: they take turns within one interval. `staggered: false` makes
all of them speak at the same moment, which is a different test.
"""


def json_schema() -> dict[str, Any]:
    """The JSON Schema of a scenario."""
    schema = Scenario.model_json_schema(by_alias=True)
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", **schema, "title": "BattleBrokers scenario"}


def scenario_reference() -> str:
    """The reference as Markdown."""
    inherited = set(Connection.model_fields)
    speaking = set(Speaking.model_fields) - inherited
    parts = [
        _INTRODUCTION,
        _section("The scenario", Scenario, set(Scenario.model_fields)),
        _section("`fleets`: devices", Fleet, set(Fleet.model_fields) - inherited - speaking),
        _section("`fleets` and `defaults`: speaking", Speaking, speaking),
        _section("`clients`", Clients, set(Clients.model_fields) - inherited),
        _section("`fleets`, `clients` and `defaults`: connecting", Connection, inherited),
        _section("`payload`", Payload, set(Payload.model_fields)),
        _section("`phases`", Phases, set(Phases.model_fields)),
        _section("`away`", Away, set(Away.model_fields)),
        _section("`will`", Will, set(Will.model_fields)),
        _section("`credentials`", Credentials, set(Credentials.model_fields)),
        _section("`tls`", Tls, set(Tls.model_fields)),
        _QUANTITIES,
        _variables(),
        _expectations(),
    ]
    return "\n".join(part.strip() + "\n" for part in parts)


def _section(title: str, model: type[BaseModel], keys: set[str]) -> str:
    lines = [f"## {title}", "", model.__doc__ or "", "", "| key | kind | |", "|---|---|---|"]
    properties = model.model_json_schema(by_alias=True)["properties"]
    for name, field in model.model_fields.items():
        if name in keys:
            key = field.alias or name
            needed = " **Required.**" if field.is_required() else ""
            lines.append(f"| `{key}` | {_cell(_kind(properties[key]))} | {_cell(field.description or '')}{needed} |")
    return "\n".join(lines)


def _kind(schema: dict[str, Any]) -> str:
    """A short name of what a key takes, from its JSON Schema."""
    options = [option for option in schema.get("anyOf", [schema]) if option.get("type") != "null"]
    schema = options[0]
    if "enum" in schema:
        return ", ".join(f"`{value}`" for value in schema["enum"])
    if "const" in schema:
        return f"`{schema['const']}`"
    if "$ref" in schema:
        name = str(schema["$ref"]).rpartition("/")[2].lower()
        return f"[{name}](#{_ANCHORS.get(name, name)})"
    if schema.get("type") == "object":
        return "mapping of names"
    if schema.get("type") == "array" and "items" in schema:
        return f"list of {schema['items'].get('title', 'values')}s"
    kind = {"integer": "whole number", "boolean": "`true`, `false`"}.get(
        str(schema.get("type")), schema.get("title", "text")
    )
    if "examples" in schema:
        kind = f"{schema['title']}, as `{schema['examples'][0]}`" if schema["examples"] else schema["title"]
    return str(kind)


def _cell(text: str) -> str:
    return text.replace("|", "\\|")


def _variables() -> str:
    lines = [
        "## Variables",
        "",
        "In topics, filters, client ids and credentials (`index` counts from 1 in a fleet, `number` from 0 over all):",
        "",
    ]
    lines.append("- devices: " + ", ".join(f"`{{{name}}}`" for name in DEVICE_VARIABLES))
    lines.append("- clients: " + ", ".join(f"`{{{name}}}`" for name in CLIENT_VARIABLES))
    lines.append("- topics and filters: `{int:1..5}` stands for one topic or filter per number")
    lines.append("- credentials: `{env:NAME}` is an environment variable")
    lines += ["", "In a payload template:", "", "| field | becomes |", "|---|---|"]
    lines += [f"| `{{{_cell(name)}}}` | {about} |" for name, about in FIELDS.items()]
    return "\n".join(lines)


def _expectations() -> str:
    lines = [
        "## Expectations",
        "",
        "`METRIC OPERATOR VALUE`, with `<`, `<=`, `>`, `>=`, `==` or `!=`. Counts are those of the measure phase.",
        "",
    ]
    lines += [
        f"Latencies are `NAME_STATISTIC` with {', '.join(f'`{s}`' for s in STATISTICS)}, compared with a duration:",
        "",
    ]
    lines += [f"- `{name}_…`: {about}" for name, about in LATENCIES.items()]
    lines += ["", "Counts, compared with a number or a share (`0.01%`, `99% of planned`, `0.99 sent`):", ""]
    lines += [f"- `{name}`: {about}" for name, about in COUNTS.items()]
    lines += ["", "Rates, compared with a rate or a share:", ""]
    lines += [f"- `{name}`: {about}" for name, about in RATES.items()]
    bases = ", ".join(f"`{name}`" for name in BASES)
    lines += ["", f"A share is a share of {bases}; left out, the one that makes sense (`lost < 0.01%` of expected)."]
    return "\n".join(lines)
