"""The one type of secrets, and texts freed of them."""

from __future__ import annotations

import copy
import json
import pickle
from collections.abc import Callable
from dataclasses import asdict, dataclass

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel, ValidationError

from battlebrokers.secrets import (
    MASK,
    Secret,
    bare_url,
    is_secret_name,
    masked_document,
    masked_setting,
    masked_text,
    masked_url,
    masked_values,
    remember,
    remember_in,
    url_secrets,
)
from support.examples import examples


@dataclass(frozen=True)
class _Login:
    name: str
    password: Secret


class _Model(BaseModel):
    password: Secret


def test_a_secret_shows_nothing_of_itself() -> None:
    secret = Secret("hunter2")
    shown = [
        str(secret),
        repr(secret),
        f"{secret}",
        f"{secret!r:>9}",
        str(_Login("me", secret)),
        str([secret]),
    ]
    assert all("hunter2" not in text and MASK in text for text in shown)
    assert secret.reveal() == "hunter2"


@pytest.mark.parametrize("write", [pickle.dumps, json.dumps, msgspec.json.encode, msgspec.msgpack.encode])
def test_a_secret_cannot_be_written_by_accident(write: Callable[[object], object]) -> None:
    with pytest.raises(TypeError):
        write(Secret("hunter2"))


def test_secrets_are_equal_by_value_and_cannot_be_changed() -> None:
    assert Secret("a") == Secret("a") != Secret("b")
    assert Secret("a") != "a"
    assert len({Secret("a"), Secret("a")}) == 1
    assert copy.deepcopy(Secret("a")) == Secret("a")
    assert asdict(_Login("me", Secret("a")))["password"] == Secret("a")
    with pytest.raises(AttributeError):
        Secret("a")._value = "b"


def test_a_model_takes_a_text_and_reveals_it_only_when_told_to() -> None:
    model = _Model.model_validate({"password": "hunter2"})
    assert model.password == Secret("hunter2")
    assert "hunter2" not in model.model_dump_json() + repr(model)
    assert model.model_dump(context={"reveal": True}) == {"password": "hunter2"}
    assert _Model.model_json_schema()["properties"]["password"]["type"] == "string"
    with pytest.raises(ValidationError, match="must be a text"):
        _Model.model_validate({"password": 5})


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("mqtt://u:hunter2@h:1883", "mqtt://u:•••@h:1883"),
        ("mqtt://u:hunt@er2@h", "mqtt://u:•••@h"),
        ("mqtt://u:hunt/er2@h:1", "mqtt://u:•••@h:1"),
        ("mqtt://u:hunt#er2@h:1", "mqtt://u:•••@h:1"),
        ("mqtt://hunter2@h", "mqtt://•••@h"),
        ("mqtt://:hunter2@h", "mqtt://:•••@h"),
        ("ws://h:9001/mqtt?token=hunter2&x=1", "ws://h:9001/mqtt?token=•••&x=1"),
        ("wss://h/mqtt?X-Amz-Signature=hunter2", "wss://h/mqtt?X-Amz-Signature=•••"),
        ("http://h/?a=1&api_key=hunter2#x", "http://h/?a=1&api_key=•••#x"),
        ("http://h/a@b?x=1", "http://h/a@b?x=1"),
        ("mqtt://[::1]:1883/a@b", "mqtt://[::1]:1883/a@b"),
        ("loopback://", "loopback://"),
        ("mosquitto", "mosquitto"),
    ],
)
def test_a_url_is_shown_without_password_and_token(url: str, shown: str) -> None:
    assert masked_url(url) == shown
    assert masked_text(f"at {url} at last") == f"at {shown} at last"
    assert "hunt" not in bare_url(url)
    assert bool(url_secrets(url)) == (MASK in shown)


