"""Who may ask the network broker's REST: names, origins, bodies, and the token beyond loopback; over real HTTP."""

from __future__ import annotations

import http.client
import json
import shutil
import signal
import socket
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil
import pytest

from battlebrokers.sdn.gateway.registry import RestRegistry
from battlebrokers.sdn.gateway.settings import Away
from support.browser import in_a_browser
from support.live_browser import live_browser
from support.runs import bb, start_bb
from support.waiting import until

LIMIT_BYTES = 64 << 10
TOKEN = "a-token-of-this-test-0123456789"
JSON = {"Content-Type": "application/json"}


@dataclass(frozen=True)
class Service:
    port: int
    log: Path
    process: subprocess.Popen[bytes]

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    @property
    def token(self) -> str:
        words = self.log.read_text().split()
        return words[words.index("token:") + 1]

    def ask(self, method: str, path: str, body: bytes | None = None, **headers: str) -> tuple[int, Any]:
        status, told, _ = self.answered(method, path, body, headers)
        return status, told

    def answered(
        self, method: str, path: str, body: bytes | None, headers: dict[str, str]
    ) -> tuple[int, Any, dict[str, str]]:
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=60)
        try:
            named = {name.replace("_", "-"): value for name, value in headers.items()}
            connection.request(method, path, body, named)
            answer = connection.getresponse()
            told = answer.read()
            is_json = answer.headers.get_content_type() == "application/json"
            return answer.status, json.loads(told) if told and is_json else told, dict(answer.headers)
        finally:
            connection.close()

    def raw(self, said: bytes) -> bytes:
        """Whatever is sent, the answer until the connection is closed."""
        with socket.create_connection(("127.0.0.1", self.port), 60) as connection:
            connection.sendall(said)
            return b"".join(iter(lambda: connection.recv(65536), b""))


@contextmanager
def served(folder: Path, *options: str) -> Iterator[Service]:
    folder.mkdir(exist_ok=True)
    log = folder / "controller.log"
    process = start_bb(
        "sdn", "controller", "--port", "0", "--openflow-port", "0", "--state", str(folder / "state.json"), *options,
        cwd=folder, log=log,
    )  # fmt: skip
    try:
        until(lambda: b"REST" in log.read_bytes() and log.read_bytes().endswith(b"\n"), what="the controller")
        words = log.read_text().split()
        yield Service(int(words[words.index("page:") + 1].rstrip("/").rpartition(":")[2]), log, process)
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait(60)


