"""REST of the network broker against whatever anybody sends: described truly, refused in words, never a failure."""

from __future__ import annotations

import http.client
import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from support.runs import start_bb
from support.waiting import until

VERBS = ("get", "post", "put", "patch", "delete")
ROUTES = [
    ("GET", "/api/v1/resources"), ("POST", "/api/v1/resources"), ("GET", "/api/v1/resources/{}"),
    ("PATCH", "/api/v1/resources/{}"), ("DELETE", "/api/v1/resources/{}"), ("POST", "/api/v1/resources/{}/subscribers"),
    ("DELETE", "/api/v1/resources/{}/subscribers/{}"), ("POST", "/api/v1/resources/{}/messages"),
    ("GET", "/api/v1/hosts"), ("DELETE", "/api/v1/hosts/{}"), ("GET", "/api/v1/topology"),
    ("GET", "/api/v1/statistics"),
    ("GET", "/api/v1/switches/{}"), ("DELETE", "/api/v1/switches/{}"),
    ("GET", "/db/resources/json"), ("POST", "/db/resources/json"),
    ("DELETE", "/db/resources/json"), ("GET", "/db/subscribers/{}/json"), ("POST", "/db/subscribers/{}/json"),
    ("DELETE", "/db/subscribers/{}/json"),
]  # fmt: skip


@dataclass(frozen=True)
class Service:
    port: int
    log: Path

    def send(self, method: str, path: str, body: bytes | None = None) -> tuple[int, bytes]:
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=60)
        try:
            connection.request(method, path, body, {"Content-Type": "application/json"})
            answer = connection.getresponse()
            return answer.status, answer.read()
        finally:
            connection.close()

    def ask(self, method: str, path: str, body: object = None) -> tuple[int, Any]:
        status, told = self.send(method, path, None if body is None else json.dumps(body).encode())
        return status, json.loads(told) if told else None


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    folder = tmp_path_factory.mktemp("rest")
    log = folder / "controller.log"
    process = start_bb(
        "sdn", "controller", "--port", "0", "--openflow-port", "0", "--state", str(folder / "state.json"),
        cwd=folder, log=log,
    )  # fmt: skip
    try:
        until(lambda: b"REST" in log.read_bytes(), what="the controller")
        words = log.read_text().split()
        yield Service(int(words[words.index("page:") + 1].rstrip("/").rpartition(":")[2]), log)
    finally:
        process.terminate()
        process.wait(60)


def refs(value: object) -> Iterator[str]:
    if isinstance(value, dict):
        if isinstance(value.get("$ref"), str):
            yield value["$ref"]
        for one in value.values():
            yield from refs(one)
    elif isinstance(value, list):
        for one in value:
            yield from refs(one)


def test_the_description_holds_together_and_names_every_route(service: Service) -> None:
    status, document = service.ask("GET", "/openapi.json")
    assert status == 200
    assert document["openapi"].startswith("3.1")
    assert document["info"]["title"]
    for place in refs(document):
        found: Any = document
        for word in place.removeprefix("#/").split("/"):
            found = found[word]
        assert isinstance(found, dict)
    operations = {
        (verb.upper(), path): one for path, verbs in document["paths"].items() for verb, one in verbs.items()
        if verb in VERBS
    }  # fmt: skip
    identities = [one["operationId"] for one in operations.values()]
    assert len(identities) == len(set(identities))
    for (_, path), one in operations.items():
        wanted = {word[1:-1] for word in path.split("/") if word.startswith("{")}
        assert {given["name"] for given in one.get("parameters", ()) if given["in"] == "path"} == wanted
        assert one.get("summary")
        assert any(status.startswith("2") for status in one["responses"])
        refused = [answer for status, answer in one["responses"].items() if status.startswith("4")]
        assert refused
        assert {next(refs(answer)) for answer in refused} == {"#/components/schemas/Refusal"}
    described = {
        (verb, "/".join("{}" if "{" in word else word for word in path.split("/"))) for verb, path in operations
    }
    assert set(ROUTES) <= described


