"""`bb battle`: one scenario against several brokers, interleaved and repeated, to a ranking."""

from __future__ import annotations

import random
import secrets
from typing import Annotated

import typer

from battlebrokers import signals
from battlebrokers.analysis.model import Summary
from battlebrokers.analysis.ranking import rank
from battlebrokers.analysis.verdict import exit_code
from battlebrokers.cli.conclusion import conclude, worst
from battlebrokers.cli.conduct import conduct, expected_events, start_analyst
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
from battlebrokers.errors import BattleError, ContenderError, ExitCode, Interrupted, UsageError
from battlebrokers.output import PlainConsole, echo, echo_json
from battlebrokers.report.battle import print_battle
from battlebrokers.report.export import ranking_json
from battlebrokers.report.html import write_report
from battlebrokers.run.fitness import refuse_what_cannot_be_honoured
from battlebrokers.run.orchestrator import RunRequest
from battlebrokers.scenario.plan import build_plan
from battlebrokers.scenario.reader import load_scenario
from battlebrokers.tables.manifest import BattleFacts
from battlebrokers.tables.run_folder import RunFolder


def battle(
    scenario: Annotated[str, typer.Argument(help="A shipped scenario's name or a YAML file.")],
    brokers: Annotated[list[str], typer.Argument(help="Contenders' names or URLs; naming one twice shows the noise.")],
    repeat: Annotated[
        int,
        typer.Option(
            "--repeat",
            "-n",
            min=0,
            help="Blocks, each with every broker once; 0 = as the scenario says. From 6 on with confidence.",
        ),
    ] = 0,
    profile: Profile = "tuned",
    overrides: Overrides = [],  # noqa: B006
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
    strict: Annotated[bool, typer.Option("--strict", help="Exit with the worst verdict of any run.")] = False,
    as_json: AsJson = False,
    quiet: Quiet = False,
) -> int:
    """Let brokers fight over one scenario and rank them.

    In each block every broker runs once, in an order drawn by lot, so that a machine's moods hit all alike.
    A broker that does not come up misses its round, and the others go on.
    Exit code 0: the battle was fought and ranked; 5: a broker never came up, or all failed; 6: every run was void.
    With --strict the worst verdict of any run decides.
    """
    loaded = load_scenario(scenario, overrides, scale)
    if len(brokers) < 2:
        raise UsageError("a battle needs at least two brokers", hint="`bb run` measures one; `bb brokers` lists all.")
    require_trust(brokers, profile, trusted=trust)
    for broker in brokers:
        refuse_what_cannot_be_honoured(loaded.scenario, broker)
    limits = parse_limits(snap, capture_limit) if capture else None
    accounts = parse_accounts(prometheus, metrics, sar)
    blocks = repeat or loaded.scenario.repetitions
    plan_seed = loaded.scenario.seed if seed is None else seed
    lots = random.Random(plan_seed)
    battle_id = secrets.token_hex(4)
    fought: list[tuple[RunFolder, Summary]] = []
    came: set[str] = set()
    missed: dict[str, BattleError] = {}
    interrupted = False
    events = expected_events(build_plan(loaded.scenario, plan_seed))

    def kept() -> str:
        if not fought:
            return "nothing was measured"
        return f"{len(fought)} runs are kept in {runs}: `bb report {battle_id} --runs {runs}` ranks them"

    with (
        signals.keeping(kept),
        RunProgress(quiet=quiet or as_json) as progress,
        start_analyst(spark_master, events, runs) as analyst,
    ):
        for block in range(blocks):
            for order, broker in enumerate(lots.sample(brokers, len(brokers))):
                progress.begin(f"{loaded.title} on {broker}, round {block + 1} of {blocks}")
                request = RunRequest(
                    loaded, broker, plan_seed, runs, profile, processes, parse_tags(tags),
                    BattleFacts(battle_id, block, order), capture=limits, accounts=accounts,
                )  # fmt: skip
                try:
                    folder = conduct(request, progress, analyst)
                    summary = conclude(folder, analyst, progress, html=True).summary
                except ContenderError as error:
                    # One broker that does not come up costs the others nothing that was measured.
                    missed[broker] = error
                    progress.warn(f"{broker} missed round {block + 1}: {error.message}")
                    continue
                except Interrupted as error:
                    missed[broker] = error
                    progress.warn(error.message)
                    interrupted = True
                    break
                except BattleError as error:
                    # Ours, not the broker's: it would hit the next run as well. What was fought stays a battle.
                    if fought:
                        error.hint = (
                            f"{error.hint} `bb report {battle_id} --runs {runs}` ranks what was fought.".strip()
                        )
                    raise
                analyst.rest()
                fought.append((folder, summary))
                came.add(broker)
                why = f": {summary.reasons[0]}" if summary.reasons else ""
                progress.say(f"{summary.verdict}  {loaded.title} on {broker}{why}")
                if folder.read_manifest().state == "interrupted" or signals.interrupted():
                    interrupted = True
                    break
            if interrupted:
                break
        if not fought:
            raise next(iter(missed.values()))
        report = runs / f"battle-{battle_id}.html"
        write_report([folder for folder, _ in fought], report)
    ranking = rank([summary for _, summary in fought])
    if as_json:
        echo_json(ranking_json(ranking, battle_id, report))
    else:
        print_battle(PlainConsole(), ranking)
        echo(f"  report: {report}")
    if interrupted:
        return ExitCode.INTERRUPTED
    codes = [exit_code(summary) for _, summary in fought]
    if strict:
        return worst(codes)
    if missed.keys() - came or all(code is ExitCode.BROKER_FAILED for code in codes):
        return ExitCode.BROKER_FAILED
    return ExitCode.VOID if all(code is ExitCode.VOID for code in codes) else ExitCode.PASS
