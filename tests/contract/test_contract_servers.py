"""The contract servers for Orion, DeviceHive and Meshblu, proved with the vendors' own clients; OM2M has none.

The clients live in an environment of their own (support/oracles/place.py). Where it cannot be made, the reason is told.
"""

from __future__ import annotations

import json
import subprocess
import threading
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from queue import Queue
from typing import Any
from urllib.error import HTTPError
from urllib.request import Request, urlopen

import pytest

from support.middleware.devicehive_state import Hive, Principal
from support.middleware.process import contract_server
from support.oracles import place

pytestmark = pytest.mark.broker
SESSIONS = Path(place.__file__).parent


def oracle(make: Callable[[], Path]) -> Path:
    try:
        return make()
    except place.NoOracle as reason:
        pytest.skip(f"the vendors' clients cannot be had here: {reason}")


@pytest.fixture(scope="session")
def python_clients() -> Path:
    return oracle(place.python_with_clients)


@pytest.fixture(scope="session")
def node_clients() -> Path:
    return oracle(place.node_with_clients)


@pytest.fixture
def mqtt_port() -> Iterator[int]:
    """A broker for notifications by MQTT; topics outside `dh/` are ordinary ones there."""
    with contract_server("devicehive") as ports:
        yield ports["mqtt"]