@pytest.mark.parametrize(
    ("method", "path", "body", "status"),
    [
        ("GET", "/api/v1/resources/1.1.200.200", None, 404),
        ("GET", "/api/v1/resources/nonsense", None, 422),
        ("GET", "/api/v1/switches/77", None, 404),
        ("GET", "/api/v1/switches/seven", None, 422),
        ("GET", "/nowhere", None, 404),
        ("PUT", "/api/v1/resources", None, 405),
        ("POST", "/api/v1/resources", {"mode": "magic"}, 422),
        ("POST", "/api/v1/resources", {"colour": "red"}, 422),
        ("POST", "/api/v1/resources", [], 422),
        ("DELETE", "/db/resources/json", None, 422),
    ],
)
def test_every_refusal_says_what_and_what_to_do(
    service: Service, method: str, path: str, body: object, status: int
) -> None:
    answered, told = service.ask(method, path, body)
    assert answered == status
    assert set(told) == {"message", "hint"}
    assert told["message"]
    assert told["hint"]


def test_refusals_name_the_place_of_the_mistake(service: Service) -> None:
    address = service.ask("POST", "/api/v1/resources")[1]
    assert "message" in address
    created = service.ask("POST", "/api/v1/resources", {"name": "town/only"})[1]["address"]
    status, told = service.ask("POST", "/api/v1/resources", {"name": "town/only"})
    assert (status, told["message"]) == (409, f"resource {created} is called 'town/only' already")
    status, told = service.ask("POST", f"/api/v1/resources/{created}/subscribers", {"mac": "x", "ipv4": "1.1.1.1"})
    assert status == 422
    assert "mac: 'x' is no MAC address" in told["message"]
    assert "ipv4: '1.1.1.1' is in the range of resources" in told["message"]
    status, told = service.ask("POST", f"/api/v1/resources/{created}/messages", {"text": "ü" * 1400})
    assert (status, told["message"]) == (422, "text: 2800 bytes do not fit into one packet: at most 1400")
    status, told = service.ask("POST", f"/api/v1/resources/{created}/messages", {"text": "hello"})
    assert (status, told["message"]) == (503, "no switch is connected")


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(st.characters(), max_size=20),
    lambda inner: (
        st.lists(inner, max_size=4) | st.dictionaries(st.text(st.characters(), max_size=8), inner, max_size=4)
    ),
    max_leaves=8,
)
KEYS = st.sampled_from(
    ["name", "mode", "source", "mac", "ipv4", "text", "port", "resource", "IpAddress", "MACAddress", "MAC"]
)
RIGHT = st.sampled_from(["1.1.1.1", "00:00:00:00:00:01", "10.0.0.1", "tree", 10**40])
BODIES = (
    st.none() | st.binary(max_size=60) | JSON.map(lambda one: json.dumps(one).encode())
    | st.dictionaries(KEYS, JSON | RIGHT, max_size=4).map(lambda one: json.dumps(one).encode())
)  # fmt: skip
WORDS = st.sampled_from(["1.1.1.1", "1.1.1.2", "00:00:00:00:00:01", "1", "-1", "9" * 400, "..", " "]) | st.text(
    st.characters(exclude_categories=("Cs",)), max_size=30
)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None, max_examples=300)
@given(route=st.sampled_from(ROUTES), words=st.tuples(WORDS, WORDS), body=BODIES, query=st.none() | WORDS)
@example(route=("POST", "/api/v1/resources"), words=("", ""), body=b'{"\\ud800": 1}', query=None)
@example(route=("POST", "/api/v1/resources"), words=("", ""), body=b'{"name": "\\ud800"}', query=None)
@example(route=("POST", "/api/v1/resources/{}/messages"), words=("1.1.1.1", ""), body=b'{"port": 1e999}', query=None)
@example(route=("POST", "/api/v1/resources"), words=("", ""), body=b"[" * 50_000, query=None)
@example(route=("POST", "/api/v1/resources"), words=("", ""), body=b"\xff\xfe", query=None)
def test_nothing_anybody_sends_is_a_failure(
    service: Service, route: tuple[str, str], words: tuple[str, str], body: bytes | None, query: str | None
) -> None:
    method, pattern = route
    path = pattern.format(*(quote(word, safe="") or "%20" for word in words))
    path += "" if query is None else f"?name={quote(query, safe='')}"
    status, told = service.send(method, path, body)
    assert status < 500 or status == 503, (status, service.log.read_text()[-3000:])
    if status >= 400:
        refusal = json.loads(told)
        assert set(refusal) == {"message", "hint"}
        assert refusal["message"]
