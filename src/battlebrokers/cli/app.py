"""`bb`: the verbs and what the shell is told when one of them fails."""

from __future__ import annotations

import os
import sys

import typer
from typer.exceptions import TyperException

from battlebrokers import __version__, leftovers, signals
from battlebrokers.cli.analyze import analyze
from battlebrokers.cli.battle import battle
from battlebrokers.cli.brokers import brokers_app
from battlebrokers.cli.capture import capture
from battlebrokers.cli.check import check
from battlebrokers.cli.compare import compare
from battlebrokers.cli.doctor import doctor
from battlebrokers.cli.list_runs import list_runs
from battlebrokers.cli.pcap import pcap
from battlebrokers.cli.report import report
from battlebrokers.cli.run import run
from battlebrokers.cli.schema import schema
from battlebrokers.cli.sdn import sdn_app
from battlebrokers.cli.trace import explain, trace
from battlebrokers.errors import BattleError, ExitCode
from battlebrokers.output import complain, echo, print_errors_visibly

app = typer.Typer(
    name="bb",
    help="Which message broker fits my IoT load, how much can it take, and what holds it back?",
    no_args_is_help=True,
    add_completion=True,
    rich_markup_mode="rich",
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
app.command("check")(check)
app.command("run")(run)
app.command("battle")(battle)
app.command("capture")(capture)
app.command("analyze")(analyze)
app.command("pcap")(pcap)
app.command("trace")(trace)
app.command("explain")(explain)
app.command("list")(list_runs)
app.command("report")(report)
app.command("compare")(compare)
app.add_typer(brokers_app, name="brokers")
app.add_typer(sdn_app, name="sdn")
app.command("doctor")(doctor)
app.command("schema")(schema)


def _print_version(wanted: bool) -> None:
    if wanted:
        echo(f"bb {__version__}")
        raise typer.Exit


@app.callback()
def _root(
    version: bool = typer.Option(False, "--version", callback=_print_version, is_eager=True, help="Print the version."),
) -> None:
    """Which message broker fits my IoT load, how much can it take, and what holds it back?"""


def run_command_line() -> None:
    """Run what was typed; every failure ends in one clear message and its exit code."""
    print_errors_visibly()
    try:
        code = _called()
    except BattleError as error:
        echo(f"error: {error.message}", err=True)
        if error.hint:
            echo(f"hint: {error.hint}", err=True)
        sys.exit(error.exit_code)
    except TyperException as error:
        _show_usage(error)
        sys.exit(ExitCode.USAGE)
    except (KeyboardInterrupt, typer.Abort):
        kept = signals.kept()
        echo(f"interrupted: {kept}" if kept else "interrupted", err=True)
        sys.exit(ExitCode.INTERRUPTED)
    except BrokenPipeError:
        # The reader of our output has gone (`bb list | head`): nothing is wrong.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(ExitCode.PASS)
    except SystemExit as ended:
        # The libraries beneath take a reader that has gone for a failure of theirs.
        if isinstance(ended.__context__, BrokenPipeError):
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            sys.exit(ExitCode.PASS)
        raise
    except OSError as error:
        echo(f"error: {error.strerror or error}{f': {error.filename}' if error.filename else ''}", err=True)
        _trace(error)
        sys.exit(ExitCode.ENVIRONMENT)
    except Exception as error:  # noqa: BLE001 - the last resort: no user ever meets a bare traceback
        echo(f"error: this is our bug: {type(error).__name__}: {error}", err=True)
        echo("hint: run again with BB_DEBUG=1 and send us what it prints.", err=True)
        _trace(error)
        sys.exit(ExitCode.BUG)
    sys.exit(code if isinstance(code, int) else ExitCode.PASS)


def _called() -> object:
    try:
        return app(standalone_mode=False)
    finally:
        # What breaks because everything is being ended is no failure to tell of.
        leftovers.await_end()


def _show_usage(error: TyperException) -> None:
    """The usage line and what is wrong with the call; what was typed may hold anything."""
    context = getattr(error, "ctx", None)
    if context is not None:
        echo(f"{context.get_usage()}\nTry '{context.command_path} --help' for help.\n", err=True)
    echo(f"error: {error.format_message()}", err=True)


def _trace(error: BaseException) -> None:
    if os.environ.get("BB_DEBUG"):
        complain(error)