def said(command: list[str | Path]) -> Any:
    done = subprocess.run([*map(str, command)], capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_filip_finds_orion(python_clients: Path, mqtt_port: int) -> None:
    with contract_server("orion") as ports:
        url, mqtt = f"http://127.0.0.1:{ports['http']}", f"mqtt://127.0.0.1:{mqtt_port}"
        seen = said([python_clients, SESSIONS / "filip_session.py", url, mqtt])
    assert seen["location"] == "/v2/entities/urn:bb:dev1?type=Device"
    assert seen["again"] == [422, {"error": "Unprocessable", "description": "Already Exists"}]
    assert seen["read"]["temperature"] == {"type": "Number", "value": 1, "metadata": {}}
    assert seen["subscription"]["status"] == "active"
    changed = {"id": "urn:bb:dev1", "type": "Device", "temperature": {"type": "Number", "value": 2, "metadata": {}}}
    assert seen["patched"]["body"]["data"] == [changed]
    assert seen["patched"]["body"]["subscriptionId"] == seen["subscription"]["id"]
    assert seen["patched"]["format"] == "normalized"
    # The same value again is told only when it is forced: one notification for two updates, then that of the PUT.
    assert [seen["forced"], seen["put"], seen["notifications_left"], seen["times_sent"]] == [2, 28.5, 0, 3]
    assert seen["missing"][0] == 422
    assert seen["appended"] == 3
    assert seen["by_mqtt"]["mqtt"]
    assert seen["by_mqtt"]["body"]["data"][0]["temperature"]["value"] == 7
    assert [seen["subscriptions_left"], seen["listed"]] == [0, ["urn:bb:dev1"]]
    assert seen["gone"][0] == 404
    assert seen["gone"][1]["error"] == "NotFound"


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize("url", ["http://127.0.0.1:{}/api/rest", "ws://127.0.0.1:{}/api/websocket"])
def test_the_devicehive_client_finds_devicehive(python_clients: Path, url: str) -> None:
    with contract_server("devicehive") as ports:
        seen = said([python_clients, SESSIONS / "devicehive_session.py", url.format(ports["http"])])
    assert seen["device"] == ["dev1", "dev1", 1, False]
    assert "Device with such deviceId = nobody not found" in seen["missing"]
    expected = [[identity, "dev1", "temp", {"v": value}] for value, identity in enumerate(seen["published"], start=1)]
    assert seen["received"] == expected
    assert seen["listed"] == [{"v": value} for value in (-1, 1, 2, 3, 4, 5)]
    assert seen["left"] == []


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_the_meshblu_clients_find_meshblu(node_clients: Path) -> None:
    with contract_server("meshblu") as ports:
        command = ["node", SESSIONS / "meshblu_session.cjs", node_clients, ports["http"], ports["mqtt"]]
        seen = said([str(part) for part in command])
    ids = seen["ids"]
    assert seen["healthy"] is True
    assert {"uuid", "token", "online", "ipAddress", "meshblu"} <= set(seen["registered"])
    assert [seen["whoami"], seen["device"]["color"], seen["mqttWhoami"]] == ["sensor", "blue", "mqtt"]
    assert seen["unauthorized"] == [401, "unauthorized"]
    assert seen["notReady"] == [401, "unauthorized"]
    sent = {"devices": [ids["socket"], ids["mqtt"]], "payload": {"v": 1}}
    assert seen["answer"] == sent
    assert seen["byHttp"] == [sent | {"fromUuid": ids["sensor"]}] * 2
    assert seen["socketToMqtt"] == {"devices": [ids["mqtt"]], "payload": "from socket", "fromUuid": ids["socket"]}
    assert seen["mqttToSocket"] == {"devices": [ids["socket"]], "payload": "from mqtt", "fromUuid": ids["mqtt"]}
    assert seen["broadcast"] == {"devices": "*", "payload": "to all", "fromUuid": ids["sensor"]}
    assert [seen["updated"], seen["unregistered"]] == [{"uuid": ids["socket"]}] * 2
    assert seen["gone"] == 401


def asked(url: str, method: str, body: bytes | None = None, **headers: str) -> tuple[int, Any]:
    """Status and JSON of an answer, also of one that says no."""
    try:
        with urlopen(Request(url, body, headers, method=method), timeout=60) as answer:
            return answer.status, json.loads(answer.read() or b"null")
    except HTTPError as error:
        with error:
            return error.code, json.loads(error.read() or b"null")


JSON = {"Content-Type": "application/json"}
DEVICE = b'{"id": "d1", "type": "Device", "v": {"type": "Text", "value": "a"}}'


@pytest.mark.parametrize(
    ("method", "path", "body", "headers", "status", "error"),
    [
        ("POST", "/v2/entities", b"{", JSON, 400, "ParseError"),
        ("POST", "/v2/entities", b'{"type": "Device"}', JSON, 400, "BadRequest"),
        ("POST", "/v2/entities", b'{"id": "a b", "type": "Device"}', JSON, 400, "BadRequest"),
        ("POST", "/v2/entities", b'{"id": "d2", "v": {"type": "Text", "value": "YQ=="}}', JSON, 400, "BadRequest"),
        ("POST", "/v2/entities", DEVICE, {"Content-Type": "text/plain"}, 415, "UnsupportedMediaType"),
        ("POST", "/v2/entities", None, JSON, 411, "ContentLengthRequired"),
        ("POST", "/v2/entities", DEVICE, JSON, 422, "Unprocessable"),
        ("PATCH", "/v2/entities/d1/attrs", b'{"w": {"value": 1}}', JSON, 422, "Unprocessable"),
        ("PATCH", "/v2/entities/nobody/attrs", b'{"v": {"value": 1}}', JSON, 404, "NotFound"),
        ("GET", "/v2/entities/d1/attrs/w", None, {}, 404, "NotFound"),
        ("POST", "/v2/subscriptions", b'{"subject": {"entities": [{"id": "d1"}]}}', JSON, 400, "BadRequest"),
        ("DELETE", "/v2/subscriptions/5aeb0ee97d4ef10a12a0262f", None, {}, 404, "NotFound"),
    ],
)
def test_orion_refuses_as_documented(
    orion: str, method: str, path: str, body: bytes | None, headers: dict[str, str], status: int, error: str
) -> None:
    found, told = asked(orion + path, method, body, **headers)
    assert (found, told["error"]) == (status, error)
    assert told["description"]


@pytest.fixture(scope="module")
def orion() -> Iterator[str]:
    with contract_server("orion") as ports:
        url = f"http://127.0.0.1:{ports['http']}"
        assert asked(f"{url}/v2/entities", "POST", DEVICE, **JSON)[0] == 201
        yield url


def test_two_entities_of_one_id_are_too_many(orion: str) -> None:
    assert asked(f"{orion}/v2/entities", "POST", b'{"id": "twin", "type": "A"}', **JSON)[0] == 201
    assert asked(f"{orion}/v2/entities", "POST", b'{"id": "twin", "type": "B"}', **JSON)[0] == 201
    assert asked(f"{orion}/v2/entities/twin", "GET")[0] == 409
    assert asked(f"{orion}/v2/entities/twin?type=B", "GET") == (200, {"id": "twin", "type": "B"})


def test_devicehive_refuses_as_documented() -> None:
    with contract_server("devicehive") as ports:
        base = f"http://127.0.0.1:{ports['http']}"
        wrong = json.dumps({"login": "dhadmin", "password": "wrong"}).encode()
        assert asked(f"{base}/auth/rest/token", "POST", wrong, **JSON) == (
            401,
            {"error": 401, "message": "Invalid credentials"},
        )
        assert asked(f"{base}/api/rest/device/dev1", "GET")[0] == 401
        right = json.dumps({"login": "dhadmin", "password": "dhadmin_#911"}).encode()
        _, tokens = asked(f"{base}/auth/rest/token", "POST", right, **JSON)
        known = JSON | {"Authorization": f"Bearer {tokens['accessToken']}"}
        note = b'{"notification": "temp"}'
        assert asked(f"{base}/api/rest/device/nobody/notification", "POST", note, **known) == (
            404,
            {"error": 404, "message": "Device with such deviceId = nobody not found"},
        )
        assert asked(f"{base}/api/rest/device/dev1", "PUT", b"{}", **known)[0] == 400


async def test_a_poll_of_devicehive_never_hears_what_else_its_last_millisecond_brought() -> None:
    now = [datetime(2026, 1, 1, tzinfo=UTC)]
    hive, who = Hive(lambda: now[0]), Principal("dhadmin")
    await hive.act(who, "device/save", {"deviceId": "d", "device": {"name": "d"}})
    wanted, since = hive.filter("notification", {"deviceId": "d"}), hive.now()

    async def insert(value: int) -> None:
        said = {"notification": "bb", "parameters": {"v": value}}
        await hive.act(who, "notification/insert", {"deviceId": "d", "notification": said})

    heard = []
    for value, later_us in enumerate((1000, 400, 700)):
        now[0] += timedelta(microseconds=later_us)
        await insert(value)
        found = await hive.poll(wanted, since, 0, 0)
        heard += [message["parameters"]["v"] for message in found]
        since = found[-1]["timestamp"] if found else since
    assert heard == [0, 2]


def test_meshblu_refuses_who_it_does_not_know() -> None:
    with contract_server("meshblu") as ports:
        base = f"http://127.0.0.1:{ports['http']}"
        assert asked(f"{base}/messages", "POST", b"{}", **JSON) == (401, {"error": "unauthorized"})
        _, device = asked(f"{base}/devices", "POST", b'{"type": "bb"}', **JSON)
        known = {"meshblu_auth_uuid": device["uuid"], "meshblu_auth_token": device["token"]}
        assert asked(f"{base}/devices/nobody", "GET", **known)[0] == 404
        assert asked(f"{base}/devices/{device['uuid']}", "DELETE", **known) == (200, {"uuid": device["uuid"]})
        assert asked(f"{base}/v2/whoami", "GET", **known)[0] == 401


class Monitor(BaseHTTPRequestHandler):
    """A subscriber's own server: keeps what it is told."""

    told: Queue[tuple[str, bytes]]

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        self.send_response(200)
        self.send_header("Content-Length", "0")
        self.end_headers()
        self.told.put((self.headers["Content-Type"], body))

    def log_message(self, *_: object) -> None:
        """Say nothing."""


@pytest.fixture
def monitor() -> Iterator[tuple[str, Queue[tuple[str, bytes]]]]:
    Monitor.told = Queue()
    with ThreadingHTTPServer(("127.0.0.1", 0), Monitor) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}/monitor", Monitor.told
        server.shutdown()
        thread.join()


