from __future__ import annotations

import pytest

from battlebrokers.contenders.reader import parse_contender
from battlebrokers.errors import InputError

LETTERS = """\
name: letters
about: Letters at an exchange of its own.
run: {external: true}
ports: {amqp: 5672}
endpoints: {amqp: "amqp://${host}:${port.amqp}"}
speak:
  amqp:
    login: {publish: hello, text: "${name}"}
    publish: {publish: "in.${resource}", text: "${payload}"}
    subscribe:
      steps: {subscribe: "out.${resource}", headers: {exchange: ex}}
      undo: {publish: enough, text: "${resource}"}
    logout: {publish: bye, text: "${name}"}
"""


def test_what_amqp_can_be_told_is_taken() -> None:
    parse_contender(LETTERS, "letters.yaml")


@pytest.mark.parametrize(
    ("old", "new", "told"),
    [
        ("login: {publish: hello, text", "login: {subscribe: hello, text", "8: speak.amqp.login.subscribe: cannot be"),
        ("undo: {publish: enough,", "undo: {subscribe: enough,", "12: speak.amqp.subscribe.undo.subscribe: cannot be"),
        ("logout: {publish: bye,", "logout: {subscribe: bye,", "13: speak.amqp.logout.subscribe: cannot be said here"),
        ("publish: hello,", "publish: hello, keep: {a: $.a},", "8: speak.amqp.login.keep: nobody answers a message"),
        ("publish: enough,", "publish: enough, is: 200,", "12: speak.amqp.subscribe.undo.is: nobody answers"),
        ('publish: {publish: "in', 'publish: {answer: {$.a: 1}, publish: "in', "9: speak.amqp.publish.answer: nobody"),
        ('publish: {publish: "in', 'publish: {subscribe: "in', "9: speak.amqp.publish.subscribe: does not publish"),
        (
            "{exchange: ex}",
            "{exchange: ex, x: y}",
            "11: speak.amqp.subscribe.steps.headers.x: a binding has no",
        ),
        (
            "steps: {subscribe",
            "steps: {text: a, subscribe",
            "11: speak.amqp.subscribe.steps.text: a binding carries",
        ),
        ("steps: {subscribe", "steps: {publish", "11: speak.amqp.subscribe.steps: never says `subscribe`"),
        ("steps: {subscribe", "fetch: {subscribe", "11: speak.amqp.subscribe.fetch: nothing is fetched when"),
    ],
)
def test_what_it_has_no_place_for_is_refused_where_it_stands(old: str, new: str, told: str) -> None:
    assert old in LETTERS
    with pytest.raises(InputError) as caught:
        parse_contender(LETTERS.replace(old, new), "letters.yaml")
    assert f"letters.yaml:{told}" in str(caught.value) + caught.value.message
