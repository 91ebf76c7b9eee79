from __future__ import annotations

from pathlib import Path

import pytest

from battlebrokers.cli.options import parse_accounts
from battlebrokers.contenders.reader import SPECS, parse_contender
from battlebrokers.errors import InputError, UsageError
from battlebrokers.run.observing import Accounts, all_queries, write_observed

MOSQUITTO = (SPECS / "mosquitto.yaml").read_text()


def services(metrics: str):
    text = MOSQUITTO.replace('{mosquitto: ["*"]}', f'{{mosquitto: {{processes: ["*"], metrics: {metrics}}}}}')
    return parse_contender(text, "mine.yaml").services


def test_queries_of_the_file_and_of_the_command_line_are_put_together() -> None:
    described = services("{exporter: process, labels: {job: broker}, queries: {threads: t}}")
    found = all_queries({"mosquitto": {"rss_bytes": "r"}, "redis": {"threads": "x"}}, described)
    assert found["mosquitto@prometheus"]["open_files"] == 'sum(process_open_fds{job="broker"})'
    assert found["mosquitto@prometheus"]["rss_bytes"] == "r"
    assert found["mosquitto@prometheus"]["threads"] == "t"
    assert found["redis@prometheus"] == {"threads": "x"}


@pytest.mark.parametrize("metrics", ["{}", "{exporter: nagios}", "{queries: {rss: x}}", "{labels: {a: b}}"])
def test_metrics_that_make_no_sense_are_refused(metrics: str) -> None:
    with pytest.raises(InputError):
        services(metrics)


def test_a_server_with_nothing_to_ask_is_told(tmp_path: Path) -> None:
    said: list[str] = []
    write_observed(Accounts("http://127.0.0.1:1"), {}, tmp_path, (0, 1), said.append)
    assert said == ["Prometheus is not asked: neither the contender's file nor --metric says what to ask for"]


def test_a_file_that_is_not_there_is_told_and_nothing_more(tmp_path: Path) -> None:
    said: list[str] = []
    write_observed(Accounts(sar=(tmp_path / "sa99",)), {}, tmp_path, (0, 1), said.append)
    assert len(said) == 1
    assert "sa99 cannot be read" in said[0]


def test_metrics_need_a_server() -> None:
    with pytest.raises(UsageError, match="needs a server"):
        parse_accounts("", ["a.threads=x"], [])
