from __future__ import annotations

from pathlib import Path

import pytest

from battlebrokers.contenders.configuration import Configuration, TlsServerFiles, put_together
from battlebrokers.contenders.reader import find_contender, load_contenders
from battlebrokers.contenders.spec import Profile
from battlebrokers.errors import UsageError

TLS = TlsServerFiles(Path("/certs/server.pem"), Path("/certs/server.key"))
MUTUAL = TlsServerFiles(Path("/certs/server.pem"), Path("/certs/server.key"), Path("/certs/ca.pem"))


def filled(
    name: str, profile: Profile = "stock", tls: TlsServerFiles | None = None, first_port: int = 1000
) -> Configuration:
    contender = find_contender(name)
    templates = put_together(contender, profile, tls)
    ports = {f"port.{port}": str(first_port + place) for place, port in enumerate(templates.ports)}
    found = {name: "/usr/bin/thing" for need in contender.needs for name in (need, f"{need}.folder")}
    for name, companion in contender.beside.items():
        known = [f"port.{name}"]
        if companion.contender is not None:
            known = [f"{name}.{port}" for port in find_contender(companion.contender).ports]
        found |= dict.fromkeys(known, "4711")
    where = {"host": "127.0.0.1", "dir": f"/d{first_port}", "data": "/d/data", "user": "me", "specs": "/specs"}
    return templates.filled({**found, **where, **ports, **(tls.values() if tls else {})})


@pytest.mark.parametrize("name", [contender.name for contender in load_contenders()])
@pytest.mark.parametrize("profile", ["stock", "tuned"])
def test_nothing_is_left_unfilled(name: str, profile: Profile) -> None:
    assert "${" not in filled(name, profile).text


STARTED = [contender.name for contender in load_contenders() if not contender.run.external]


@pytest.mark.parametrize("name", STARTED)
def test_the_hash_does_not_depend_on_ports_and_folders_but_on_the_profile(name: str) -> None:
    assert filled(name, first_port=1000).sha256 == filled(name, first_port=2000).sha256
    tuned = "the same" not in find_contender(name).profiles["tuned"].about.lower()
    assert (filled(name, "stock").sha256 != filled(name, "tuned").sha256) == tuned


def test_endpoints_are_urls_with_the_ports_given() -> None:
    assert filled("mosquitto").endpoints == {"tcp": "mqtt://127.0.0.1:1000", "ws": "ws://127.0.0.1:1001/mqtt"}


def test_tls_adds_listeners_and_endpoints() -> None:
    configuration = filled("mosquitto", tls=TLS)
    assert configuration.endpoints["tls"] == "mqtts://127.0.0.1:1002"
    assert configuration.endpoints["wss"] == "wss://127.0.0.1:1003/mqtt"
    assert "keyfile /certs/server.key" in configuration.files["mosquitto.conf"]
    assert "require_certificate" not in configuration.files["mosquitto.conf"]


def test_a_client_ca_makes_tls_mutual() -> None:
    text = filled("mosquitto", tls=MUTUAL).files["mosquitto.conf"]
    assert text.endswith("cafile /certs/ca.pem\nrequire_certificate true\n")


def test_tls_changes_the_hash() -> None:
    assert len({filled("mosquitto", tls=tls).sha256 for tls in (None, TLS, MUTUAL)}) == 3


def test_tls_is_refused_where_the_contender_has_none() -> None:
    with pytest.raises(UsageError, match="nats has no TLS set-up"):
        put_together(find_contender("nats"), "stock", TLS)


def test_the_text_shows_command_environment_and_files() -> None:
    text = filled("aedes").text
    assert text.startswith("$ /usr/bin/thing /specs/aedes-server.mjs")
    assert "NODE_ENV=production" in text
    assert "--- aedes.json" in text
