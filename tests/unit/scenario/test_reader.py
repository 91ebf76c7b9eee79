from __future__ import annotations

import json
import os
from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given
from hypothesis import strategies as st

from battlebrokers.errors import ExitCode, InputError, ScenarioError, UsageError
from battlebrokers.scenario.model import Scenario
from battlebrokers.scenario.reader import load_scenario, read_scenario, scaled_count
from battlebrokers.scenario.shipped import shipped_scenarios
from support.examples import examples

GOOD = """\
name: small
fleets:
  air:
    devices: 20
    topic: "a/{device}"
    payload: {random_bytes: 30}
    every: 1s
clients:
  all: {count: 3, subscribe: "a/#"}
phases: {measure: 10s}
expect: ["lost == 0"]
"""

BAD = """\
name: bad
sed: 7
fleets:
  air:
    devices: ten
    topic: "a/+/b"
    payload: {template: '{itn:0..1}', file: nope.txt}
    evry: 1s
    away: {at: 50s, for: 3s, how: abrubt}
  noise:
    devices: 3
    topic: x
    payload: {random_bytes: 4, text: a}
    every: 1s
    topic_alias: true
    devices: 4
clients:
  c: {count: 1, subscribe: ["a/#/b", "$share/x/y", ok], qos: 3}
phases: {measure: 5, connect: 0/s}
expect: ["los == 0", "delivery_p99 < 5"]
"""


def mistakes(text: str, *overrides: str) -> list[str]:
    with pytest.raises(ScenarioError) as caught:
        read_scenario(text, "f.yaml", overrides)
    assert caught.value.exit_code == ExitCode.INVALID_INPUT
    return [str(mistake) for mistake in caught.value.mistakes]


def test_a_good_scenario_is_read(tmp_path: Path) -> None:
    path = tmp_path / "small.yaml"
    path.write_text(GOOD)
    loaded = load_scenario(str(path))
    assert (loaded.source, loaded.text, loaded.title) == ("small.yaml", GOOD, "small")
    assert loaded.scenario.fleets["air"].devices == 20


def test_all_mistakes_are_reported_at_once_with_line_path_and_nearest_key() -> None:
    assert mistakes(BAD) == [
        "f.yaml:2: sed: unknown key `sed` (did you mean `seed`?)",
        "f.yaml:5: fleets.air.devices: 'ten' is not a count (write it like 50, \"10k\" or \"1M\")",
        (
            "f.yaml:6: fleets.air.topic: 'a/+/b' contains a wildcard "
            "(devices publish to exact topics; wildcards are for `subscribe`)"
        ),
        "f.yaml:7: fleets.air.payload.template: {itn:0..1} is not a field (did you mean `int`?)",
        "f.yaml:8: fleets.air.evry: unknown key `evry` (did you mean `every`?)",
        "f.yaml:9: fleets.air.away.how: must be abrupt or clean, not 'abrubt' (did you mean `abrupt`?)",
        (
            "f.yaml:13: fleets.noise.payload: needs exactly one content, found `text` and `random_bytes` "
            "(one of text, value, fixed, random_bytes, template, file)"
        ),
        "f.yaml:15: fleets.noise.topic_alias: `topic_alias` exists in MQTT 5 only (add `version: 5`)",
        "f.yaml:16: fleets.noise.devices: `devices` is said twice (first in line 11)",
        "f.yaml:18: clients.c.qos: must be 0, 1 or 2, not 3",
        "f.yaml:18: clients.c.subscribe.0: 'a/#/b' is not a valid filter (# must be the whole last level)",
        (
            "f.yaml:18: clients.c.subscribe.1: '$share/x/y' names a shared group "
            "(write the filter alone and `share: GROUP` beside it)"
        ),
        "f.yaml:19: phases.connect: 0 would never happen (leave the key out if you mean as fast as possible)",
        "f.yaml:19: phases.measure: 5 has no unit (a duration needs one: \"5s\" or \"5ms\")",
        "f.yaml:20: expect.0: 'los' is not measured (did you mean `lost`?)",
        "f.yaml:20: expect.1: 5 has no unit (a duration needs one: \"5s\" or \"5ms\")",
    ]  # fmt: skip


def test_zero_is_zero_and_absent_is_absent() -> None:
    loaded = read_scenario(GOOD, "f", ["fleets.air.devices=0", "fleets.air.at_most=0", "fleets.air.keep_alive=0"])
    assert (loaded.scenario.fleets["air"].devices, loaded.scenario.fleets["air"].at_most) == (0, 0)
    assert loaded.resolved()["fleets"]["air"]["keep_alive"] == "0"
    assert read_scenario(GOOD, "f").scenario.fleets["air"].at_most is None


