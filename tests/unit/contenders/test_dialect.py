from __future__ import annotations

import json
import random
from collections.abc import Iterator
from typing import Any

import msgspec
import pytest
from ruamel.yaml import YAML

from battlebrokers.contenders.dialogue import Registration, registration_of, scripts_of
from battlebrokers.contenders.offers import Offer, offers_of
from battlebrokers.contenders.reader import find_contender, parse_contender
from battlebrokers.errors import InputError
from battlebrokers.protocols.script import Say, Script

MESH = """\
name: mesh
about: Nodes that address each other.
run: {external: true}
ports: {http: 3000, mqtt: 1883}
endpoints:
  http: "http://${host}:${port.http}"
  websocket: "ws://${host}:${port.http}/ws/v2"
  tcp: "mqtt://${host}:${port.mqtt}"
ready: {get: /status, is: 200}
register:
  login: {post: /token, json: {login: "${username}"}, keep: {token: $.accessToken}}
  resource: {put: "/topics/${resource}", is: [201, 204], keep: {place: "header:Location ~ /t/(.*)"}}
  device: &node
    post: /devices
    headers: {Authorization: "Bearer ${controller.token}"}
    json: {type: "${role}", name: "${name}"}
    is: 201
    keep: {uuid: $.uuid, secret: $.token}
  client: *node
  remove: {device: {delete: "/devices/${uuid}"}}
speak:
  http:
    headers: &auth {auth_uuid: "${uuid}"}
    publish: {post: /messages, json: {devices: ["${listener.uuid}"], payload: "${payload}"}}
    subscribe: {way: stream, fetch: {get: "/subscribe/${uuid}"}, wildcards: true}
    notification: {when: {$.type: message, $.payload: "*"}, payload: $.payload}
  websocket:
    login: {send: [identity, {uuid: "${uuid}"}], answer: {"$[0]": ready}, is: {"$[1].status": 200}}
    publish: {send: [message, {to: "${place}", payload: "${payload}"}]}
    subscribe:
      steps:
        - {send: [hello, "${id}"]}
        - {send: [subscribe, "${topic}"], keep: {handle: "$[1]"}}
        - {send: [start, "${handle}"]}
    ids: $[1].id
  mqtt:
    username: "${uuid}"
    password: "${secret}"
    publish: {publish: message, json: {payload: "${payload|hex}"}}
    subscribe: {steps: {subscribe: "${uuid}"}, wildcards: true}
    notification: {payload: $.data.payload, encoding: hex, answer: {publish: ack, json: "${key}", keep: {key: $.k}}}
"""


def scripts() -> dict[str, Script]:
    return scripts_of(parse_contender(MESH, "mesh.yaml"))


def mistakes_of(old: str, new: str) -> str:
    assert old in MESH
    with pytest.raises(InputError) as caught:
        parse_contender(MESH.replace(old, new, 1), "mesh.yaml")
    return caught.value.message


def line_of(text: str) -> int:
    return MESH[: MESH.index(text)].count("\n") + 1


def test_registration_is_plain_data_that_travels() -> None:
    found = registration_of(parse_contender(MESH, "mesh.yaml"))
    assert found is not None
    assert found.login == [Say("post", "/token", json={"login": "${username}"}, keep={"token": "$.accessToken"})]
    assert found.resource[0].statuses == [201, 204]
    assert found.device == found.client
    assert found.remove_device == [Say("delete", "/devices/${uuid}")]
    assert found.remove_client == []
    assert msgspec.msgpack.decode(msgspec.msgpack.encode(found), type=Registration) == found


def test_scripts_are_plain_data_that_travels() -> None:
    for script in scripts().values():
        assert msgspec.msgpack.decode(msgspec.msgpack.encode(script), type=Script) == script


def test_how_long_an_answer_may_take_is_30_s_unless_said() -> None:
    patient = MESH.replace("    subscribe: {way: stream", "    answer_within_s: 0.5\n    subscribe: {way: stream", 1)
    scripts = scripts_of(parse_contender(patient, "mesh.yaml"))
    assert (scripts["http"].answer_within_s, scripts["websocket"].answer_within_s) == (0.5, 30.0)
    with pytest.raises(InputError, match="answer_within_s"):
        parse_contender(patient.replace("0.5", "0"), "mesh.yaml")


def test_http_has_its_stream_and_its_notifications() -> None:
    http = scripts()["http"]
    assert http.publish == Say("post", "/messages", json={"devices": ["${listener.uuid}"], "payload": "${payload}"})
    assert http.headers == {"auth_uuid": "${uuid}"}
    assert http.listening is not None
    assert (http.listening.way, http.listening.wildcards) == ("stream", True)
    assert http.listening.fetch == Say("get", "/subscribe/${uuid}")
    assert http.notification.when == {"$.type": "message", "$.payload": None}
    assert http.notification.encoding == "base64"


