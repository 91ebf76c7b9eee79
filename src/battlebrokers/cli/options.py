"""Options that several verbs share, declared once."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated, Literal

import typer

from battlebrokers.errors import UsageError
from battlebrokers.record.capture_tool import SMALLEST_LIMIT_BYTES, SMALLEST_SNAP_BYTES, Limits
from battlebrokers.record.prometheus import check_url, parse_metric
from battlebrokers.run.observing import Accounts
from battlebrokers.units import parse_size_bytes

Runs = Annotated[
    Path, typer.Option("--runs", metavar="DIR", help="Where run folders lie.", envvar="BB_RUNS", show_default=True)
]
Overrides = Annotated[
    list[str],
    typer.Option(
        "--set", metavar="KEY=VALUE", help="Override anything: --set fleets.air.devices=10 --set phases.measure=5s."
    ),
]
Scale = Annotated[
    float, typer.Option("--scale", metavar="FACTOR", min=0.0, help="Multiply the numbers of devices and clients.")
]
Seed = Annotated[int | None, typer.Option("--seed", help="Another seed than the scenario's; same seed, same plan.")]
ProfileName = Literal["stock", "tuned"]
Profile = Annotated[
    ProfileName, typer.Option("--profile", help="The broker's configuration: as its vendor ships it, or tuned.")
]
Processes = Annotated[
    int, typer.Option("--processes", metavar="N", min=0, help="Engine processes; 0 = chosen by the load.")
]
Tags = Annotated[list[str], typer.Option("--tag", metavar="KEY=VALUE", help="Remember key=value with the run.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print one JSON document on stdout, nothing else.")]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="No progress.")]
SparkMaster = Annotated[
    str, typer.Option("--spark-master", metavar="URL", help="Where Spark runs: local[*], spark://host:port, …")
]
Trust = Annotated[
    bool, typer.Option("--trust", help="Run what contender files of your own (.yaml) name, without asking first.")
]
Capture = Annotated[bool, typer.Option("--capture", help="Capture the packets of each service of the broker.")]
Snap = Annotated[str, typer.Option("--snap", metavar="BYTES", help="Keep so many bytes of each packet; 0 = all.")]
CaptureLimit = Annotated[
    str,
    typer.Option(
        "--capture-limit",
        metavar="SIZE",
        help="Keep so much of each service; beyond it the newest replaces the oldest.",
    ),
]
Prometheus = Annotated[
    str,
    typer.Option(
        "--prometheus",
        metavar="URL",
        help="Ask this Prometheus server about resources after the run: http://host:9090.",
    ),
]
MetricQueries = Annotated[
    list[str],
    typer.Option(
        "--metric",
        metavar="QUERY",
        help="A PromQL query besides those of the contender's file: service.rss_bytes=QUERY.",
    ),
]
SarFiles = Annotated[
    list[Path], typer.Option("--sar", metavar="FILE", help="Take a machine's resources from this file of sysstat's.")
]

RUNS_DEFAULT = Path(os.environ.get("BB_RUNS", "runs"))


def parse_limits(snap: str, limit: str) -> Limits:
    """How much to capture, from `--snap` and `--capture-limit`."""
    limits = Limits(parse_size_bytes(snap), parse_size_bytes(limit))
    if limits.total_bytes < SMALLEST_LIMIT_BYTES:
        raise UsageError(f"--capture-limit {limit} is too small", hint="1MB is the least.")
    if limits.snap_bytes and limits.snap_bytes < SMALLEST_SNAP_BYTES:
        raise UsageError(
            f"--snap {snap} would not even keep the headers", hint=f"{SMALLEST_SNAP_BYTES} is the least, 0 keeps all."
        )
    return limits


def parse_accounts(prometheus: str, metrics: list[str], sar: list[Path]) -> Accounts:
    """Who is asked about resources after the run, from `--prometheus`, `--metric` and `--sar`."""
    if metrics and not prometheus:
        raise UsageError("--metric needs a server to ask", hint="for example --prometheus http://localhost:9090")
    queries: dict[str, dict[str, str]] = {}
    for service, column, query in map(parse_metric, metrics):
        queries.setdefault(service, {})[column] = query
    return Accounts(check_url(prometheus) if prometheus else "", queries, tuple(sar))


def parse_tags(tags: list[str]) -> dict[str, str]:
    """`key=value` pairs as a dict."""
    found = {}
    for tag in tags:
        key, equals, value = tag.partition("=")
        if not equals or not key:
            raise UsageError(f"--tag {tag!r} is not key=value", hint="for example --tag kernel=6.1")
        found[key] = value
    return found
