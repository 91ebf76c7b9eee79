from __future__ import annotations

import json

from battlebrokers.analysis.conclusion import conclude
from battlebrokers.cli.conclusion import tell
from support.made_up_runs import make_run

__all__ = ["make_run"]


def test_one_run_is_an_indented_object_and_the_file_itself(make_run, capsys):
    conclusion = conclude(make_run().healthy().write())
    tell(conclusion, as_json=True)
    out = capsys.readouterr().out
    assert out == conclusion.folder.summary_path.read_text()
    assert out.startswith('{\n  "format": 1,')


def test_several_runs_are_an_object_a_line(make_run, capsys):
    runs = [conclude(make_run(run=name).healthy().write()) for name in ("first", "again")]
    for conclusion in runs:
        tell(conclusion, as_json=True, one_of_several=True)
    told = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert told == [json.loads(conclusion.folder.summary_path.read_text()) for conclusion in runs]
