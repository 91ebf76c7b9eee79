"""A manifest that no run can have written is refused by every reader, with little memory and in little time."""

from __future__ import annotations

import json
import os
import resource
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from battlebrokers.analysis.conclusion import draw_conclusion
from battlebrokers.clock import SECOND_NS
from battlebrokers.errors import ExitCode, RunFolderError
from battlebrokers.processes import own_identity
from battlebrokers.tables import RESOURCES, TIMELINE
from battlebrokers.tables.manifest import BattleFacts, CaptureFacts, Phase
from battlebrokers.tables.manifest_checks import decode_manifest, mistakes_in
from support.made_up_runs import START_NS, MadeUpRun

TESTS = Path(__file__).parents[2]


def _with_everything(make_run: Callable[..., MadeUpRun]) -> MadeUpRun:
    """A run whose manifest has every part there is."""
    run = make_run(
        run="whole", expect=["lost == 0"], tick_ns=4_000_000,
        counters={"sent": 3000, "received": 3000, "reconnects": 1}, process=own_identity(),
        settings={"devices": 10, "clients": 2, "drain_s": 3.0, "quiet_s": 2.0, "lowered_qos": {}, "processes": 1},
        battle=BattleFacts("b1", 0, 1), resolved={"fleets": {"air": {"count": 10, "every": "1s"}}, "clients": {}},
        captures=[CaptureFacts("broker", files=[], snap_bytes=0, started_ns=START_NS, packets=5, dropped=0)],
    )  # fmt: skip
    return run.healthy()


def test_crafted_manifests_are_told_or_refused_by_every_reader_in_bounded_memory_and_time(
    make_run: Callable[..., MadeUpRun],
) -> None:
    folder = _with_everything(make_run).write()
    other = make_run(run="other").healthy().write()
    done = subprocess.run(
        [sys.executable, "-m", "support.crafted_manifests", str(folder.path), str(other.path)],
        capture_output=True, text=True, timeout=280, check=False, env={**os.environ, "PYTHONPATH": str(TESTS)},
    )  # fmt: skip
    answers = dict(json.loads(line) for line in done.stdout.splitlines())
    assert done.returncode == 0, f"after {len(answers)}, {list(answers)[-1:]}: {done.stderr[-3000:]}"
    refused = {name for name, answer in answers.items() if answer == "refused"}
    for place in ("('started_ns',)", "('finished_ns',)", "('phases', 0, 'start_ns')", "('phases', 2, 'end_ns')"):
        assert {f"{place} = {value}" for value in (10**18, -(10**18), 0, "nan")} <= refused
    for name in (
        "all phases from zero", "phases backwards", "all moved by 100000000000000000", "captures elsewhere",
        "100 000 phases", "100 000 workers", "('workers', 0, 'counters', 'received') = 1000000000000000000",
        "('settings', 'quiet_s') = 1e+308", "('battle', 'block') = 1000000000000000000",
    ):  # fmt: skip
        assert name in refused, name


def test_an_impossible_manifest_is_refused_with_every_reason_and_the_file(make_run: Callable[..., MadeUpRun]) -> None:
    run = make_run(run="bad")
    run.started_ns = 0
    folder = run.healthy().write()
    with pytest.raises(RunFolderError, match=r"manifest\.json is invalid: started_ns is 0") as caught:
        folder.read_manifest()
    assert caught.value.hint


def test_a_run_as_it_is_written_has_no_mistakes(make_run: Callable[..., MadeUpRun]) -> None:
    assert list(mistakes_in(_with_everything(make_run).manifest())) == []


def test_a_run_that_was_killed_in_any_phase_has_no_mistakes(make_run: Callable[..., MadeUpRun]) -> None:
    made = make_run(run="killed")
    for count in range(6):
        manifest = made.manifest()
        manifest.finished_ns = None
        manifest.phases = manifest.phases[:count]
        if manifest.phases:
            last = manifest.phases[-1]
            manifest.phases[-1] = Phase(last.name, last.start_ns, 0)
        assert list(mistakes_in(manifest)) == []


