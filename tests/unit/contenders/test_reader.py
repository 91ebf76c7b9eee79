from __future__ import annotations

from pathlib import Path

import pytest

from battlebrokers.contenders.reader import (
    SPECS,
    find_contender,
    load_contenders,
    parse_contender,
    read_contender,
    read_pairing,
)
from battlebrokers.contenders.spec import Contender
from battlebrokers.errors import ExitCode, InputError, UsageError

MOSQUITTO = (SPECS / "mosquitto.yaml").read_text()


def mistakes_of(text: str) -> str:
    with pytest.raises(InputError) as caught:
        parse_contender(text, "mine.yaml")
    assert caught.value.exit_code is ExitCode.INVALID_INPUT
    return caught.value.message


def test_every_shipped_contender_is_valid_and_named_like_its_file() -> None:
    names = [contender.name for contender in load_contenders()]
    assert names == sorted(path.stem for path in SPECS.glob("*.yaml"))
    assert {"aedes", "amqtt", "mosquitto", "nats", "rabbitmq"} <= set(names)


@pytest.mark.parametrize("path", sorted(SPECS.glob("*.yaml")), ids=lambda path: path.stem)
def test_a_shipped_file_has_at_most_forty_lines(path: Path) -> None:
    lines = [line.strip() for line in path.read_text(encoding="utf-8").splitlines()]
    assert len([line for line in lines if line and not line.startswith("#")]) <= 40


def test_no_shipped_contender_names_an_exporter_nobody_starts() -> None:
    named = {
        contender.name: name
        for contender in load_contenders()
        for name, service in contender.services.items()
        if service.metrics is not None and not contender.run.external
    }
    assert named == {}


def test_a_configuration_text_may_lie_beside_the_file(tmp_path: Path) -> None:
    (tmp_path / "conf").mkdir()
    (tmp_path / "conf" / "mine.conf").write_text("listener ${port.mqtt}\n")
    mine = tmp_path / "mine.yaml"
    start = MOSQUITTO.index("files:")
    head, tail = MOSQUITTO[:start], MOSQUITTO[MOSQUITTO.index("profiles:") :]
    mine.write_text(head + "files: {mosquitto.conf: {file: conf/mine.conf}}\n" + tail)
    assert read_contender(mine).files == {"mosquitto.conf": "listener ${port.mqtt}\n"}
    mine.write_text(head + 'files: {mosquitto.conf: [{file: conf/mine.conf}, "user ${user}\\n"]}\n' + tail)
    assert read_contender(mine).files == {"mosquitto.conf": "listener ${port.mqtt}\nuser ${user}\n"}
    mine.write_text(head + "files: {mosquitto.conf: {file: conf/none.conf}}\n" + tail)
    with pytest.raises(InputError, match=r"mine\.yaml:\d+: files\.mosquitto\.conf: conf/none\.conf cannot be read"):
        read_contender(mine)


def test_a_contender_is_found_by_its_name() -> None:
    assert Contender.find("mosquitto").name == "mosquitto"


def test_an_unknown_name_is_answered_with_the_nearest() -> None:
    with pytest.raises(UsageError, match="did you mean `mosquitto`"):
        find_contender("moskito")


def test_a_contender_can_come_from_a_file_of_ones_own(tmp_path: Path) -> None:
    mine = tmp_path / "mine.yaml"
    mine.write_text(MOSQUITTO.replace("name: mosquitto", "name: mine"))
    assert find_contender(str(mine)).name == "mine"


def test_a_file_that_is_not_there_is_said_to_be_unreadable(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"none\.yaml cannot be read: No such file or directory$") as caught:
        find_contender(str(tmp_path / "none.yaml"))
    assert "bb brokers" in caught.value.hint


def test_a_file_that_is_no_text_is_said_to_be_none(tmp_path: Path) -> None:
    mine = tmp_path / "mine.yaml"
    mine.write_bytes(b"name: \xff")
    with pytest.raises(InputError, match=r"mine\.yaml is not text in UTF-8: byte 7 is wrong"):
        find_contender(str(mine))


def test_an_unknown_key_is_told_with_its_line_and_the_nearest_key() -> None:
    told = mistakes_of(MOSQUITTO.replace("about: Eclipse", "abuot: Eclipse"))
    assert "mine.yaml:2: abuot: is not a key here (did you mean `about`?)" in told


def test_an_unknown_key_deep_inside_names_the_keys_of_its_own_place() -> None:
    told = mistakes_of(MOSQUITTO.replace("also_in:", "alsoin:"))
    assert "needs.mosquitto.alsoin: is not a key here (did you mean `also_in`?)" in told


