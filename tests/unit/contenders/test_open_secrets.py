"""Secrets of contenders never become arguments, which everybody on a machine can read."""

from __future__ import annotations

import pytest

from battlebrokers.contenders.containers import container_command, secret_environment
from battlebrokers.contenders.reader import parse_contender
from battlebrokers.errors import InputError

FILE = """name: mine
about: x
ports: [mqtt]
endpoints: {{tcp: "mqtt://${{host}}:${{port.mqtt}}"}}
run: {{command: {command}}}
"""


@pytest.mark.parametrize("command", ["[p, --password, hunter2]", "[p, --token=hunter2]", '[p, "mqtt://u:hunter2@h"]'])
def test_a_file_with_a_secret_among_the_arguments_is_refused_without_repeating_it(command: str) -> None:
    with pytest.raises(InputError, match="secret among the arguments") as caught:
        parse_contender(FILE.format(command=command), "mine.yaml")
    assert "hunter2" not in caught.value.message


@pytest.mark.parametrize("command", ["[p, --password-file, x]", '[p, -c, "${dir}/p.conf"]'])
def test_a_file_that_names_another_file_is_fine(command: str) -> None:
    assert parse_contender(FILE.format(command=command), "mine.yaml").name == "mine"


def test_a_container_gets_secrets_in_the_environment_and_the_rest_as_before() -> None:
    env = {"ADMIN_PASSWORD": "hunter2", "LEVEL": "3", "UPLINK": "mqtt://u:hunter2@h"}
    command = container_command("docker", "n", "image", [], host="127.0.0.1", published={}, env=env, mounts={})
    assert "hunter2" not in " ".join(command)
    assert command[-7:] == ["--env", "ADMIN_PASSWORD", "--env", "LEVEL=3", "--env", "UPLINK", "image"]
    assert secret_environment(env) == {name: env[name] for name in ("ADMIN_PASSWORD", "UPLINK")}