@pytest.fixture(scope="module")
def loopback(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    with served(tmp_path_factory.mktemp("loopback")) as service:
        yield service


@pytest.fixture(scope="module")
def everywhere(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    with served(tmp_path_factory.mktemp("everywhere"), "--host", "0.0.0.0") as service:
        until(lambda: "token:" in service.log.read_text(), what="the token")
        yield service


def refusal(answered: tuple[int, Any]) -> tuple[int, str]:
    status, told = answered
    assert set(told) == {"message", "hint"}
    assert told["message"]
    assert told["hint"]
    return status, f"{told['message']}: {told['hint']}"


def resources(service: Service) -> int:
    return len(service.ask("GET", "/db/resources/json")[1])


@pytest.mark.parametrize("path", ["/", "/docs", "/db/resources/json", "/api/v1/topology", "/openapi.json", "/nothing"])
def test_a_name_that_was_rebound_to_loopback_reaches_nothing(loopback: Service, path: str) -> None:
    assert loopback.ask("GET", path, Host=f"localhost:{loopback.port}")[0] in (200, 404)
    status, words = refusal(loopback.ask("GET", path, Host=f"evil.example:{loopback.port}"))
    assert status == 421
    assert "evil.example" in words


@pytest.mark.parametrize(
    "headers",
    [
        {"Origin": "http://evil.example"}, {"Origin": "null"}, {"Origin": "http://localhost:1"},
        {"Sec_Fetch_Site": "cross-site"}, {"Sec_Fetch_Site": "same-site"},
    ],
)  # fmt: skip
def test_pages_of_other_origins_change_nothing(loopback: Service, headers: dict[str, str]) -> None:
    before = resources(loopback)
    assert refusal(loopback.ask("POST", "/db/resources/json", **headers))[0] == 403
    assert refusal(loopback.ask("POST", "/api/v1/resources", b"{}", **JSON, **headers))[0] == 403
    assert refusal(loopback.ask("OPTIONS", "/db/resources/json", **headers))[0] == 403
    assert resources(loopback) == before


def test_a_page_of_its_own_origin_may(loopback: Service) -> None:
    before = resources(loopback)
    own = {"Origin": loopback.url, "Sec_Fetch_Site": "same-origin"}
    assert loopback.ask("POST", "/db/resources/json", **own)[0] == 200
    assert resources(loopback) == before + 1


@pytest.mark.parametrize("kind", ["application/x-www-form-urlencoded", "text/plain", "multipart/form-data", None])
def test_a_body_that_is_not_declared_as_json_is_refused_with_what_to_say(loopback: Service, kind: str | None) -> None:
    body = b'{"resource": "1.1.1.1"}'
    if kind is None:
        said = f"DELETE /db/resources/json HTTP/1.1\r\nHost: localhost\r\nContent-Length: {len(body)}\r\n\r\n"
        head, _, told = loopback.raw(said.encode() + body).partition(b"\r\n\r\n")
        answered = int(head.split()[1]), json.loads(told)
    else:
        answered = loopback.ask("DELETE", "/db/resources/json", body, Content_Type=kind)
    status, words = refusal(answered)
    assert status == 415
    assert "-H 'Content-Type: application/json'" in words


@pytest.mark.skipif(shutil.which("curl") is None, reason="no curl here")
def test_curl_is_told_what_to_add_and_then_served(loopback: Service) -> None:
    created = loopback.ask("POST", "/db/resources/json")[1]["message"].rpartition(" ")[2]
    path = f"{loopback.url}/db/subscribers/{created}/json"
    words = ["curl", "-s", "-d", '{"address": "10.0.0.4", "MAC": "00:00:00:00:00:04"}', path]
    refused = subprocess.run(words, capture_output=True, check=True, timeout=60)
    assert b"Content-Type: application/json" in refused.stdout
    words = [*words, "-H", "Content-Type: application/json"]
    done = subprocess.run(words, capture_output=True, check=True, timeout=60)
    assert json.loads(done.stdout) == {"message": "Subscription successful"}


def test_a_body_may_have_64_kib_and_not_one_byte_more(loopback: Service) -> None:
    fits = b'{"name": "' + b" " * (LIMIT_BYTES - 12) + b'"}'
    assert len(fits) == LIMIT_BYTES
    assert refusal(loopback.ask("POST", "/api/v1/resources", fits, **JSON))[0] == 422
    assert refusal(loopback.ask("POST", "/api/v1/resources", fits + b" ", **JSON))[0] == 413


def test_a_large_body_is_refused_by_what_it_declares(loopback: Service) -> None:
    head = b"POST /db/resources/json HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
    answer = loopback.raw(head + b"Content-Length: 10000000000\r\nExpect: 100-continue\r\n\r\n")
    assert answer.startswith(b"HTTP/1.1 413 ")


def test_an_endless_chunked_body_is_read_to_the_limit_and_no_further(loopback: Service) -> None:
    before = resources(loopback)
    head = b"POST /db/resources/json HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
    chunk, sent = b"1000\r\n" + b" " * 4096 + b"\r\n", 0
    with socket.create_connection(("127.0.0.1", loopback.port), 60) as connection:
        connection.sendall(head + b"Transfer-Encoding: chunked\r\n\r\n")
        with suppress(ConnectionError):
            while sent < 512 << 20:
                connection.sendall(chunk)
                sent += len(chunk)
        told = b""
        with suppress(ConnectionError):
            told = connection.recv(65536)
    # What the buffers of both sockets took, at most.
    assert sent < 32 << 20
    assert told == b"" or told.startswith(b"HTTP/1.1 413 ")
    assert resources(loopback) == before


def test_a_chunked_body_just_beyond_the_limit_gets_its_answer(loopback: Service) -> None:
    head = b"POST /db/resources/json HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
    body = b"".join(b"1000\r\n" + b" " * 4096 + b"\r\n" for _ in range(16)) + b"1\r\n \r\n"
    with socket.create_connection(("127.0.0.1", loopback.port), 60) as connection:
        connection.sendall(head + b"Transfer-Encoding: chunked\r\n\r\n" + body)
        assert connection.recv(65536).startswith(b"HTTP/1.1 413 ")
        assert b"" in iter(lambda: connection.recv(65536), b"-")


def test_on_loopback_there_is_no_token(loopback: Service) -> None:
    assert "token" not in loopback.log.read_text()


def test_beyond_loopback_a_random_token_is_printed_once_and_asked_for(everywhere: Service) -> None:
    said = everywhere.log.read_text()
    assert said.count("token:") == 1
    assert len(everywhere.token) >= 32
    for path in ("/db/resources/json", "/api/v1/topology", "/openapi.json", "/nothing"):
        status, told, headers = everywhere.answered("GET", path, None, {})
        assert status == 401
        assert "BB_SDN_TOKEN" in told["hint"]
        assert headers["www-authenticate"].startswith("Bearer")
        wrong = {"Authorization": f"Bearer {everywhere.token[:-1]}"}
        assert everywhere.answered("GET", path, None, wrong)[0] == 401
        assert everywhere.answered("GET", path, None, {"Authorization": f"Bearer {everywhere.token}"})[0] in (200, 404)
    assert everywhere.ask("POST", "/db/resources/json")[0] == 401
    with served(everywhere.log.parent / "another", "--host", "0.0.0.0") as another:
        assert until(lambda: "token:" in another.log.read_text() and another.token) != everywhere.token


def test_beyond_loopback_addresses_are_served_and_foreign_names_are_not(everywhere: Service) -> None:
    sent = {"Authorization": f"Bearer {everywhere.token}"}
    assert everywhere.ask("GET", "/api/v1/topology", Host="192.0.2.1:8080", **sent)[0] == 200
    assert everywhere.ask("GET", "/api/v1/topology", Host=socket.gethostname(), **sent)[0] == 200
    assert everywhere.ask("GET", "/api/v1/topology", Host="evil.example", **sent)[0] == 421


def test_a_given_token_counts_everywhere_and_is_not_printed(tmp_path: Path) -> None:
    (tmp_path / "token").write_text(TOKEN + "\n")
    given = ("--token-file", str(tmp_path / "token"), "--allow-host", "lab.example")
    with served(tmp_path / "one", *given) as service:
        assert service.ask("GET", "/api/v1/topology")[0] == 401
        sent = {"Authorization": f"Bearer {TOKEN}"}
        assert service.ask("GET", "/api/v1/topology", **sent)[0] == 200
        assert service.ask("GET", "/api/v1/topology", Host="LAB.example:9", **sent)[0] == 200
        assert TOKEN not in service.log.read_text()
        assert not any(TOKEN in word for word in psutil.Process(service.process.pid).cmdline())
        for words in (("resources",), ("create",), ("status",)):
            assert bb("sdn", *words, "--url", service.url, *given[:2], cwd=tmp_path).code == 0
        refused = bb("sdn", "resources", "--url", service.url, cwd=tmp_path)
        assert (refused.code, refused.out) == (3, "")
        assert "asks for a token" in refused.err
        assert "--token-file" in refused.err


def test_every_verb_sends_the_token_of_the_environment(
    everywhere: Service, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    host, at = "00:00:00:00:00:07,10.0.0.7", ("--url", everywhere.url)
    assert bb("sdn", "create", *at, cwd=tmp_path).code == 3
    monkeypatch.setenv("BB_SDN_TOKEN", everywhere.token)
    resource = bb("sdn", "create", *at, cwd=tmp_path).out.strip()
    assert bb("sdn", "subscribe", resource, host, *at, cwd=tmp_path).code == 0
    assert bb("sdn", "unsubscribe", resource, host.partition(",")[0], *at, cwd=tmp_path).code == 0
    assert "no switch is connected" in bb("sdn", "publish", resource, "hello", *at, cwd=tmp_path).err
    # Asked for before anything else is.
    assert "no lab is up" in bb("sdn", "ladder", "--resource", resource, "--as", "h1", *at, cwd=tmp_path).err
    assert bb("sdn", "delete", resource, *at, cwd=tmp_path).code == 0
    monkeypatch.setenv("BB_SDN_TOKEN", TOKEN)
    wrong = bb("sdn", "resources", *at, cwd=tmp_path)
    assert (wrong.code, "the token is wrong" in wrong.err) == (3, True)


async def test_the_gateway_sends_its_token_and_waits_while_it_is_the_wrong_one(everywhere: Service) -> None:
    registry = RestRegistry(everywhere.url, "tree", "00:00:00:00:00:09", "10.0.0.9", everywhere.token)
    try:
        obtained = await registry.obtain("rooms/9")
        assert await registry.subscribe(obtained.address)
        assert [one.name for one in await registry.listed()] == ["rooms/9"]
    finally:
        await registry.close()
    for token in (None, TOKEN):
        registry = RestRegistry(everywhere.url, "tree", "00:00:00:00:00:09", "10.0.0.9", token)
        try:
            with pytest.raises(Away, match="--token-file"):
                await registry.listed()
        finally:
            await registry.close()


@in_a_browser
def test_the_page_takes_the_token_from_its_address_or_asks_for_it(everywhere: Service) -> None:
    works = "document.querySelector('#state').textContent.startsWith('0 switches, 0 links, 0 hosts')"
    asks = "!document.querySelector('#key').hidden && document.querySelector('#state').textContent.includes('token')"
    with live_browser() as started:
        with started.tab() as page:
            page.open(f"{everywhere.url}/#token={everywhere.token}")
            page.until(works)
            assert page.value("location.href") == f"{everywhere.url}/"
            page.click("#create button")
            page.until("document.querySelector('#said').textContent.includes('is created')")
            page.open(f"{everywhere.url}/docs")
            page.until("document.querySelectorAll('details').length >= 19")
            assert page.complaints == []
        with started.tab() as page:
            page.open(f"{everywhere.url}/")
            page.until(asks)
            page.write("#key [name=token]", TOKEN)
            page.click("#key button")
            page.until("document.querySelector('#refused').textContent === 'the token is wrong'")
            page.write("#key [name=token]", everywhere.token)
            page.click("#key button")
            page.until(works)
            assert page.value("document.querySelector('#key').hidden")
            page.open(f"{everywhere.url}/?again")
            page.until(works)
            assert page.complaints == []