@pytest.mark.parametrize("value", ["true", "1.5", "-1", "''", "[]", "{}", "three"])
def test_a_count_is_a_whole_number_and_nothing_else(value: str) -> None:
    assert len(mistakes(GOOD, f"fleets.air.devices={value}")) == 1


@pytest.mark.parametrize("value", ["true", "'1'", "1.0", "3", "-1"])
def test_a_quality_of_service_is_0_1_or_2(value: str) -> None:
    assert len(mistakes(GOOD, f"fleets.air.qos={value}")) == 1


def test_options_override_anything() -> None:
    loaded = read_scenario(
        GOOD,
        "f",
        [
            "fleets.air.devices=7",
            "phases.measure=5s",
            "clients.all.subscribe=[x, y]",
            "clients.all.subscribe.0=b/#",
            "fleets.air.will.topic=gone/{device}",
            "expect.1=sent == 5",
            "clients.more={count: 1, subscribe: z}",
            "version=5",
        ],
    )
    scenario = loaded.scenario
    assert scenario.fleets["air"].devices == 7
    assert scenario.clients["all"].subscribe == ("b/#", "y")
    assert scenario.clients["more"].subscribe == ("z",)
    assert scenario.fleets["air"].will is not None
    assert scenario.expect == ["lost == 0", "sent == 5"]
    assert scenario.version == "5"
    assert loaded.title == "small with 8 settings changed"


def test_null_removes_a_key() -> None:
    assert read_scenario(GOOD, "f", ["expect=null", "fleets.air.payload.size=null"]).scenario.expect == []
    assert read_scenario(GOOD, "f", ["expect.0=null"]).scenario.expect == []
    assert mistakes(GOOD, "phases.measure=null") == ["--set phases.measure=null: phases.measure: `measure` is missing"]


@pytest.mark.parametrize(
    ("override", "mistake"),
    [
        ("foo", "--set foo: needs the form path=value (such as --set fleets.air.devices=10)"),
        ("=5", "--set =5: needs the form path=value (such as --set fleets.air.devices=10)"),
        ("a..b=5", "--set a..b=5: needs the form path=value (such as --set fleets.air.devices=10)"),
        ("fleets.ari.devices=3", "--set fleets.ari.devices=3: there is no `ari` in fleets (did you mean `air`?)"),
        ("expect.5=x", "--set expect.5=x: expect is a list of 1; '5' is no place in it (0 … 1)"),
        ("name.x=1", "--set name.x=1: name is a value and has nothing inside"),
        ("phases.mesure=1s", "--set phases.mesure=1s: phases.mesure: unknown key `mesure` (did you mean `measure`?)"),
        (
            "fleets.air.every=5",
            '--set fleets.air.every=5: fleets.air.every: 5 has no unit (a duration needs one: "5s" or "5ms")',
        ),
    ],
)
def test_a_wrong_option_is_blamed_by_its_name(override: str, mistake: str) -> None:
    assert mistakes(GOOD, override) == [mistake]


def test_scale_multiplies_counts_and_says_so() -> None:
    loaded = read_scenario(GOOD, "f", [], 0.1)
    assert (loaded.scenario.fleets["air"].devices, loaded.scenario.clients["all"].count) == (2, 1)
    assert loaded.title == "small at scale 0.1"
    assert read_scenario(GOOD, "f", ["seed=3"], 2).title == "small at scale 2 with seed=3"
    assert read_scenario(GOOD, "f", [f"about={'x' * 90}"]).title == "small with 1 setting changed"


def test_scaling_never_makes_nothing_of_something() -> None:
    assert [scaled_count(n, 0.001) for n in (0, 1, 999, 1000, 1499, 1500)] == [0, 1, 1, 1, 1, 2]


@pytest.mark.parametrize("scale", [0.0, -1.0, float("nan"), float("inf")])
def test_a_senseless_scale_is_a_usage_error(scale: float) -> None:
    with pytest.raises(UsageError):
        load_scenario("smart-city", [], scale)