@pytest.mark.parametrize(
    ("line", "shown"),
    [
        ("password: hunter2", "password: •••"),
        ('{"user": "a", "password": "hunt\\"er2", "x": 1}', '{"user": "a", "password": "•••", "x": 1}'),
        ("credentials: {username: a, password: hunter2}", "credentials: {username: a, password: •••}"),
        ("remote_password hunter2", "remote_password •••"),
        ("RABBITMQ_DEFAULT_PASS=hunter2", "RABBITMQ_DEFAULT_PASS=•••"),
        ("$ prog --password hunter2 --token=hunter2 -v", "$ prog --password ••• --token=••• -v"),
        ("Authorization: Bearer hunter2hunter2", "Authorization: •••"),
        ("meshblu_auth_token: hunter2", "meshblu_auth_token: •••"),
        ("got GET /x?access_token=hunter2 HTTP/1.1", "got GET /x?access_token=••• HTTP/1.1"),
        ("password: '{env:NAME}'", "password: '{env:NAME}'"),
        ("password_file /etc/passwords", "password_file /etc/passwords"),
        ("the token of a client is new", "the token of a client is new"),
        ("allow_anonymous false", "allow_anonymous false"),
    ],
)
def test_a_document_is_kept_without_the_values_of_secret_keys(line: str, shown: str) -> None:
    assert masked_document(f"a: 1\n{line}\nb: 2\n") == f"a: 1\n{shown}\nb: 2\n"


@pytest.mark.parametrize(
    ("setting", "shown"),
    [
        ("defaults.credentials.password=hunter2", "defaults.credentials.password=•••"),
        ("defaults.credentials={username: a, password: hunter2}", "defaults.credentials={username: a, password: •••}"),
        ("fleets.a.credentials.password={env:NAME}", "fleets.a.credentials.password={env:NAME}"),
        ("fleets.a.devices=5", "fleets.a.devices=5"),
        ("ws://u:hunter2@h/?token=hunter2", "ws://u:•••@h/?token=•••"),
        ("kernel=6.1", "kernel=6.1"),
    ],
)
def test_a_setting_is_told_without_its_secret(setting: str, shown: str) -> None:
    assert masked_setting(setting) == shown


def test_a_known_secret_is_found_wherever_somebody_repeats_it() -> None:
    remember(Secret('hun ter"2/3'))
    for spelling in ('hun ter"2/3', "hun%20ter%222%2F3", "hun+ter%222%2F3", 'hun ter\\"2/3'):
        assert masked_text(f"the broker said {spelling}!") == "the broker said •••!"


def test_a_short_known_secret_is_only_a_word_of_its_own() -> None:
    remember(Secret("latest"), Secret("in"))
    assert masked_text("the latest of the latests in it") == "the ••• of the latests in it"


def test_headers_of_a_contender_file_are_known() -> None:
    remember_in(
        {"speak": {"http": {"headers": {"Authorization": "Bearer hunter2hunter2"}, "keep": {"token": "$.token"}}}}
    )
    assert (
        masked_text("it answered: hunter2hunter2 is no token, no $.token") == "it answered: ••• is no token, no $.token"
    )


def test_plain_data_loses_its_secrets_and_keeps_the_rest() -> None:
    data = {"a": [{"password": "x", "n": 5}, "mqtt://u:p@h"], "token": 17, "tokens_seen": True, "max": 3}
    assert masked_values(data) == {
        "a": [{"password": MASK, "n": 5}, f"mqtt://u:{MASK}@h"], "token": MASK, "tokens_seen": True, "max": 3,
    }  # fmt: skip


@pytest.mark.parametrize(
    "name", ["password", "PASSWD", "api_key", "apikey", "X-Auth-Token", "client.secret", "jwt", "pwd"]
)
def test_names_of_secrets_are_known(name: str) -> None:
    assert is_secret_name(name)


@pytest.mark.parametrize("name", ["password_file", "username", "compass", "author", "token_expiry", "design", "monkey"])
def test_other_names_are_no_secrets(name: str) -> None:
    assert not is_secret_name(name)


@given(st.text(max_size=200))
@examples(60)
def test_whatever_the_text_masking_twice_is_masking_once(text: str) -> None:
    for mask in (masked_text, masked_document, masked_setting):
        once = mask(text)
        assert mask(once) == once
