"""What a contender file may say of datagrams: where its sockets live, where a topic's go, how a client subscribes."""

from __future__ import annotations

import pytest

from battlebrokers.contenders.dialogue import scripts_of
from battlebrokers.contenders.reader import parse_contender
from battlebrokers.errors import InputError
from battlebrokers.protocols.script import Say

NET = """\
name: net
about: Topics are addresses.
run: {external: true}
ports: {http: 8080}
endpoints: {http: "http://${host}:${port.http}", udp: "udp://1.1.1.1:5005"}
register:
  resource: {post: /resources, keep: {address: $.address, port: $.port}}
  device: {post: /seats, keep: {namespace: $.namespace}}
  client: {post: /seats, keep: {namespace: $.namespace, mac: $.mac}}
speak:
  udp:
    namespace: "${namespace}"
    to: "${address}:${port}"
    publish: {send: "${payload}"}
    subscribe:
      at: ":${port}"
      steps: {post: "/resources/${address}/subscribers", json: {mac: "${mac}"}, is: 201}
      undo: {delete: "/resources/${address}/subscribers/${mac}"}
"""


def mistakes_of(old: str, new: str) -> str:
    assert old in NET
    with pytest.raises(InputError) as caught:
        parse_contender(NET.replace(old, new, 1), "net.yaml")
    return caught.value.message


def test_all_of_it_reaches_the_links() -> None:
    script = scripts_of(parse_contender(NET, "net.yaml"))["udp"]
    assert (script.namespace, script.to) == ("${namespace}", "${address}:${port}")
    assert script.publish == Say("send", text="${payload}")
    assert script.listening is not None
    assert script.listening.at == ":${port}"
    assert [(step.verb, step.repeat) for step in [*script.listening.steps, *script.listening.undo]] == [
        ("post", True),
        ("delete", True),
    ]


@pytest.mark.parametrize(
    ("old", "new", "line", "told"),
    [
        ('to: "${address}:${port}"', 'to: "${address}"', 13, "no address with a port"),
        ('to: "${address}:${port}"', 'to: "${adress}:${port}"', 13, "${adress} is not known here"),
        ('namespace: "${namespace}"\n    to', 'namespace: "${mac}"\n    to', 12, "${mac} is not known here"),
        ('at: ":${port}"', 'at: "${payload}:1"', 16, "${payload} is not known here"),
        ('at: ":${port}"', 'at: ":${port}"\n      wildcards: true', 16, "has no address"),
        ('at: ":${port}"', 'att: ":${port}"', 16, "is not a key here"),
        ('publish: {send: "${payload}"}', 'publish: {post: /x, text: "${payload}"}', 14, "cannot be said here"),
    ],
)
def test_each_mistake_is_told_with_its_line(old: str, new: str, line: int, told: str) -> None:
    found = mistakes_of(old, new)
    assert told in found
    assert f"net.yaml:{line}" in found


def test_requests_need_an_endpoint_and_other_protocols_listen_nowhere_else() -> None:
    without = NET.replace('http: "http://${host}:${port.http}", ', "")
    with pytest.raises(InputError) as caught:
        parse_contender(without, "net.yaml")
    assert "a request needs an endpoint for http" in caught.value.message
    over_coap = NET.replace("udp:", "coap:").replace('"udp://', '"coap://')
    with pytest.raises(InputError) as caught:
        parse_contender(over_coap, "net.yaml")
    assert "namespace" in caught.value.message


def test_rights_are_a_need(monkeypatch: pytest.MonkeyPatch) -> None:
    from battlebrokers.contenders.availability import Available, Missing, availability

    needy = parse_contender(NET.replace("run:", "needs: {root: {rights: root}}\nrun:"), "net.yaml")
    monkeypatch.setattr("os.geteuid", lambda: 1000)
    assert availability(needy) == Missing("the right to act as root", "Run it with sudo.")
    monkeypatch.setattr("os.geteuid", lambda: 0)
    assert isinstance(availability(needy), Available)
