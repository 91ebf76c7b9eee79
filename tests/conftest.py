"""What every test may use: a free port, a run folder, brokers or a reason to skip; and nothing may be left running."""

from __future__ import annotations

import gc
import os
import subprocess
import uuid
from collections import Counter
from collections.abc import Callable, Generator, Iterator
from pathlib import Path

import psutil
import pytest
from hypothesis import settings

from battlebrokers.contenders.availability import Missing, availability
from battlebrokers.contenders.reader import find_contender
from battlebrokers.sdn.lab.open_vswitch import what_is_missing
from battlebrokers.secrets import forget_all
from battlebrokers.tables.run_folder import RunFolder
from support.ports import free_port as find_free_port
from support.steadiness import Failure, append_failure, without_group

# Ended by whoever started them when this process exits, or meant to outlive it by their makers.
MAY_STAY = ("pyspark-shell", "multiprocessing.resource_tracker", "multiprocessing.forkserver", "epmd")

# A slow machine is no failure: no example has a deadline. `fast` tries a quarter of the examples (support/examples.py).
settings.register_profile("thorough", deadline=None)
settings.register_profile("fast", deadline=None, max_examples=8)
settings.load_profile("thorough")


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Look for garbage neither while modules are read, as nearly all they make stays, nor ever in what they made."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()


def pytest_configure(config: pytest.Config) -> None:
    """Where networks can be built they have to be: then nothing about them is left out for want of a package."""
    record_to = config.getoption("--record-failures")
    if record_to is not None and not hasattr(config, "workerinput"):
        config.pluginmanager.register(_FailureRecorder(record_to))
    missing = what_is_missing() if os.environ.get("BB_REQUIRE_NETWORK") else None
    if missing is not None:
        raise pytest.UsageError(f"BB_REQUIRE_NETWORK is set, but {missing.message} ({missing.hint})")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--alone", choices=("only", "never"), help="run nothing but the tests marked `alone`, or all others"
    )
    parser.addoption("--record-failures", metavar="FILE", type=Path, help="append each failure to FILE, a line of JSON")


class _FailureRecorder:
    """Writes down what fails, also what failed while tests were read; xdist's own processes report to the first one."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.failed:
            failure = Failure(without_group(report.nodeid), report.when or "call", report.longreprtext)
            append_failure(self._path, failure)

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        if report.failed:
            append_failure(self._path, Failure(report.nodeid, "collect", report.longreprtext))


@pytest.hookimpl(wrapper=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> Generator[None, None, None]:
    """Pick those that run alone or all others; send those that share something costly to one xdist worker."""
    if wanted := config.getoption("--alone"):
        is_wanted = {item: (item.get_closest_marker("alone") is not None) == (wanted == "only") for item in items}
        config.hook.pytest_deselected(items=[item for item in items if not is_wanted[item]])
        items[:] = [item for item in items if is_wanted[item]]
    for item in items:
        if shared := _shared(item):
            item.add_marker(pytest.mark.xdist_group(shared))
    yield
    if config.getoption("loadgroup", False):
        _name_groups(items)


def _name_groups(items: list[pytest.Item]) -> None:
    """Do what pytest-xdist 3.8 means to do: it writes the group into a field that pytest 9.2 no longer reads.

    Without the group in a test's id every process starts its own Spark and its own brokers, and nothing says so;
    tests/unit/test_spreading.py does.
    """
    for item in items:
        groups = sorted({str(mark.args[0]) for mark in item.iter_markers("xdist_group")})
        # Whatever else it shares: there is one network at a time.
        ending = "@network" if "network" in groups else f"@{'_'.join(groups)}"
        if groups and not item.nodeid.endswith(ending):
            item._id = type(item._id).parse(item.nodeid + ending)


def _shared(item: pytest.Item) -> str | None:
    """What this test shares with others of its folder: a Spark session, an analyst, or names in the network."""
    for costly in ("spark", "analyst"):
        if costly in getattr(item, "fixturenames", ()):
            return f"{costly} of {item.path.parent.name}"
    # Their interfaces and switches have names of their own, but all of them the same ones, and some look for leftovers.
    given = getattr(getattr(item, "callspec", None), "params", {}).values()
    of_the_network = any(isinstance(one, str) and one.startswith("sdn") for one in given)
    return "network" if of_the_network or item.path.name.startswith("test_network_") else None


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Say what was not tested here, and why."""
    reasons = Counter(_skip_reason(report) for report in terminalreporter.getreports("skipped"))
    if reasons:
        terminalreporter.section("not tested here, and why")
    for reason, count in reasons.most_common():
        terminalreporter.write_line(f"{count:4} skipped: {reason}")


def _skip_reason(report: pytest.TestReport | pytest.CollectReport) -> str:
    reason = report.longrepr[2] if isinstance(report.longrepr, tuple) else str(report.longrepr)
    return reason.removeprefix("Skipped: ")


@pytest.fixture(autouse=True)
def _no_known_secrets() -> Iterator[None]:
    """What one test plants is not masked in the texts of the next."""
    yield
    forget_all()


@pytest.fixture(scope="session", autouse=True)
def nothing_left_running() -> Iterator[None]:
    """Fail the session if a process started by a test outlives it, also one whose parent is gone."""
    mark = f"BB_TEST_SESSION_{uuid.uuid4().hex}"
    os.environ[mark] = "1"
    yield
    started = {*psutil.Process().children(recursive=True), *_marked(mark)}
    left = [process for process in started if not _may_stay(process)]
    _, alive = psutil.wait_procs(left, timeout=60)
    lines = [f"{process.pid} {_command(process)}" for process in alive]
    for process in alive:
        process.kill()
    if lines:
        pytest.fail("processes left running by tests (now killed):\n" + "\n".join(lines), pytrace=False)


def _marked(mark: str) -> Iterator[psutil.Process]:
    for process in psutil.process_iter():
        try:
            if process.pid != os.getpid() and mark in process.environ():
                yield process
        except psutil.Error:
            continue


def _may_stay(process: psutil.Process) -> bool:
    try:
        family = [process, *process.parents()]
    except psutil.Error:
        return True
    return any(name in _command(member) for member in family if member.pid != os.getpid() for name in MAY_STAY)


def _command(process: psutil.Process) -> str:
    try:
        return subprocess.list2cmdline(process.cmdline())[:300]
    except psutil.Error:
        return "(gone)"


@pytest.fixture
def free_port() -> int:
    """A port of the loopback interface that nobody listens on."""
    return find_free_port()


@pytest.fixture
def run_folder(tmp_path: Path) -> RunFolder:
    """An empty run folder."""
    path = tmp_path / "run"
    path.mkdir()
    return RunFolder(path)


@pytest.fixture
def require_broker() -> Callable[[str], str]:
    """A function that returns the path of a broker's program, or skips the test with what to install."""

    def require(name: str) -> str:
        state = availability(find_contender(name))
        if isinstance(state, Missing):
            pytest.skip(f"{name} cannot run here: {state.what} ({state.hint})")
        return state.path

    return require