def test_all_mistakes_are_told_at_once() -> None:
    told = mistakes_of(MOSQUITTO.replace("qos: 2", "qos: 3").replace("within_s: 15", "within_s: -1"))
    assert told.startswith("2 mistakes")
    assert "capabilities.qos" in told
    assert "ready.within_s" in told


def test_a_template_may_only_use_names_it_is_given() -> None:
    told = mistakes_of(MOSQUITTO.replace("listener ${port.ws} ${host}", "listener ${port.wz} ${host}"))
    assert "${port.wz} is not known here (did you mean `port.ws`?)" in told


def test_names_of_tls_are_not_known_outside_tls() -> None:
    assert "${tls.key} is not known here" in mistakes_of(
        MOSQUITTO.replace("allow_anonymous true", "keyfile ${tls.key}")
    )


def test_tls_may_only_add_to_files_a_profile_writes() -> None:
    told = mistakes_of(MOSQUITTO.replace("append:\n    mosquitto.conf:", "append:\n    mosquito.conf:"))
    assert "tls.append.mosquito.conf: no profile writes such a file (did you mean `mosquitto.conf`?)" in told


def test_a_profile_that_is_left_out_is_said_to_be_the_same() -> None:
    untuned = MOSQUITTO[: MOSQUITTO.index("  tuned:")] + MOSQUITTO[MOSQUITTO.index("ready:") :]
    assert "same as stock" in parse_contender(untuned, "mine.yaml").profiles["tuned"].about


def test_exactly_one_service_takes_the_processes_nobody_names() -> None:
    assert 'exactly one service must be ["*"]' in mistakes_of(MOSQUITTO.replace('["*"]', "[mosquitto]"))


def test_the_ready_port_must_be_a_port() -> None:
    assert "mqt is not one of ports (did you mean `mqtt`?)" in mistakes_of(
        MOSQUITTO.replace("{within_s: 15}", "{port: mqt, within_s: 15}")
    )


def test_a_signal_must_exist() -> None:
    assert "is not a signal name" in mistakes_of(MOSQUITTO.replace("signal: TERM", "signal: TREM"))


def test_a_hint_is_looked_for_by_a_regular_expression() -> None:
    assert "is not a regular expression" in mistakes_of(MOSQUITTO + 'hints: [{match: "(", hint: x}]\n')


def test_a_version_pattern_needs_one_group() -> None:
    assert "needs exactly one (group)" in mistakes_of(MOSQUITTO.replace(r"version (\S+)", r"version \S+"))


@pytest.mark.parametrize("text", ["", "[1, 2]", "a: [", "\x00", "name: x\nname: y\n", "- " * 300, "{{{{"])
def test_what_is_no_contender_file_is_a_mistake_and_never_a_crash(text: str) -> None:
    mistakes_of(text)


def test_capabilities_grow_with_the_version() -> None:
    nats = find_contender("nats").capabilities
    assert nats.of("2.9.10").qos == 1
    assert nats.of("2.10.1").qos == 2
    rabbitmq = find_contender("rabbitmq").capabilities
    assert rabbitmq.of("3.10.8").mqtt == ["3.1.1"]
    assert rabbitmq.of("4.0.2").mqtt == ["3.1.1", "5"]
    assert rabbitmq.of("unknown").mqtt == ["3.1.1"]


def test_pairing_is_read_alone_or_with_the_rest_of_a_contender(tmp_path: Path) -> None:
    file = tmp_path / "pairing.yaml"
    file.write_text("pairing:\n  type: header.type\n  answers: {subscribe: subscribed}\n")
    assert read_pairing(file).answers == {"subscribe": "subscribed"}
    whole = (SPECS / "mosquitto.yaml").read_text() + "\npairing: {type: action, id: requestId}\n"
    (tmp_path / "mine.yaml").write_text(whole)
    assert read_pairing(tmp_path / "mine.yaml").id == "requestId"
    pairing = read_contender(tmp_path / "mine.yaml").pairing
    assert pairing is not None
    assert pairing.type == "action"


def test_mistakes_in_a_pairing_are_named_with_their_lines(tmp_path: Path) -> None:
    file = tmp_path / "pairing.yaml"
    file.write_text("pairing:\n  typ: action\n")
    with pytest.raises(InputError, match=r"pairing\.yaml:2.*typ.*\btype\b"):
        read_pairing(file)
    file.write_text("pairing: {answers: {a: b}}\n")
    with pytest.raises(InputError, match="where the type of a message stands"):
        read_pairing(file)
    with pytest.raises(InputError, match="cannot be read"):
        read_pairing(tmp_path / "nowhere.yaml")


def test_a_password_in_an_address_without_its_scheme_is_not_repeated() -> None:
    with pytest.raises(UsageError) as refused:
        find_contender("user:hunter2@127.0.0.1:1883")
    assert "user:•••" in refused.value.message
    assert "hunter2" not in refused.value.message + refused.value.hint