def test_a_run_that_broke_off_before_its_planned_end_has_no_mistakes(make_run: Callable[..., MadeUpRun]) -> None:
    manifest = make_run(run="early").manifest()
    last = manifest.phases[-1]
    manifest.phases[-1] = Phase(last.name, last.start_ns, last.start_ns - SECOND_NS)
    manifest.finished_ns = last.start_ns - SECOND_NS
    assert list(mistakes_in(manifest)) == []


def test_bytes_that_are_no_manifest_are_damaged(make_run: Callable[..., MadeUpRun]) -> None:
    make_run(run="any")
    for raw in (b"", b"{", b"[]", b'{"run": 1}', b'{"a":' * 200_000):
        with pytest.raises(RunFolderError, match="here is damaged"):
            decode_manifest(raw, "here")


def test_a_named_pipe_in_place_of_a_manifest_is_no_endless_wait(make_run: Callable[..., MadeUpRun]) -> None:
    folder = make_run(run="pipe").healthy().write()
    folder.manifest_path.unlink()
    os.mkfifo(folder.manifest_path)
    with pytest.raises(RunFolderError, match="no ordinary file"):
        folder.read_manifest()


@pytest.mark.parametrize("second", [-2_000_000_000, 2_000_000_000])
def test_a_timeline_of_another_time_than_the_run_is_refused(make_run: Callable[..., MadeUpRun], second: int) -> None:
    run = make_run(run="line").healthy()
    run.moment(second, "measure", "deliver", "app", 1, (1, 1), 0, 0)
    with pytest.raises(RunFolderError, match=r"invalid: timeline: seconds") as caught:
        draw_conclusion(run.write())
    assert "bb analyze" in caught.value.hint


def test_measures_with_counts_that_no_run_reaches_are_refused(make_run: Callable[..., MadeUpRun]) -> None:
    run = make_run(run="count").healthy()
    run.rows[TIMELINE.name][0]["messages"] = 10**18
    with pytest.raises(RunFolderError, match="messages from"):
        draw_conclusion(run.write())


def test_samples_of_another_time_do_not_stretch_the_charts(make_run: Callable[..., MadeUpRun]) -> None:
    run = make_run(run="sample").lifelike()
    stray = {**run.rows[RESOURCES.name][0], "sampled_ns": 10**18}
    before = len(run.rows[RESOURCES.name])
    run.add(RESOURCES, **stray)
    assert draw_conclusion(run.write()).facts.resources.num_rows == before


def test_a_table_that_claims_more_rows_than_any_run_has_is_not_read(make_run: Callable[..., MadeUpRun]) -> None:
    folder = make_run(run="rows").healthy().write()
    rows = pa.RecordBatch.from_pydict({"n": pa.array([0] * 1_000_000, pa.int64())})
    with pq.ParquetWriter(folder.table(TIMELINE) / "part-00001.parquet", rows.schema) as writer:
        for _ in range(21):
            writer.write_batch(rows)
    with pytest.raises(RunFolderError, match="21000000 rows, more than"):
        draw_conclusion(folder)


@pytest.mark.parametrize("command", [["report"], ["report", "--json"], ["compare", "other"], ["analyze"]])
def test_every_command_refuses_a_crafted_run_by_name_with_exit_code_3(
    make_run: Callable[..., MadeUpRun], command: list[str]
) -> None:
    folder = _with_everything(make_run).write()
    make_run(run="other").healthy().write()
    manifest = json.loads(folder.manifest_path.read_bytes())
    manifest["phases"] = [{**one, "start_ns": -(10**18), "end_ns": 10**18} for one in manifest["phases"]]
    manifest["workers"][0]["counters"]["received"] = 10**18
    manifest["settings"]["devices"] = 10**18
    folder.manifest_path.write_text(json.dumps(manifest))
    limit = (3 << 30, 3 << 30)
    said = subprocess.run(
        [sys.executable, "-m", "battlebrokers.cli.main", *command, "whole", "--runs", str(folder.path.parent)],
        capture_output=True, text=True, check=False, timeout=120,
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_AS, limit),
    )  # fmt: skip
    assert said.returncode == ExitCode.INVALID_INPUT, said.stderr
    assert f"{folder.manifest_path} is invalid" in " ".join(said.stderr.split())
