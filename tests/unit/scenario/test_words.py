from __future__ import annotations

from battlebrokers.scenario.plan import Plan, build_plan
from battlebrokers.scenario.reader import read_scenario
from battlebrokers.scenario.words import notes, tell

TEXT = """\
name: smart-city
fleets:
  parking: {devices: 600, topic: "city/parking/{device}", payload: {template: '{"free": {int:0..1}}'}, every: 20s..60s}
  air: {devices: 200, topic: "city/air/{device}", payload: {random_bytes: 180..400}, every: poisson 5s, qos: 1}
  traffic: {devices: 80, topic: "city/traffic/{device}", payload: {random_bytes: 4KiB}, every: 1s, retain: true}
  cameras:
    devices: 5
    topic: "city/camera/{device}"
    payload: {random_bytes: normal 256KiB ± 64KiB}
    every: 10s
    at_most: 50 messages
clients:
  dashboard: {count: 2, subscribe: ["city/#"], qos: 1}
  parking-app: {count: 1, subscribe: ["city/parking/+"]}
  archive: {count: 4, subscribe: ["city/#"], share: archive, session: persistent}
phases: {connect: 200/s, warm_up: 10s, measure: 60s, cool_down: 5s, drain: 10s}
"""


def plan(*overrides: str) -> Plan:
    return build_plan(read_scenario(TEXT, "f", overrides).scenario)


def test_a_plan_is_told_in_one_sentence() -> None:
    assert tell(plan()) == (
        "885 devices and 7 clients join in 4.5 s; about 136 messages/s of 3.39 KiB on average are sent for 60 s "
        "and become about 422 deliveries/s; the run takes about 81 s."
    )


def test_nobody_listening_and_nothing_said_are_told_too() -> None:
    assert ", and nobody listens;" in tell(plan("clients=null"))
    silent = tell(plan("fleets=null", "phases.connect=null", "clients={one: {count: 1}}"))
    assert (
        silent
        == "1 client joins at once; nothing is sent, the connections are held for 60 s; the run takes about 77 s."
    )


def test_one_message_a_second_is_told_in_the_singular() -> None:
    one = "fleets={one: {devices: 1, topic: a, payload: {text: hello there}, every: 1s}}"
    told = tell(plan(one, "clients={all: {count: 1, subscribe: a}}"))
    assert "about 1 message/s of" in told
    assert "is sent for 60 s and becomes about 1 delivery/s;" in told


def test_notes_say_what_the_sentence_leaves_out() -> None:
    found = notes(
        plan(
            "fleets.air.staggered=false",
            "fleets.traffic.staggered=false",
            "fleets.air.payload={random_bytes: 4}",
            "repetitions=3",
            "clients.dashboard.away={at: 5s, for: 2s, every: 10s}",
            "clients.parking-app.reads=5/s",
            "fleets.air.join=3s",
        )
    )
    assert found == [
        "air: payloads carry no header and are matched by topic and order.",
        "traffic: all 80 devices speak at the same moment (not staggered).",
        "cameras: each device falls silent after 50 messages.",
        "air: begin to speak 3s after the start of the load.",
        "dashboard: drop their connections at 5s and come back 2s later, again every 10s.",
        "parking-app: reads only 5/s.",
        "archive: shared group `archive`, each message goes to one of 4.",
        "After the load it waits up to 10 s for messages, up to 100 s while they keep arriving.",
        "All of it 3 times.",
    ]
