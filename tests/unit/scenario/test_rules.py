from __future__ import annotations

from pathlib import Path

import pytest

from battlebrokers.errors import ScenarioError
from battlebrokers.scenario.reader import load_scenario, read_scenario

GOOD = """\
name: small
fleets:
  air: {devices: 2, topic: "a/{device}", payload: {random_bytes: 30}, every: 1s}
clients:
  all: {count: 2, subscribe: "a/#"}
phases: {warm_up: 1s, measure: 10s}
"""


@pytest.mark.parametrize(
    ("overrides", "part"),
    [
        (["fleets=null", "clients=null"], "neither fleets nor clients"),
        (["phases.measure=0s"], "longer than 0"),
        (["fleets.air.qos='1'"], "must be 0, 1 or 2, not '1' (without quotes)"),
        (["fleets.all={devices: 1, topic: x, payload: {text: x}, every: 1s}"], "also the name of a fleet"),
        (["fleets.air.devices=20M"], "24 bits"),
        (["fleets.air.every=null"], "`every` is missing here and in `defaults`"),
        (["fleets.air.payload=null"], "`payload` is missing here and in `defaults`"),
        (["fleets.air.topic=[]"], "at least one topic"),
        (["fleets.air.payload={}"], "exactly one content, found none"),
        (["fleets.air.payload.size=5"], "does not go with `random_bytes`"),
        (["fleets.air.payload={text: '', size: 5}"], "nothing to repeat"),
        (["fleets.air.payload.encoding=utf-8"], "random bytes are no text"),
        (["fleets.air.payload.encoding=morse"], "is not an encoding"),
        (["fleets.air.session_expiry=5s"], "`session_expiry` exists in MQTT 5 only"),
        (["fleets.air.receive_maximum=5"], "`receive_maximum` exists in MQTT 5 only"),
        (["fleets.air.topic_alias=true"], "`topic_alias` exists in MQTT 5 only"),
        (["defaults.topic_alias=true"], "`topic_alias` exists in MQTT 5 only"),
        (["fleets.air.will={topic: x, delay: 5s}"], "a will delay exists in MQTT 5 only"),
        (["fleets.air.will={topic: 'x/#'}"], "contains a wildcard"),
        (["fleets.air.will={topic: '{client}'}"], "not a variable here"),
        (["clients.all.client_id=x{device}"], "not a variable here"),
        (["fleets.air.client_id=same"], "same for every node"),
        (["clients.all.session=persistent", "clients.all.client_id=random"], "random ids are new in every run"),
        (["fleets.air.client_id=x{index}", "clients.all.client_id=x{index}"], "same client ids"),
        (["defaults.client_id=x{number}"], "same client ids"),
        (["fleets.air.away={at: 11s, for: 1s}"], "after the load has ended"),
        (["fleets.air.away={at: 1s, for: 3s, every: 2s}"], "leaves again every 2s"),
        (["clients.all.join=11s"], "after the load has ended"),
        (["fleets.air.keep_alive=1500ms"], "not a whole number of seconds"),
        (["fleets.air.keep_alive=1d"], "too long for MQTT"),
        (["defaults.keep_alive=500ms"], "defaults.keep_alive: 500ms is not a whole number of seconds"),
        (["defaults.keep_alive=1d"], "defaults.keep_alive: 1d is too long for MQTT"),
        (["version=5", "defaults.session_expiry=1500ms"], "not a whole number of seconds"),
        (["defaults.client_id='x{device}'"], "not a variable here for `all`"),
        (["defaults.client_id='x{client}'"], "not a variable here for `air`"),
        (["defaults.credentials={username: 'x{device}'}"], "not a variable here for `all`"),
        (["clients.all.credentials={username: 'x{device}'}"], "clients.all.credentials.username"),
        (["clients.all.subscriptions=2"], "asks for 2 of 1 filters"),
        (["clients.all.subscribe=null", "clients.all.share=x"], "shares nothing"),
        (["clients.all.share=a/b"], "cannot name a shared group"),
        (["fleets.air.credentials={password: x}"], "needs a user name"),
        (["fleets.air.credentials={username: '{devise}'}"], "not a variable here"),
        (["tls={check_hostname: false}"], "certificates without encryption"),
        (["transport=tls", "tls.ca=absent.pem"], "there is no file absent.pem"),
        (["transport=tls", "tls.ca=."], ". is a folder"),
        ([f"seed={'9' * 44}"], "is too large"),
        (["fleets.air.protocol=http", "fleets.air.version=5"], "`version` exists in MQTT only, and this speaks http"),
        (["protocol=http", "fleets.air.retain=true"], "`retain` exists in MQTT and coap only, and this speaks http"),
        (["protocol=websocket", "fleets.air.will={topic: x}"], "`will` exists in MQTT only"),
        (["clients.all.protocol=coap", "clients.all.session=persistent"], "`session` exists in MQTT and amqp only"),
        (["clients.all.protocol=http", "clients.all.share=crew"], "`share` exists in MQTT and amqp only"),
        (["protocol=http", "transport=tls"], "the contender's address tells it"),
        (["protocol=udp", "defaults.topic_alias=true"], "`topic_alias` exists in MQTT only"),
        (["protocol=auto", "version='5'"], "`protocol: auto` may choose another"),
        (["protocol=smoke-signals"], "protocol"),
        (["phases.until_silent=true"], "`air` never falls silent"),
        (["fleets.air.inflight=0"], "at least 1"),
        (["repetitions=0"], "at least 1"),
        (["seed=-1"], "at least 0"),
        (["fleets.a b={}"], "cannot name a fleet"),
        (["name=a/b"], "cannot be a name"),
        (["version=4"], "not an MQTT version"),
        (["protocol=mqqt"], "must be mqtt"),
        (["transport=tpc"], "did you mean `tcp`?"),
    ],
)
def test_what_does_not_fit_together_is_told(overrides: list[str], part: str, tmp_path: Path) -> None:
    path = tmp_path / "small.yaml"
    path.write_text(GOOD)
    with pytest.raises(ScenarioError) as caught:
        load_scenario(str(path), overrides)
    assert part in caught.value.message


