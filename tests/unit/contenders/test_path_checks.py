from __future__ import annotations

from pathlib import Path

import pytest

from battlebrokers.contenders.reader import parse_contender, read_contender
from battlebrokers.errors import ExitCode, InputError

HUB = """\
name: hub
about: A hub.
needs: {server: {executable: server}, thing: {node: thing}}
install: {npm: [thing@1.2]}
version: [{file: "${thing}/package.json", match: '"version": "(.*)"'}]
ports: [mqtt]
endpoints: {tcp: "mqtt://${host}:${port.mqtt}"}
run: {command: ["${server}"]}
files: {conf/server.conf: "listen"}
logs: [logs/**/*.log]
"""
BOXED = """\
name: boxed
about: In a container.
run: {container: "vendor/boxed:1", mounts: {/etc/boxed.conf: "${dir}/boxed.conf"}}
files: {boxed.conf: "listen"}
ports: {mqtt: 1883}
endpoints: {tcp: "mqtt://${host}:${port.mqtt}"}
"""


def mistakes_of(text: str) -> str:
    with pytest.raises(InputError) as caught:
        parse_contender(text, "hub.yaml")
    assert caught.value.exit_code is ExitCode.INVALID_INPUT
    return caught.value.message


def test_paths_inside_are_no_mistakes() -> None:
    assert parse_contender(HUB, "hub.yaml").logs == ["logs/**/*.log"]
    assert parse_contender(BOXED, "boxed.yaml").run.mounts == {"/etc/boxed.conf": "${dir}/boxed.conf"}


@pytest.mark.parametrize(
    ("before", "after", "told"),
    [
        ("[logs/**/*.log]", '["../*.log"]', "hub.yaml:10: logs.0: '../*.log' leads out of the folder"),
        ("[logs/**/*.log]", "[ok.log, a/../../*]", "hub.yaml:10: logs.1: 'a/../../*' leads out of the folder"),
        ("[logs/**/*.log]", "[/var/log/*.log]", "logs.0: '/var/log/*.log' is an absolute path"),
        ("[logs/**/*.log]", '[""]', "logs.0: '' is no path"),
        ("[logs/**/*.log]", '["**x.log"]', "logs.0: '**x.log' is no pattern"),
        ("conf/server.conf:", "../server.conf:", "hub.yaml:9: files.../server.conf: '../server.conf' leads out"),
        ("conf/server.conf:", "/etc/cron.d/x:", "'/etc/cron.d/x' is an absolute path"),
        ("conf/server.conf:", "output.log:", "'output.log' is where its output is kept"),
        ("logs:", "profiles: {stock: {about: x, files: {a/../../b: x}}}\nlogs:", "'a/../../b' leads out of the folder"),
        ("{executable: server}", "{executable: ../server}", "needs.server.executable: '../server' is no program"),
        ("{executable: server}", "{executable: s, also_in: [bin]}", "needs.server.also_in.0: 'bin' is not an absolute"),
        ("{executable: server}", "{file: [/usr/../x]}", "needs.server.file.0: '/usr/../x' is not an absolute path"),
        ("{node: thing}", "{node: ../../x}", "needs.thing.node: '../../x' is no name of a Node module"),
        ("{node: thing}", "{python: ../x}", "needs.thing.python: '../x' is no name of a Python module"),
        ('"${thing}/package.json"', "/etc/shadow", "version.0.file: '/etc/shadow' is not in the folder of a module"),
        ('"${thing}/package.json"', '"${thing}/../../x"', "version.0.file: '${thing}/../../x' is not in the folder"),
        ('"${thing}/package.json"', '"${server}/x"', "version.0.file: '${server}/x' is not in the folder of a module"),
        ("[thing@1.2]", '["--prefix=/"]', "install.npm.0: '--prefix=/' is no package of a registry"),
        ("[thing@1.2]", "[../thing]", "'../thing' is no package of a registry"),
        ("{npm: [thing@1.2]}", '{pip-own: ["x @ file:///x"]}', "'x @ file:///x' is no package of a registry"),
        ("{npm: [thing@1.2]}", "{npm: [thing], npm-overrides: [short]}", "npm-overrides.0: 'short' pins no version"),
        ("logs:", "beside: {db: {executable: ./db, command: [x]}}\nlogs:", "beside.db.executable: './db' is no pro"),
        ("logs:", 'services: {hub: {processes: ["*"], filter: "-w/etc/x"}}\nlogs:', "'-w/etc/x' would be an option"),
        ("logs:", 'services: {hub: {processes: ["*"], cgroup: ../x}}\nlogs:', "cgroup: '../x' leads out of"),
        ('["${server}"]', '["${server}"], namespace: ../x, host: a', "run.namespace: '../x' is no name of a namespace"),
    ],
)  # fmt: skip
def test_what_leads_out_is_told_with_its_line(before: str, after: str, told: str) -> None:
    assert HUB.count(before) >= 1
    assert told in mistakes_of(HUB.replace(before, after))


@pytest.mark.parametrize(
    ("before", "after", "told"),
    [
        ('"${dir}/boxed.conf"', "/etc", "'/etc' is not in the folder of the run (write it with `files`"),
        ('"${dir}/boxed.conf"', '"${dir}/../x"', "'${dir}/../x' leads out of the folder"),
        ('"${dir}/boxed.conf"', '"${dir}/a:/etc"', "'${dir}/a:/etc' is no plain path"),
        ("/etc/boxed.conf:", '"/etc:/host":', "'/etc:/host' is no path inside the container"),
        ('"vendor/boxed:1"', '"--privileged"', "run.container: '--privileged' is no image"),
        ('container: "vendor/boxed:1", mounts: {/etc/boxed.conf: "${dir}/boxed.conf"}', 'compose: "../c.yaml"',
         "run.compose: '../c.yaml' is not in the folder of the run"),
    ],
)  # fmt: skip
def test_a_container_sees_nothing_but_the_folders_of_its_run(before: str, after: str, told: str) -> None:
    assert BOXED.count(before) == 1
    assert told in mistakes_of(BOXED.replace(before, after))


def test_all_of_them_are_told_at_once() -> None:
    broken = HUB.replace("logs/**/*.log", "../x").replace("conf/server.conf", "/x").replace("thing@1.2", "-g")
    told = mistakes_of(broken)
    assert told.startswith("3 mistakes")


def test_no_text_is_read_from_outside_the_folder_of_the_file(tmp_path: Path) -> None:
    secret = tmp_path / "secret.conf"
    secret.write_text("secret")
    own = tmp_path / "own"
    own.mkdir()
    (own / "link.conf").symlink_to(secret)
    (own / "inside.conf").symlink_to(own / "plain.conf")
    (own / "plain.conf").write_text("plain")
    (own / "folder").mkdir()
    hub = own / "hub.yaml"

    def reading(path: str) -> str:
        hub.write_text(HUB.replace('"listen"', f'{{file: "{path}"}}'))
        return str(read_contender(hub).files["conf/server.conf"])

    assert reading("inside.conf") == "plain"
    for path in ("../secret.conf", str(secret), "link.conf", "folder/../../secret.conf", "../../../../../etc/passwd"):
        with pytest.raises(InputError, match="cannot be read: it is outside the folder of this file") as caught:
            reading(path)
        assert "hub.yaml:9: files.conf/server.conf" in caught.value.message
    with pytest.raises(InputError, match="it is not a regular file"):
        reading("folder")
    with pytest.raises(InputError, match="cannot be read"):
        reading("a\\0b")
