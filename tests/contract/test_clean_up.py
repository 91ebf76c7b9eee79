"""What the controller made is gone when a crew has left: asked of the real CSE, before and after."""

from __future__ import annotations

from collections.abc import Callable
from http.client import HTTPConnection
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from battlebrokers.contenders.lifecycle import RunningContender, start_contender
from battlebrokers.contenders.reader import find_contender
from battlebrokers.run.crew import Route
from battlebrokers.run.trial import Trial

pytestmark = [pytest.mark.broker, pytest.mark.slow]

HTTP, MQTT = Route("http", "http"), Route("mqtt", "tcp")


def statuses(running: RunningContender, *names: str) -> list[int]:
    """What it answers to who asks for these resources."""
    place = urlsplit(running.endpoints["http"])
    headers = {"X-M2M-Origin": "CAdmin", "X-M2M-RI": "bb", "X-M2M-RVI": "4", "Accept": "application/json"}
    found = []
    for name in names:
        link = HTTPConnection(str(place.hostname), place.port, timeout=60)
        link.request("GET", f"/cse-in/{name}", headers=headers)
        found.append(link.getresponse().status)
        link.close()
    return found


@pytest.mark.parametrize(
    ("spec", "route", "made"),
    [
        ("acme-onem2m", HTTP, ["bbtrial1"]),
        ("acme-onem2m-mqtt", MQTT, ["ptrial1", "trial1-bb-trial"]),
    ],
    ids=lambda part: part if isinstance(part, str) else "",
)
async def test_what_login_and_devices_made_is_removed(
    spec: str, route: Route, made: list[str], tmp_path: Path, require_broker: Callable[[str], str]
) -> None:
    require_broker(spec)
    with start_contender(spec, "stock", tmp_path) as running:
        async with Trial(running, find_contender(spec)).crew(route, route) as crew:
            assert crew.listed == 3, "a container of the resource, and one of each topic"
            if spec.endswith("mqtt"):
                clients = [link.options.client_id for link in (*crew.devices, *crew.clients)]
                made = [*made, *(f"a{client_id}" for client_id in clients)]
            assert statuses(running, *made) == [200] * len(made)
        assert statuses(running, *made) == [404] * len(made)