ADMIN = {"X-M2M-Origin": "admin:admin"}


def om2m(url: str, method: str, text: str = "", **headers: str) -> tuple[int, str]:
    try:
        with urlopen(Request(url, text.encode() or None, ADMIN | headers, method=method), timeout=60) as answer:
            return answer.status, answer.read().decode()
    except HTTPError as error:
        with error:
            return error.code, error.read().decode()


def test_om2m_answers_as_its_wiki_says(monitor: tuple[str, Queue[tuple[str, bytes]]]) -> None:
    url, told = monitor
    with contract_server("om2m") as ports:
        base = f"http://127.0.0.1:{ports['http']}/~/in-cse"
        place = f"{base}/in-name/MY_SENSOR"

        def make(where: str, type_: int, body: str, format_: str = "xml") -> tuple[int, str]:
            kind = f"application/{format_}"
            return om2m(where, "POST", body, **{"Content-Type": f"{kind};ty={type_}", "Accept": kind})

        space = 'xmlns:m2m="http://www.onem2m.org/xml/protocols"'
        status, body = om2m(base, "GET", Accept="application/xml")
        assert status == 200
        assert "<ri>/in-cse</ri>" in body
        application = f'<m2m:ae {space} rn="MY_SENSOR"><api>app-sensor</api><rr>false</rr></m2m:ae>'
        status, body = make(base, 2, application)
        assert status == 201
        assert 'rn="MY_SENSOR"' in body
        assert make(base, 2, application)[0] == 409
        assert make(place, 3, f'<m2m:cnt {space} rn="DATA"></m2m:cnt>')[0] == 201
        status, _ = make(f"{place}/DATA", 23, json.dumps({"m2m:sub": {"rn": "s", "nu": [url], "nct": 2}}), "json")
        assert status == 201
        assert json.loads(told.get(timeout=60)[1]) == {"m2m:sgn": {"m2m:vrq": True, "m2m:sud": False}}
        subscription = f'<m2m:sub {space} rn="x"><nu>{url}</nu><nct>2</nct></m2m:sub>'
        assert make(f"{place}/DATA", 23, subscription)[0] == 201
        assert b"<vrq>true</vrq>" in told.get(timeout=60)[1]
        assert make(f"{place}/DATA", 4, '{"m2m:cin": {"cnf": "message", "con": "21"}}', "json")[0] == 201
        notified = dict(told.get(timeout=60) for _ in range(2))
        event = json.loads(notified["application/json"])["m2m:sgn"]
        assert event["m2m:nev"]["m2m:rep"]["m2m:cin"]["con"] == "21"
        assert event["m2m:sur"] == "/in-cse/in-name/MY_SENSOR/DATA/s"
        assert b"<con>21</con>" in notified["application/xml"]
        status, latest = om2m(f"{place}/DATA/la", "GET", Accept="application/json")
        assert (status, json.loads(latest)["m2m:cin"]["con"]) == (200, "21")
        nowhere = json.dumps({"m2m:sub": {"rn": "n", "nu": ["http://127.0.0.1:9/"], "nct": 2}})
        assert make(f"{place}/DATA", 23, nowhere, "json")[0] == 500
        assert om2m(place, "GET", **{"X-M2M-Origin": "nobody:x"})[0] == 403
        assert om2m(place, "DELETE")[0] == 200
        assert om2m(place, "GET")[0] == 404