def test_a_message_is_json_or_text_and_is_known_by_its_answer() -> None:
    websocket = scripts()["websocket"]
    assert websocket.login == [
        Say(
            "send",
            json=["identity", {"uuid": "${uuid}"}],
            answer={"$[0]": "ready"},
            success={"$[1].status": 200},
        )
    ]
    assert websocket.publish is not None
    assert websocket.publish.answer is None
    assert websocket.ids == "$[1].id"


def test_steps_that_name_the_topic_are_said_for_each_topic_and_so_is_what_follows_from_them() -> None:
    listening = scripts()["websocket"].listening
    assert listening is not None
    assert listening.way == "push"
    assert [step.repeat for step in listening.steps] == [False, True, True]


def test_mqtt_logs_in_subscribes_and_answers() -> None:
    mqtt = scripts()["mqtt"]
    assert (mqtt.username, mqtt.password) == ("${uuid}", "${secret}")
    assert mqtt.listening is not None
    assert mqtt.listening.steps == [Say("subscribe", "${uuid}")]
    assert mqtt.notification.answer == Say("publish", "ack", json="${key}", statuses=[200], keep={"key": "$.k"})


def test_a_plain_broker_has_no_script() -> None:
    assert scripts_of(find_contender("mosquitto")) == {}
    assert registration_of(find_contender("mosquitto")) is None


def test_what_is_offered_follows_from_endpoints_and_speech() -> None:
    offers = offers_of(parse_contender(MESH, "mesh.yaml"))
    assert set(offers) == {"http", "websocket", "mqtt"}
    assert offers["websocket"] == Offer("websocket", ("websocket",), scripted=True, wildcards=False)
    assert offers["mqtt"].scripted
    assert offers_of(find_contender("mosquitto")) == {"mqtt": Offer("mqtt", ("tcp", "ws"))}


def test_a_plain_broker_may_say_how_large_a_payload_may_be() -> None:
    plain = "name: edge\nabout: A\nrun: {external: true}\nports: {mqtt: 1883}\n"
    plain += 'endpoints: {tcp: "mqtt://${host}:${port.mqtt}"}\nspeak: {mqtt: {largest_payload_bytes: 1472}}\n'
    edge = parse_contender(plain, "edge.yaml")
    assert scripts_of(edge) == {}
    assert offers_of(edge) == {"mqtt": Offer("mqtt", ("tcp",), largest_payload_bytes=1472)}
    with pytest.raises(InputError) as refused:
        parse_contender(plain.replace("{tcp", "{http").replace("mqtt: {l", "http: {l"), "edge.yaml")
    assert "says neither publish nor subscribe" in str(refused.value)


def test_a_protocol_may_be_for_publishing_only() -> None:
    only = MESH.replace('    subscribe: {way: stream, fetch: {get: "/subscribe/${uuid}"}, wildcards: true}\n', "")
    only = only.replace('    notification: {when: {$.type: message, $.payload: "*"}, payload: $.payload}\n', "")
    assert not offers_of(parse_contender(only, "mesh.yaml"))["http"].receives


