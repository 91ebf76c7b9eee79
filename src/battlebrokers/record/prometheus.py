"""Resources from a Prometheus server, asked through its HTTP API after a run.

Called by the orchestrator. An unreachable server or a query without an answer is told and never stops a run.
"""

from __future__ import annotations

import base64
import json
import math
from collections.abc import Callable, Mapping
from typing import Any
from urllib.parse import urlencode, urlsplit, urlunsplit

from battlebrokers.clock import SECOND_NS
from battlebrokers.errors import UsageError
from battlebrokers.record.exporters import MEASURED_COLUMNS
from battlebrokers.tables import RESOURCES

Row = tuple[Any, ...]
Queries = Mapping[str, Mapping[str, str]]
"""Service → column of `resources` → query."""

OBSERVED = "observed"
_STEP_S = 1
_POINTS = 10_000
"""The server refuses more than 11 000 points a series in one answer."""
_TIMEOUT_S = 10.0
_WHOLE = {column.name for column in RESOURCES.columns if column.kind.startswith("int")}


class Unanswered(Exception):  # noqa: N818 - it is an answer that did not come
    """Why a query has no answer."""


class Unreachable(Unanswered):
    """There is nobody to ask."""


def observe(
    url: str, queries: Queries, start_ns: int, end_ns: int, say: Callable[[str], None]
) -> list[Row]:  # fmt: skip
    """Rows of `resources`, one per service and second for which the server knows anything."""
    rows: list[Row] = []
    for service, columns in queries.items():
        series: dict[str, dict[int, float]] = {}
        for column, query in columns.items():
            try:
                series[column] = _ask(url, query, start_ns, end_ns)
            except Unreachable as error:
                say(f"Prometheus is not asked: {error}")
                return rows
            except Unanswered as error:
                say(f"{column} of {service} is not known: Prometheus: {error}")
        if columns and not any(series.values()):
            say(f"Prometheus knows nothing of {service} between start and end of the run")
        rows += rows_of(service, series)
    return rows


def rows_of(service: str, series: Mapping[str, Mapping[int, float]]) -> list[Row]:
    """One row for each moment any of the series has; what no series tells is null."""
    moments = sorted({at_ns for values in series.values() for at_ns in values})
    return [_row(at_ns, service, {name: values.get(at_ns) for name, values in series.items()}) for at_ns in moments]


def parse_metric(text: str) -> tuple[str, str, str]:
    """`service.column=query` as its three parts."""
    place, equals, query = text.partition("=")
    service, dot, column = place.rpartition(".")
    hint = (
        f"for example --metric 'broker.rss_bytes=process_resident_memory_bytes'; columns: {', '.join(MEASURED_COLUMNS)}"
    )
    if not (equals and dot and service and query):
        raise UsageError(f"--metric {text!r} is not service.column=query", hint=hint)
    if column not in MEASURED_COLUMNS:
        raise UsageError(f"--metric {text!r}: {column!r} is not a column of resources", hint=hint)
    return service, column, query


def check_url(url: str) -> str:
    """The URL of a server, or a UsageError."""
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise UsageError(f"{url!r} is not the URL of a Prometheus server", hint="for example http://localhost:9090")
    return url.rstrip("/")


def parse_answer(told: bytes) -> dict[int, float]:
    """Nanoseconds → value from an answer of query_range; several series are added up, what is no number is left out."""
    try:
        answer = json.loads(told)
        if answer.get("status") != "success":
            raise Unanswered(str(answer.get("error", "it gives no reason")))
        found: dict[int, float] = {}
        for one in answer["data"]["result"]:
            for at_s, text in one["values"]:
                value = float(text)
                if math.isfinite(value):
                    at_ns = round(float(at_s) * 1000) * 1_000_000
                    found[at_ns] = found.get(at_ns, 0.0) + value
    except (ValueError, LookupError, TypeError, AttributeError) as error:
        raise Unanswered(f"it answered something else than its API says: {error!r}") from error
    return found


def _ask(url: str, query: str, start_ns: int, end_ns: int) -> dict[int, float]:
    found: dict[int, float] = {}
    start_s, end_s = start_ns // SECOND_NS, -(-end_ns // SECOND_NS)
    while start_s <= end_s:
        last_s = min(end_s, start_s + _POINTS * _STEP_S)
        form = {"query": query, "start": start_s, "end": last_s, "step": _STEP_S}
        found |= parse_answer(_fetch(url, urlencode(form)))
        start_s = last_s + _STEP_S
    return found


def _fetch(url: str, form: str) -> bytes:
    from urllib.error import HTTPError  # only who asks a server pays for loading this
    from urllib.request import Request, urlopen

    parts = urlsplit(url)
    place = parts.netloc.rpartition("@")[2]
    headers = {"Content-Type": "application/x-www-form-urlencoded"}
    if parts.username is not None:
        secret = f"{parts.username}:{parts.password or ''}".encode()
        headers["Authorization"] = f"Basic {base64.b64encode(secret).decode()}"
    target = urlunsplit((parts.scheme, place, f"{parts.path.rstrip('/')}/api/v1/query_range", "", ""))
    try:
        with urlopen(Request(target, form.encode(), headers), timeout=_TIMEOUT_S) as answer:  # noqa: S310 - checked
            return bytes(answer.read())
    except HTTPError as error:
        told = error.read()
        if told.lstrip().startswith(b"{"):
            return bytes(told)
        raise Unanswered(f"{place} answers {error.code} {error.reason}") from error
    except (OSError, ValueError) as error:
        raise Unreachable(f"{place} does not answer: {getattr(error, 'reason', error)}") from error


def _row(at_ns: int, service: str, values: Mapping[str, float | None]) -> Row:
    def of(name: str) -> float | int | None:
        value = values.get(name)
        return round(value) if value is not None and name in _WHOLE else value

    return (at_ns, service, OBSERVED, *(of(name) for name in MEASURED_COLUMNS), None, None)
