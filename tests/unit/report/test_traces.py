"""Followed messages in the terminal."""

from __future__ import annotations

import io

from rich.console import Console

from battlebrokers.analysis.examples import read_examples
from battlebrokers.analysis.explanation import explain
from battlebrokers.analysis.traces import Lost, Traces
from battlebrokers.report.traces import print_explanation, print_lost, print_slowest
from support.wires import Wires, small_system


def printed(show, *told):
    sink = io.StringIO()
    show(Console(file=sink, width=200, highlight=False), *told)
    return sink.getvalue()


def test_the_slowest_are_told_with_how_many_were_followed(tmp_path):
    traces = Traces(small_system().write(tmp_path))
    text = printed(print_slowest, traces.slowest(2), len(traces))
    assert text.splitlines()[0] == "  100 messages followed; the 2 slowest:"
    assert text.count("  message ") == 2
    assert "30.2 ms inside redis" in text


def test_lost_messages_say_where_they_were_last_seen_and_how_many_there_are(tmp_path):
    traces = Traces(small_system().write(tmp_path))
    lines = printed(print_lost, traces.lost(20), len(traces)).splitlines()
    assert lines[-2] == "    last seen going to redis"
    assert lines[-1] == "  1 message lost, 1 of them seen on a wire."


def test_lost_messages_that_no_wire_saw_are_not_kept_quiet():
    assert "3 messages lost, 0 of them seen on a wire." in printed(print_lost, Lost(3, 0, ()), 50)


def test_when_nothing_was_lost_that_is_said(tmp_path):
    assert "No message was lost on its way; 50 messages followed." in printed(print_lost, Lost(0, 0, ()), 50)


def test_when_nothing_could_be_followed_the_reason_is_given(tmp_path):
    folder = Wires().write(tmp_path)
    traces = Traces(folder)
    assert "No message was seen on two wires" in printed(print_slowest, traces.slowest(2), len(traces))
    assert "No message was seen on two wires" in printed(print_explanation, explain(read_examples(folder)))


def test_an_explanation_lists_the_services_under_their_headings(tmp_path):
    lines = printed(print_explanation, explain(read_examples(small_system(400).write(tmp_path)))).splitlines()
    head = next(line for line in lines if "time inside" in line)
    (redis,) = [line for line in lines if line.strip().startswith("redis  ")]
    assert head.index("slowest hundredth") + len("slowest hundredth") == redis.index(" %") + 2
    assert head.rstrip().endswith("faster half")
    assert len(head.rstrip()) == len(redis.rstrip())
    assert lines[-1].endswith("30.2 ms of it inside redis")
