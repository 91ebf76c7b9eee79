"""`bb run`: one scenario against one broker, to a verdict."""

from __future__ import annotations

from typing import Annotated

import typer

from battlebrokers import signals
from battlebrokers.cli.conclusion import conclude, tell, worst
from battlebrokers.cli.conduct import conduct, expected_events, kept_in, start_analyst
from battlebrokers.cli.consent import require_trust
from battlebrokers.cli.options import (
    RUNS_DEFAULT,
    AsJson,
    Capture,
    CaptureLimit,
    MetricQueries,
    Overrides,
    Processes,
    Profile,
    Prometheus,
    Quiet,
    Runs,
    SarFiles,
    Scale,
    Seed,
    Snap,
    SparkMaster,
    Tags,
    Trust,
    parse_accounts,
    parse_limits,
    parse_tags,
)
from battlebrokers.cli.progress import RunProgress
from battlebrokers.errors import ExitCode
from battlebrokers.run.orchestrator import RunRequest
from battlebrokers.scenario.plan import build_plan
from battlebrokers.scenario.reader import load_scenario
from battlebrokers.tables.run_folder import RunFolder


def run(
    scenario: Annotated[str, typer.Argument(help="A shipped scenario's name or a YAML file.")],
    broker: Annotated[
        str, typer.Option("--broker", "-b", help="A contender's name (see `bb brokers`) or a URL, mqtt://host:port.")
    ] = "amqtt",
    profile: Profile = "tuned",
    overrides: Overrides = [],  # noqa: B006 - typer reads the default, nobody changes it
    scale: Scale = 1.0,
    seed: Seed = None,
    runs: Runs = RUNS_DEFAULT,
    processes: Processes = 0,
    tags: Tags = [],  # noqa: B006
    capture: Capture = False,
    snap: Snap = "0",
    capture_limit: CaptureLimit = "4GiB",
    prometheus: Prometheus = "",
    metrics: MetricQueries = [],  # noqa: B006
    sar: SarFiles = [],  # noqa: B006
    trust: Trust = False,
    spark_master: SparkMaster = "local[*]",
    html: Annotated[bool, typer.Option("--html/--no-html", help="Write report.html into the run folder.")] = True,
    as_json: AsJson = False,
    quiet: Quiet = False,
) -> int:
    """Run a scenario against one broker and judge it.

    A scenario with repetitions is run that often; the worst verdict decides, and --json prints an object a line then.
    Exit code: 0 pass, 10 an expectation failed, 6 void (the measurement cannot be trusted), 5 the broker failed.
    """
    loaded = load_scenario(scenario, overrides, scale)
    require_trust([broker], profile, trusted=trust)
    request = RunRequest(
        loaded=loaded,
        broker=broker,
        seed=loaded.scenario.seed if seed is None else seed,
        runs=runs,
        profile=profile,
        processes=processes,
        tags=parse_tags(tags),
        capture=parse_limits(snap, capture_limit) if capture else None,
        accounts=parse_accounts(prometheus, metrics, sar),
    )
    codes = []
    folder: RunFolder | None = None
    events = expected_events(build_plan(loaded.scenario, request.seed))
    # Spark wakes up at idle priority while broker and devices get ready, so that the verdict follows the last message.
    with (
        signals.keeping(lambda: kept_in(folder) or "nothing was measured"),
        RunProgress(quiet=quiet or as_json) as progress,
        start_analyst(spark_master, events, runs) as analyst,
    ):
        for repetition in range(1, loaded.scenario.repetitions + 1):
            times = f", {repetition} of {loaded.scenario.repetitions}" if loaded.scenario.repetitions > 1 else ""
            progress.begin(f"{loaded.title} on {broker}{times}")
            folder = conduct(request, progress, analyst)
            conclusion = conclude(folder, analyst, progress, html=html)
            analyst.rest()
            progress.pause()
            codes.append(tell(conclusion, as_json=as_json, one_of_several=loaded.scenario.repetitions > 1))
            progress.resume()
            if codes[-1] is ExitCode.INTERRUPTED or signals.interrupted():
                break
    return worst(codes)