@pytest.mark.parametrize(
    ("old", "new", "told"),
    [
        ("post: /messages,", "psot: /messages,", "speak.http.publish.psot: is not a key here (did you mean `post`?)"),
        ("post: /devices", "pots: /devices", "register.device.pots: is not a key here (did you mean `post`?)"),
        ("ids: $[1].id", "idz: $[1].id", "speak.websocket.idz: is not a key here (did you mean `ids`?)"),
        ("ids: $[1].id", "ids: id", "is not a path such as $.data[0].value"),
        ("${listener.uuid}", "${listener.uid}", "${listener.uid} is not known here (did you mean `listener.uuid`?)"),
        ("${payload}", "${payload|base46}", "has no such filter"),
        ("${payload}", "${Payload}", "${Payload} is not a variable"),
        ("${payload}", "nothing", "speak.http.publish: never says ${payload}"),
        ("${controller.token}", "${token}", "${token} is not known here (did you mean `controller.token`?)"),
        ("way: stream, ", "", "speak.http.subscribe: does not say which `way` (over http: callback, stream, poll)"),
        ("way: stream", "way: observe", "speak.http.subscribe.way: observe does not exist over http"),
        ('fetch: {get: "/subscribe/${uuid}"}, ', "", "has no `fetch`, the request that streams"),
        ('get: "/subscribe', 'get: "subscribe', "it starts with /"),
        ("login: {post: /token", "login: {head: /token", "register.login.head: its answer has no body to look into"),
        ('[subscribe, "${topic}"]', '[subscribe, "${filter}"]', "${filter} is not known here"),
        ("{publish: message,", "{post: /message,", "speak.mqtt.publish.post: cannot be said here"),
        ("is: [201, 204]", "is: yes sir", "register.resource.is: is a status, a list of statuses, or {path: value}"),
        ("is: [201, 204]", "is: [99]", "register.resource.is"),
        ("header:Location ~ /t/(.*)", "header:Location ~ /t/((.*)", "is not a regular expression"),
        ("keep: {token:", "keep: {Token:", "register.login.keep"),
        ('  websocket: "ws://${host}:${port.http}/ws/v2"\n', "", "there is no endpoint for websocket"),
        ("ports: {http: 3000, mqtt: 1883}", "ports: [http, mqtt]", "http has no number, and `external`"),
        ("run: {external: true}", "run: {external: true, command: [x]}", "say exactly one of command, container"),
        ("publish: message,", "publish: message, text: x,", "say json or text"),
        ("post: /token,", "post: /token, get: /x,", "says both get and post"),
        ("way: stream,", "way: stream, deaf_to: {mqtr: no},", "speak.http.subscribe.deaf_to.mqtr: Input should be"),
        ("way: stream,", "way: stream, deaf_to: {http: no},", "that never hear it need no `subscribe`"),
        ("way: stream,", "way: stream, deaf_to: {coap: no},", "there is no endpoint for coap"),
        ("  remove: {", "  remove: {controller: {delete: '/t/${uuid}'}, ", "controller: ${uuid} is not known here"),
        ("  remove: {", "  remove: {controller: {send: bye}, ", "register.remove.controller.send: cannot be said here"),
        ("  remove: {", "  list: {get: devices}\n  remove: {", "register.list.get: 'devices' is not a path"),
        ("  remove: {", "  list: {get: '/d/${name}'}\n  remove: {", "register.list: ${name} is not known here"),
        ("  remove: {", "  list: {each: $.all}\n  remove: {", "register.list: says nothing"),
        ("way: stream,", "way: stream, quiet: true,", "speak.http.subscribe.quiet: nobody is quiet over http"),
        ("way: stream,", 'way: stream, deaf_to: {mqtt: ""},', "should have at least 1 character"),
    ],
)
def test_mistakes_are_told_where_they_are(old: str, new: str, told: str) -> None:
    assert told in mistakes_of(old, new)


def test_a_mistake_has_the_line_of_its_key_even_without_the_list_around_a_step() -> None:
    line = line_of("    post: /devices")
    assert f"mesh.yaml:{line}: register.device.pots" in mistakes_of("post: /devices", "pots: /devices")
    line = line_of("        - {send: [subscribe")
    told = mistakes_of('[subscribe, "${topic}"]', '[subscribe, "${topix}"]')
    assert f"mesh.yaml:{line}: speak.websocket.subscribe.steps" in told
    assert "did you mean `topic`?" in told


def test_the_name_a_notification_answer_uses_must_come_from_somewhere() -> None:
    assert "${key} is not known here" in mistakes_of(", keep: {key: $.k}", "")


def test_both_sides_must_know_what_is_said_when_connecting() -> None:
    told = mistakes_of("  client: *node\n", "")
    assert "speak.mqtt.username: ${uuid} is not known here" in told


ODD = (
    1,
    -1,
    True,
    "x",
    "${",
    "${}",
    "${A}",
    "$.a",
    "*",
    [],
    {},
    [[]],
    {"a": 1},
    {"file": 3},
    [1, "a", {}],
    1.5,
    {"get": 1},
)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(8))
def test_whatever_stands_where_is_a_mistake_or_fine_and_never_a_crash(seed: int) -> None:
    chance = random.Random(seed)
    refused: list[str] = []
    for _ in range(25):
        document = YAML(typ="safe", pure=True).load(MESH)
        for _ in range(chance.choice((1, 2))):
            path = chance.choice([path for path in paths_of(document) if path])
            holder = document
            for step in path[:-1]:
                holder = holder[step]
            holder[path[-1]] = chance.choice(ODD)
        try:
            contender = parse_contender(json.dumps(document), "mesh.yaml")
        except InputError as error:
            refused.append(error.message)
        else:
            scripts_of(contender)
            registration_of(contender)
    assert refused
    assert all("mesh.yaml" in message for message in refused)


def paths_of(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    yield path
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, item in items:
        yield from paths_of(item, (*path, key))


def test_http_says_all_verbs_and_coap_those_it_has() -> None:
    over = """\
name: small
about: Small.
run: {external: true}
ports: {net: 5683}
endpoints: {NAME: "NAME://${host}:${port.net}"}
speak:
  NAME:
    login: [{options: "/"}, {head: "/x", keep: {tag: "header:ETag"}}]
    publish: {put: "/${tag}", text: "${payload}"}
"""
    script = scripts_of(parse_contender(over.replace("NAME", "http"), "small.yaml"))["http"]
    assert [step.verb for step in script.login] == ["options", "head"]
    with pytest.raises(InputError) as caught:
        parse_contender(over.replace("NAME", "coap"), "small.yaml")
    assert "small.yaml:8: speak.coap.login.0.options: cannot be said here" in caught.value.message
