from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs

import pytest

from battlebrokers.clock import SECOND_NS
from battlebrokers.errors import UsageError
from battlebrokers.record.exporters import MEASURED_COLUMNS, queries_of
from battlebrokers.record.prometheus import Unanswered, check_url, observe, parse_answer, parse_metric
from battlebrokers.tables import RESOURCES

START_S = 1_700_000_000


class Server(ThreadingHTTPServer):
    """Speaks the documented part of Prometheus' HTTP API: /api/v1/query_range."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.asked: list[dict[str, str]] = []
        self.values: dict[str, list[dict[int, str]]] = {}
        self.url = f"http://127.0.0.1:{self.server_port}"


class _Handler(BaseHTTPRequestHandler):
    server: Server

    def do_POST(self) -> None:
        length = int(self.headers["Content-Length"])
        form = {key: values[0] for key, values in parse_qs(self.rfile.read(length).decode()).items()}
        self.server.asked.append({**form, "path": self.path, "auth": self.headers.get("Authorization", "")})
        start, end, step = (int(form[key]) for key in ("start", "end", "step"))
        if (end - start) / step > 11_000:
            self._answer(400, {"status": "error", "errorType": "bad_data", "error": "exceeded maximum resolution"})
        elif form["query"] == "broken(":
            self._answer(400, {"status": "error", "errorType": "bad_data", "error": "parse error: unclosed left paren"})
        else:
            series = [
                {"metric": {"n": str(number)}, "values": [[at, text] for at, text in one.items() if start <= at <= end]}
                for number, one in enumerate(self.server.values.get(form["query"], []))
            ]
            self._answer(200, {"status": "success", "data": {"resultType": "matrix", "result": series}})

    def _answer(self, code: int, told: Any) -> None:
        content = json.dumps(told).encode()
        self.send_response(code)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - its name there
        pass


@pytest.fixture
def server() -> Iterator[Server]:
    with Server() as running:
        thread = threading.Thread(target=running.serve_forever, args=(0.01,))
        thread.start()
        yield running
        running.shutdown()
        thread.join()


def ask(
    server_url: str, queries: dict[str, dict[str, str]], seconds: int = 2
) -> tuple[list[dict[str, Any]], list[str]]:
    said: list[str] = []
    rows = observe(server_url, queries, START_S * SECOND_NS, (START_S + seconds) * SECOND_NS, said.append)
    return [dict(zip(RESOURCES.column_names, row, strict=True)) for row in rows], said


def test_values_become_rows_and_what_is_not_told_is_null(server: Server) -> None:
    server.values = {
        "cpu": [{START_S: "12.5", START_S + 1: "13"}],
        "memory": [{START_S + 1: "1000"}, {START_S + 1: "24.4"}],
    }
    rows, said = ask(server.url, {"broker": {"cpu_percent": "cpu", "rss_bytes": "memory"}})
    assert [(row["cpu_percent"], row["rss_bytes"]) for row in rows] == [(12.5, None), (13.0, 1024)]
    assert {row["service"] for row in rows} == {"broker"}
    assert {row["role"] for row in rows} == {"observed"}
    assert rows[0]["sampled_ns"] == START_S * SECOND_NS
    assert rows[0]["threads"] is None
    assert said == []
    assert server.asked[0]["path"] == "/api/v1/query_range"
    assert server.asked[0]["step"] == "1"


def test_long_runs_are_asked_in_pieces_the_server_accepts(server: Server) -> None:
    server.values = {"up": [{START_S: "1", START_S + 24_999: "2"}]}
    rows, said = ask(server.url, {"a": {"processes": "up"}}, seconds=25_000)
    assert [row["processes"] for row in rows] == [1, 2]
    assert said == []
    assert len(server.asked) == 3


def test_a_wrong_query_is_told_with_the_servers_words_and_the_others_go_on(server: Server) -> None:
    server.values = {"cpu": [{START_S: "1"}]}
    rows, said = ask(server.url, {"a": {"rss_bytes": "broken(", "cpu_percent": "cpu"}})
    assert len(rows) == 1
    assert said == ["rss_bytes of a is not known: Prometheus: parse error: unclosed left paren"]


def test_a_server_that_knows_nothing_is_told(server: Server) -> None:
    rows, said = ask(server.url, {"a": {"rss_bytes": "nobody"}})
    assert rows == []
    assert said == ["Prometheus knows nothing of a between start and end of the run"]


def test_a_server_that_is_not_there_is_told_once() -> None:
    rows, said = ask("http://127.0.0.1:1", {"a": {"rss_bytes": "x", "threads": "y"}, "b": {"threads": "z"}})
    assert rows == []
    assert len(said) == 1
    assert said[0].startswith("Prometheus is not asked: 127.0.0.1:1 does not answer")


def test_a_user_and_a_path_in_the_url_are_used(server: Server) -> None:
    ask(server.url.replace("http://", "http://me:secret@") + "/prom", {"a": {"threads": "x"}})
    assert server.asked[0]["path"] == "/prom/api/v1/query_range"
    assert server.asked[0]["auth"] == "Basic bWU6c2VjcmV0"


def test_what_is_no_number_is_left_out() -> None:
    told = {"status": "success", "data": {"result": [{"values": [[1, "NaN"], [2, "+Inf"], [3.25, "4"]]}]}}
    assert parse_answer(json.dumps(told).encode()) == {3_250_000_000: 4.0}


TORN = b'{"status":"success","data":{"result":[{"values":[[1]]}]}}'


@pytest.mark.parametrize("told", [b"", b"<html>", b"[]", b"{}", b'{"status":"success"}', TORN])
def test_answers_of_somebody_else_are_refused(told: bytes) -> None:
    with pytest.raises(Unanswered):
        parse_answer(told)


def test_exporters_are_asked_for_the_labels_given_and_own_queries_win() -> None:
    queries = queries_of("cadvisor", {"name": 'a"b', "id": "/x"}, {"rss_bytes": "mine"})
    assert queries["cpu_percent"] == ('100 * sum(irate(container_cpu_usage_seconds_total{id="/x", name="a\\"b"}[1m]))')
    assert queries["rss_bytes"] == "mine"
    assert queries_of(None, {}, {"threads": "t"}) == {"threads": "t"}
    for exporter in ("cadvisor", "rabbitmq", "process"):
        assert set(queries_of(exporter, {}, {})) <= set(MEASURED_COLUMNS)  # type: ignore[arg-type]


def test_metrics_of_the_command_line_name_service_and_column() -> None:
    assert parse_metric('a.b.rss_bytes=x{y="z"}') == ("a.b", "rss_bytes", 'x{y="z"}')


@pytest.mark.parametrize("text", ["", "rss_bytes=x", "a.rss=x", "a.rss_bytes", "a.rss_bytes=", ".rss_bytes=x"])
def test_metrics_that_make_no_sense_are_refused(text: str) -> None:
    with pytest.raises(UsageError):
        parse_metric(text)


@pytest.mark.parametrize("url", ["", "localhost:9090", "ftp://x", "http://"])
def test_only_http_servers_are_asked(url: str) -> None:
    with pytest.raises(UsageError):
        check_url(url)
    assert check_url("http://localhost:9090/") == "http://localhost:9090"