@pytest.mark.parametrize(
    "overrides",
    [
        ["version=5", "defaults={topic_alias: true, session_expiry: 1min, receive_maximum: 10}"],
        ["fleets.air.version=5.0", "fleets.air.will={topic: 'gone/{device}', delay: 5s}"],
        ["clients.all.session=persistent"],
        ["fleets.air.at_most=0", "fleets.air.every=null", "fleets.air.payload=null"],
        ["defaults.client_id={fleet}-{index}"],
        ["defaults.client_id=random 62 characters"],
        ["clients.all.subscribe=[]"],
        ["clients.all.subscribe=x/{int:1..10}", "clients.all.subscriptions=3"],
        ["transport=tls"],
        ["fleets.air.join=2s..5s", "fleets.air.away={at: 1s..3s, for: 500ms, every: 2s, how: clean}"],
        ["fleets.air.credentials={username: 'u{index}', password: p}"],
        ["defaults={client_id: 'x{number}-{fleet}', credentials: {username: 'u{index}', password: '{env:HOME}'}}"],
        ["defaults.client_id='x{device}'", "clients.all.client_id=y{index}"],
        ["fleets.air.devices=0", "clients.all.count=0"],
        ["fleets.air.topic=[a, b, 'c/{int:1..3}']", "fleets.air.topic_choice=random"],
    ],
)
def test_what_fits_together_is_taken(overrides: list[str]) -> None:
    read_scenario(GOOD, "f", overrides)


def test_mistakes_in_defaults_have_their_line(tmp_path: Path) -> None:
    path = tmp_path / "small.yaml"
    path.write_text(GOOD + "version: 5\ndefaults:\n  keep_alive: 500ms\n  session_expiry: 1500ms\n")
    with pytest.raises(ScenarioError) as caught:
        load_scenario(str(path))
    assert [(mistake.line, mistake.path) for mistake in caught.value.mistakes] == [
        (9, "defaults.keep_alive"),
        (10, "defaults.session_expiry"),
    ]


def test_certificates_are_found_beside_the_scenario(tmp_path: Path) -> None:
    (tmp_path / "ca.pem").write_text("x")
    (tmp_path / "small.yaml").write_text(GOOD + "transport: tls\ntls: {ca: ca.pem}\n")
    assert load_scenario(str(tmp_path / "small.yaml")).scenario.tls.ca == str(tmp_path / "ca.pem")  # type: ignore[union-attr]
    (tmp_path / "small.yaml").write_text(GOOD + "transport: tls\ntls: {certificate: ca.pem}\n")
    with pytest.raises(ScenarioError, match="needs the key too"):
        load_scenario(str(tmp_path / "small.yaml"))


@pytest.mark.parametrize(
    ("content", "part"),
    [
        ("username,password\na,b\n", "has 1 rows for 2 nodes"),
        ("user,pass\na,b\nc,d\n", "wrong columns"),
        ("", "has 0 rows"),
        ('username\n"a\n', "not a CSV file"),
        ("username,password\na,b,c\nd\n", "wrong columns"),
    ],
)
def test_wrong_credential_files_are_told(tmp_path: Path, content: str, part: str) -> None:
    (tmp_path / "logins.csv").write_text(content)
    (tmp_path / "small.yaml").write_text(GOOD)
    with pytest.raises(ScenarioError) as caught:
        load_scenario(str(tmp_path / "small.yaml"), ["fleets.air.credentials.csv=logins.csv"])
    assert part in caught.value.message


def test_a_binary_credential_file_is_told(tmp_path: Path) -> None:
    (tmp_path / "logins.csv").write_bytes(b"\xff\xfe\x00")
    (tmp_path / "small.yaml").write_text(GOOD)
    with pytest.raises(ScenarioError, match="not a CSV file"):
        load_scenario(str(tmp_path / "small.yaml"), ["fleets.air.credentials.csv=logins.csv"])


@pytest.mark.parametrize(
    "overrides",
    [
        ["protocol=http"],
        ["protocol=auto"],
        ["protocol=coap", "defaults.retain=true"],
        ["protocol=amqp", "clients.all.session=persistent", "clients.all.share=crew"],
        ["fleets.air.protocol=http", "clients.all.protocol=mqtt", "version='5'", "defaults.topic_alias=true"],
        ["fleets.air.protocol=http", "clients.all.session=persistent"],
        ["protocol=http", "tls={check_hostname: false}"],
        ["protocol=http", "fleets.air.credentials={password: x}"],
        ["phases.until_silent=true", "fleets.air.at_most=5"],
    ],
)
def test_protocols_may_be_mixed_and_keys_of_mqtt_said_for_those_who_speak_it(overrides: list[str]) -> None:
    read_scenario(GOOD, "f", overrides)