def test_files_that_are_no_scenarios_give_clear_errors(tmp_path: Path) -> None:
    (tmp_path / "binary.yaml").write_bytes(bytes(range(256)))
    (tmp_path / "huge.yaml").write_bytes(b"a" * 2_000_000)
    for name, part in (
        ("", "folder"),
        ("absent.yaml", "no scenario"),
        ("binary.yaml", "not a text file"),
        ("huge.yaml", "larger"),
    ):
        with pytest.raises(InputError, match=part) as caught:
            load_scenario(str(tmp_path / name))
        assert caught.value.exit_code == ExitCode.INVALID_INPUT
        assert caught.value.hint


def test_a_name_that_is_nearly_right_gets_the_right_one() -> None:
    with pytest.raises(InputError) as caught:
        load_scenario("smart-cty")
    assert caught.value.hint == "did you mean `smart-city`?"


def test_the_beginning_of_a_name_gets_those_that_begin_so() -> None:
    with pytest.raises(InputError) as caught:
        load_scenario("middleware")
    assert caught.value.hint == "did you mean `middleware-large` or `middleware-small`?"


def test_a_name_like_none_gets_them_all() -> None:
    with pytest.raises(InputError) as caught:
        load_scenario("nonsense")
    assert "did you mean" not in caught.value.hint
    assert all(name in caught.value.hint for name in shipped_scenarios())


@pytest.mark.parametrize("name", ["", "\0", "x" * 5000, "/dev/null", "a/b/c", "~", "."])
def test_strange_names_are_no_crash(name: str) -> None:
    with pytest.raises((InputError, UsageError)):
        load_scenario(name)


def test_a_pipe_nobody_writes_to_is_empty_and_one_with_a_writer_is_read(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe.yaml"
    os.mkfifo(pipe)
    with pytest.raises(ScenarioError, match="is empty"):
        load_scenario(str(pipe))
    text = (
        b"name: s\nfleets: {f: {devices: 1, topic: t, payload: {random_bytes: 9}, every: 1/s}}\nphases: {measure: 1s}\n"
    )
    reading, writing = os.pipe()
    os.write(writing, text)
    os.close(writing)
    try:
        assert load_scenario(f"/dev/fd/{reading}").scenario.name == "s"
    finally:
        os.close(reading)


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")
def test_a_file_we_may_not_read_is_told_so(tmp_path: Path) -> None:
    path = tmp_path / "secret.yaml"
    path.write_text(GOOD)
    path.chmod(0)
    with pytest.raises(InputError, match="may not be read"):
        load_scenario(str(path))


def test_permission_is_asked_for_in_the_hint(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr("battlebrokers.scenario.reader.open", refuse, raising=False)
    with pytest.raises(InputError, match="may not be read") as caught:
        load_scenario(str(tmp_path / "x.yaml"))
    assert "chmod" in caught.value.hint


def test_a_resolved_scenario_can_be_read_again() -> None:
    loaded = read_scenario(GOOD, "f", ["defaults={qos: 1, keep_alive: 5s}", "clients.all.away={at: 1s, for: 2s}"])
    resolved = loaded.resolved()
    assert resolved["fleets"]["air"]["qos"] == 1
    assert resolved["clients"]["all"]["keep_alive"] == "5s"
    assert "receive_maximum" not in resolved["fleets"]["air"]
    assert Scenario.model_validate(resolved).plain() == resolved


VALUES = st.recursive(
    st.one_of(
        st.none(),
        st.booleans(),
        st.integers(),
        st.floats(),
        st.text(max_size=10),
        st.sampled_from(["1s", "5/s", "a/#"]),
    ),
    lambda inner: st.one_of(
        st.lists(inner, max_size=3),
        st.dictionaries(st.sampled_from(["devices", "topic", "at", "for", "text", "x"]), inner, max_size=3),
    ),
    max_leaves=5,
)
PATHS = st.sampled_from(
    ["fleets", "fleets.air", "fleets.air.topic", "fleets.air.payload", "fleets.air.payload.random_bytes", "tls", "seed",
     "fleets.air.every", "clients", "clients.all.subscribe", "phases", "phases.measure", "expect", "defaults", "name",
     "fleets.air.away", "clients.all.will"]
)  # fmt: skip


@given(st.dictionaries(PATHS, VALUES, max_size=4))
@examples(200, suppress_health_check=[HealthCheck.too_slow])
def test_whatever_stands_in_a_scenario_is_a_mistake_or_valid(changes: dict[str, object]) -> None:
    with suppress(ScenarioError):
        read_scenario(GOOD, "f", [f"{path}={json.dumps(value)}" for path, value in changes.items()])
