"""What decoded captures add up to between services, against numbers worked out by hand."""

from __future__ import annotations

import pickle
from collections import Counter
from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from battlebrokers.pipeline.stages.examples import ExampleSum
from battlebrokers.pipeline.stages.hops import BY_FINGERPRINT, SIGHTING, hops
from battlebrokers.pipeline.stages.peers import keys, peers_of
from battlebrokers.pipeline.stages.responses import Took
from battlebrokers.pipeline.stages.sieve import Sieve
from battlebrokers.pipeline.stages.sums import Sums
from battlebrokers.pipeline.stages.wires import add_up, share_of, split
from battlebrokers.tables import EXCHANGES, HOPS, MESSAGES, STREAMS, Table

SECOND = 1_000_000_000
_ZERO = {"string": "", "bool": False, "float64": 0.0}


class Wires:
    """A small system: outside → gateway (10) → queue (20) → worker (30) → outside (11)."""

    def __init__(self) -> None:
        self._messages: list[dict[str, Any]] = []
        self._exchanges: list[dict[str, Any]] = []
        ends = {
            10: (None, "gateway"),
            20: ("gateway", "queue"),
            30: ("worker", "queue"),
            11: (None, "worker"),
            40: (None, None),
        }
        self._streams = [
            {
                "stream": stream,
                "client_service": client,
                "server_service": server,
                "server": "10.0.0.4",
                "server_port": 80,
            }
            for stream, (client, server) in ends.items()
        ]

    def say(self, stream: int, sender: str, first_ns: int, last_ns: int, **more: Any) -> int:
        number = len(self._messages)
        row = {"stream": stream, "sender": sender, "number": number, "first_ns": first_ns, "last_ns": last_ns}
        self._messages.append({**row, "protocol": "mqtt", "kind": "PUBLISH", "bytes": 100, "payload_bytes": 50, **more})
        return number

    def exchange(self, stream: int, asker: str, asked_ns: int, answered_ns: int | None, **more: Any) -> None:
        outcome = "unanswered" if answered_ns is None else "answered"
        row = {"stream": stream, "asker": asker, "asked_ns": asked_ns, "answered_ns": answered_ns, "certain": True}
        size = {"request_bytes": 10, "response_bytes": None if answered_ns is None else 20}
        self._exchanges.append({**row, **size, "outcome": outcome, "protocol": "redis", "kind": "GET", **more})

    def batch(self, table: Table) -> pa.RecordBatch:
        streams = [{**row, "messages": len(self._messages)} for row in self._streams]  # numbered all together
        rows = {STREAMS: streams, MESSAGES: self._messages, EXCHANGES: self._exchanges}[table]
        absent = {column.name: None if column.nullable else _ZERO.get(column.kind, 0) for column in table.columns}
        return pa.RecordBatch.from_pylist([{**absent, **row} for row in rows], schema=table.arrow_schema())

    def add_up(self, left_out: Sequence[int] = ()) -> tuple[pa.Table, Sums]:
        sums = Sums()
        without = np.array([keys(np.array([stream]), np.array([0]))[0] for stream in left_out], dtype=np.int64)
        peers = peers_of([self.batch(STREAMS)], without)
        seen = list(add_up(peers, [self.batch(EXCHANGES)], [self.batch(MESSAGES)], sums))
        return pa.concat_tables(seen), sums

    def legs(self, left_out: Sequence[int] = ()) -> pa.Table:
        blocks = [block for _, block in split(self.add_up(left_out)[0], 3)]
        seen = [pa.ipc.open_stream(block).read_all() for block in blocks]
        found = hops(pa.concat_tables(seen) if seen else SIGHTING.empty_table())
        assert found.schema.equals(HOPS.arrow_schema())
        return found

    def hops(self, left_out: Sequence[int] = ()) -> list[dict[str, Any]]:
        found = self.legs(left_out)
        rows: list[dict[str, Any]] = found.sort_by([("trace", "ascending"), ("leg", "ascending")]).to_pylist()
        return rows

    def responses(self, left_out: Sequence[int] = ()) -> dict[tuple[str, str, str], dict[str, Any]]:
        rows = self.add_up(left_out)[1].answers.table().to_pylist()
        return {(row["asker"], row["answerer"], row["kind"]): row for row in rows}

    def traffic(self, left_out: Sequence[int] = ()) -> list[tuple[Any, ...]]:
        return [tuple(row.values()) for row in self.add_up(left_out)[1].traffic.table().to_pylist()]


@pytest.fixture
def wires() -> Wires:
    return Wires()


def test_a_message_with_our_header_is_followed_through_all_services(wires: Wires) -> None:
    ours = {"device": 3, "seq": 9}
    wires.say(10, "client", 1000, 1100, **ours)
    wires.say(20, "client", 1500, 1600, **ours)
    wires.say(30, "server", 2600, 2700, **ours)
    wires.say(11, "server", 2900, 3000, **ours)
    found = wires.hops()
    assert [(row["leg"], row["parent"], row["sender"], row["receiver"], row["inside_ns"]) for row in found] == [
        (1, None, "outside", "gateway", None),
        (2, 1, "gateway", "queue", 400),
        (3, 2, "queue", "worker", 1000),
        (4, 3, "worker", "outside", 200),
    ]
    assert len({row["trace"] for row in found}) == 1
    assert {(row["matched_by"], row["confidence"], row["device"], row["seq"]) for row in found} == {
        ("header", 1.0, 3, 9)
    }


def test_fan_out_gives_every_copy_the_same_parent(wires: Wires) -> None:
    wires.say(10, "client", 0, 10, device=1, seq=1)
    for n in range(3):
        wires.say(10, "server", 100 + n, 110 + n, device=1, seq=1)
    assert [(row["leg"], row["parent"]) for row in wires.hops()] == [(1, None), (2, 1), (3, 1), (4, 1)]


def test_the_same_payload_is_followed_when_it_is_unique_on_each_wire(wires: Wires) -> None:
    wires.say(10, "client", 0, 10, fingerprint=77)
    wires.say(20, "client", 20, 30, fingerprint=77)
    assert [(row["matched_by"], row["confidence"]) for row in wires.hops()] == [("fingerprint", 0.95)] * 2


def test_payloads_that_say_nothing_are_not_followed(wires: Wires) -> None:
    for n in (0, 1):
        wires.say(10, "client", n, n, fingerprint=5)
        wires.say(20, "client", n + 10, n + 10, fingerprint=5)
    wires.say(10, "client", 1, 2, fingerprint=6)
    wires.say(10, "client", 1, 2, fingerprint=7, payload_bytes=2)
    wires.say(20, "client", 3, 4, fingerprint=7, payload_bytes=2)
    assert wires.hops() == []


def test_of_what_is_said_all_the_time_next_to_nothing_is_passed_on(wires: Wires) -> None:
    for n in range(5000):
        wires.say(10, "client", 10 * n, 10 * n + 1, fingerprint=5)
        wires.say(20, "client", 10 * n + 5, 10 * n + 6, fingerprint=5)
        wires.say(10, "client", 10 * n, 10 * n + 1, identity=6, fingerprint=1000 + n)
        wires.say(20, "client", 10 * n + 5, 10 * n + 6, identity=6, fingerprint=1000 + n)
    wires.say(10, "client", 1, 2, fingerprint=77)
    wires.say(20, "client", 20, 30, fingerprint=77)
    for n in range(100):  # ours may repeat
        wires.say(10, "client", n, n, device=1, seq=1)
    seen, _ = wires.add_up()
    sieve = Sieve()
    first, again = sieve.pass_on(seen), sieve.pass_on(seen)
    assert first.num_rows <= 2 + 100 + 2 * 2 * 2
    assert again.num_rows == 2 + 100
    assert (
        hops(first)
        .sort_by([("trace", "ascending"), ("leg", "ascending")])
        .equals(hops(seen).sort_by([("trace", "ascending"), ("leg", "ascending")]))
    )


def test_what_is_said_on_connections_of_its_own_is_held_back_too() -> None:
    base = {name: None if SIGHTING.field(name).nullable else 0 for name in SIGHTING.names}
    base |= {"receiver": "gateway", "protocol": "http", "kind": "POST", "name": "", "by": BY_FINGERPRINT, "trace": 5}
    rows = [
        {**base, "stream": n, "sender": sender, "sent_ns": n, "received_ns": n}
        for n in range(3000)
        for sender in ("outside", "web")
    ]
    seen = pa.Table.from_pylist(rows, schema=SIGHTING)
    passed = Sieve().pass_on(seen)
    assert passed.num_rows <= 4
    assert hops(passed).num_rows == hops(seen).num_rows == 0


def test_a_server_nobody_named_is_known_by_its_address(wires: Wires) -> None:
    wires.say(40, "client", 0, 10, device=1, seq=1)
    (row,) = wires.hops()
    assert (row["sender"], row["receiver"]) == ("outside", "10.0.0.4:80")


def test_responses_are_counted_by_peers_and_kind(wires: Wires) -> None:
    for n in range(1, 101):
        wires.exchange(20, "client", 0, n)
    wires.exchange(20, "client", 0, None, certain=False)  # nobody was paired with it, so nobody may be the wrong one
    wires.exchange(20, "client", 0, 1000, outcome="failed", certain=False)
    wires.exchange(20, "server", 0, 5, kind="PUSH")
    rows = wires.responses()
    assert set(rows) == {("gateway", "queue", "GET"), ("queue", "gateway", "PUSH")}
    found = rows["gateway", "queue", "GET"]
    assert (found["n"], found["answered"], found["failed"], found["unanswered"], found["uncertain"]) == (
        102,
        101,
        1,
        1,
        1,
    )
    assert (found["min_ns"], found["p25_ns"], found["p50_ns"], found["p75_ns"], found["max_ns"]) == (
        1,
        26,
        51,
        76,
        1000,
    )
    assert (found["request_bytes"], found["response_bytes"]) == (1020, 2020)


def test_traffic_says_what_is_neither_asked_nor_answered(wires: Wires) -> None:
    question = wires.say(20, "client", SECOND, SECOND)
    answer = wires.say(20, "server", SECOND + 1, SECOND + 1, bytes=30)
    for n in (0, 1):
        wires.say(20, "server", 2 * SECOND + n, 2 * SECOND + n, bytes=7)
    wires.exchange(20, "client", SECOND, SECOND + 1, request=question, response=answer)
    assert wires.traffic() == [
        (1, "gateway", "queue", "mqtt", "request", 1, 100),
        (1, "queue", "gateway", "mqtt", "response", 1, 30),
        (2, "queue", "gateway", "mqtt", "other", 2, 14),
    ]


def test_what_was_seen_at_both_ends_counts_once(wires: Wires) -> None:
    for stream in (20, 30):
        question = wires.say(stream, "client", SECOND, SECOND, device=1, seq=1)
        wires.exchange(stream, "client", SECOND, SECOND + 1, request=question)
    assert {row[1] for row in wires.traffic()} == {"gateway", "worker"}
    assert [row[1] for row in wires.traffic(left_out=[30])] == ["gateway"]
    assert [key[0] for key in wires.responses(left_out=[30])] == ["gateway"]
    assert [row["sender"] for row in wires.hops(left_out=[30])] == ["gateway"]


def test_a_message_that_passes_one_service_twice_has_the_latest_arrival_as_parent(wires: Wires) -> None:
    for stream, sender, sent_ns in ((10, "client", 0), (20, "client", 20), (20, "server", 40), (10, "server", 60)):
        wires.say(stream, sender, sent_ns, sent_ns + 5, device=1, seq=1)
    assert [(row["leg"], row["parent"], row["inside_ns"]) for row in wires.hops()] == [
        (1, None, None), (2, 1, 15), (3, 2, 15), (4, 3, 15),
    ]  # fmt: skip


def test_different_messages_are_not_each_others_parents(wires: Wires) -> None:
    for seq in range(50):
        wires.say(10, "client", seq, seq + 1, device=1, seq=seq)
        wires.say(20, "client", 1000 - seq, 2000, device=1, seq=seq)
    rows = wires.hops()
    assert {(row["leg"], row["parent"]) for row in rows} == {(1, None), (2, 1)}
    assert {row["seq"]: row["inside_ns"] for row in rows if row["leg"] == 2} == {
        seq: 1000 - seq - (seq + 1) for seq in range(50)
    }


def test_quantiles_of_many_times_are_right_to_a_rank_in_thousands() -> None:
    chance = np.random.default_rng(3)
    times = chance.lognormal(10, 2, 300_000).astype(np.int64)
    whole = Took(n=len(times))
    for part in np.array_split(times, 7):
        one = Took()
        one.time(part)
        one.thin()
        assert sum(map(len, one.times_ns)) <= 8192
        whole.merge(one)
    row = whole.row(("a", "b", "c", "d"))
    assert (row["min_ns"], row["max_ns"]) == (times.min(), times.max())
    assert row["mean_ns"] == pytest.approx(times.mean())
    for name, share in (("p25_ns", 0.25), ("p50_ns", 0.5), ("p99_ns", 0.99)):
        rank = np.count_nonzero(times <= row[name]) / len(times)
        assert rank == pytest.approx(share, abs=0.001)


def _kinds(wires: Wires, *, tasks: int = 1) -> list[dict[str, Any]]:
    whole = Sums()
    for _ in range(tasks):
        _, sums = wires.add_up()
        sums.kinds.add_followed(wires.legs())
        sums.cut()
        whole.merge(sums)
    rows: list[dict[str, Any]] = whole.kinds.table().to_pylist()
    return rows


def test_kinds_tell_how_much_of_what_was_said_and_under_which_names(wires: Wires) -> None:
    for n in range(6):
        wires.say(20, "client", n, n, kind="SET", name="a" if n < 4 else "b", bytes=10, payload_bytes=3)
    wires.say(20, "server", 7, 7, kind="OK", bytes=5, payload_bytes=0)
    rows = _kinds(wires, tasks=2)
    told = [(row["sender"], row["receiver"], row["kind"], row["name"], row["names"], row["n"]) for row in rows]
    assert told == [
        ("gateway", "queue", "SET", None, 2, 12),
        ("gateway", "queue", "SET", "a", 1, 8),
        ("gateway", "queue", "SET", "b", 1, 4),
        ("queue", "gateway", "OK", None, 0, 2),
    ]
    assert [(row["bytes"], row["payload_bytes"]) for row in rows] == [(120, 36), (80, 24), (40, 12), (10, 0)]


def test_kinds_know_questions_answers_and_how_long_each_name_took(wires: Wires) -> None:
    for n in range(100):
        name = "slow" if n % 2 else "quick"
        took_ns = 1_000_000 if n % 2 else 1_000
        question = wires.say(20, "client", n, n, kind="GET", name=name, protocol="redis")
        answer = wires.say(20, "server", n + took_ns, n + took_ns, kind="BULK", protocol="redis")
        wires.exchange(20, "client", n, n + took_ns, name=name, request=question, response=answer)
    rows = {(row["kind"], row["name"]): row for row in _kinds(wires)}
    assert (rows["GET", None]["requests"], rows["GET", None]["responses"]) == (100, 0)
    assert (rows["BULK", None]["requests"], rows["BULK", None]["responses"]) == (0, 100)
    assert rows["GET", None]["p50_ns"] is None
    assert rows["GET", "slow"]["p50_ns"] == pytest.approx(1_000_000, rel=0.02)
    assert rows["GET", "quick"]["p99_ns"] == pytest.approx(1_000, rel=0.02)


def test_of_very_many_names_the_most_frequent_are_told(wires: Wires) -> None:
    for n in range(6000):
        wires.say(20, "client", n, n, kind="SET", name=f"once-{n}")
    for n in range(5):
        wires.say(20, "client", n, n, kind="SET", name="often")
    rows = _kinds(wires)
    assert (rows[0]["name"], rows[0]["n"], rows[0]["names"]) == (None, 6005, 4096)
    assert (rows[1]["name"], rows[1]["n"]) == ("often", 5)
    assert len(rows) == 21


def test_followed_messages_are_counted_by_name_and_their_passages_added_up(wires: Wires) -> None:
    for seq in range(10):
        wires.say(10, "client", 100 * seq, 100 * seq + 1, device=1, seq=seq, name="t")
        wires.say(20, "client", 100 * seq + 11 + seq, 100 * seq + 50, device=1, seq=seq, name="t")
        if seq < 4:
            wires.say(11, "server", 100 * seq + 60, 100 * seq + 61, device=1, seq=seq, name="t")
    sums = Sums()
    sums.passages.add(wires.legs())
    sums.examples.add(wires.legs())
    passages = {(row["sender"], row["receiver"]): row for row in sums.passages.table().to_pylist()}
    assert {way: row["n"] for way, row in passages.items()} == {
        ("outside", "gateway"): 10, ("gateway", "queue"): 10, ("worker", "outside"): 4,
    }  # fmt: skip
    assert passages["outside", "gateway"]["inside_p50_ns"] is None
    assert (passages["gateway", "queue"]["inside_p50_ns"], passages["gateway", "queue"]["inside_p95_ns"]) == (14, 19)
    assert sums.examples.endings({"gateway", "queue"}).to_pylist() == [{"service": "queue", "n": 6}]
    assert sums.examples.endings({"gateway"}).to_pylist() == []
    followed = {row["name"]: row["followed"] for row in _kinds(wires) if row["sender"] == "gateway"}
    assert followed == {None: 0, "t": 10}


def _journeys(count: int, slow_every: int) -> pa.Table:
    """Messages through the gateway; every so manyth waits there for 50 µs more."""
    wires = Wires()
    for seq in range(count):
        at_ns = 1_000_000 * seq
        wait_ns = 50_000 if not seq % slow_every else seq % 7
        wires.say(10, "client", at_ns, at_ns + 10, device=1, seq=seq)
        wires.say(20, "client", at_ns + 20 + wait_ns, at_ns + 30 + wait_ns, device=1, seq=seq)
    return wires.legs()


@pytest.mark.parametrize("tasks", [1, 5])
def test_examples_are_the_slowest_slow_ordinary_and_usual_messages(tasks: int) -> None:
    legs = _journeys(3000, slow_every=100)
    share = share_of(legs["trace"].to_numpy(), tasks)
    whole = ExampleSum()
    for task in range(tasks):
        one = ExampleSum()
        one.add(legs.filter(pa.array(share == task)))
        one.thin()
        whole.merge(one)
    rows = whole.table({"outside", "gateway"}).to_pylist()
    chosen = {tag: {row["seq"] for row in rows if row["chosen"] == tag} for tag in {row["chosen"] for row in rows}}
    assert {row["chosen_from"] for row in rows} == {3000}
    assert chosen["slow"] == set(range(0, 3000, 100))
    assert len(chosen["slowest"]) == 10
    assert chosen["slowest"] < chosen["slow"]
    assert not chosen["ordinary"] & chosen["slow"]
    assert len(chosen["ordinary"]) > 150
    (median,) = chosen["median"]
    assert median % 7 == 3
    assert "stuck" not in chosen
    legs_of = Counter((row["chosen"], row["seq"]) for row in rows)
    assert set(legs_of.values()) == {2}


def test_messages_that_got_stuck_are_examples_too(wires: Wires) -> None:
    for seq in range(9):
        wires.say(10, "client", seq, seq + 1, device=1, seq=seq)
        if seq < 7:
            wires.say(11, "server", seq + 20, seq + 30, device=1, seq=seq)
    sums = ExampleSum()
    sums.add(wires.legs())
    rows = sums.table({"outside", "gateway"}).to_pylist()
    assert {row["seq"] for row in rows if row["chosen"] == "stuck"} == {7, 8}
    assert sums.endings({"outside", "gateway"}).to_pylist() == [{"service": "gateway", "n": 2}]
    assert sums.endings({"outside"}).to_pylist() == []


def test_however_many_sums_are_merged_times_stay_few_and_right() -> None:
    chance = np.random.default_rng(4)
    times = chance.lognormal(10, 2, 600_000).astype(np.int64)
    whole = Took()
    for part in np.array_split(times, 100):
        one = Took(n=len(part))
        one.time(part)
        one.thin()
        whole.merge(one)
        assert sum(map(len, whole.times_ns)) <= 16 * 8192
    row = whole.row(("a", "b", "c", "d"))
    assert (row["n"], row["min_ns"], row["max_ns"]) == (len(times), times.min(), times.max())
    for name, share in (("p25_ns", 0.25), ("p50_ns", 0.5), ("p99_ns", 0.99)):
        rank = np.count_nonzero(times <= row[name]) / len(times)
        assert rank == pytest.approx(share, abs=1 / 8192)


@pytest.mark.slow
def test_however_many_sums_are_merged_names_stay_few_and_counts_right(wires: Wires) -> None:
    for n in range(4096):
        question = wires.say(20, "client", n, n, kind="GET", name=f"{n}", protocol="redis")
        wires.exchange(20, "client", n, n + 1000, name=f"{n}", request=question)
    for n in range(3):
        wires.say(20, "client", n, n, kind="GET", name="often", protocol="redis")
    _, sums = wires.add_up()
    sums.kinds.add_followed(wires.legs())
    sums.cut()
    whole, tasks = Sums(), 20
    for task in range(tasks):
        whole.merge(_renamed(sums, task))
    assert all(sum(table.num_rows for table in tables) <= 2 * 32_768 for tables in vars(whole.kinds).values())
    rows = whole.kinds.table().to_pylist()
    assert (rows[0]["name"], rows[0]["n"], rows[0]["requests"]) == (None, 4099 * tasks, 4096 * tasks)
    assert 32_768 <= rows[0]["names"] <= 2 * 32_768
    assert (rows[1]["name"], rows[1]["n"]) == ("often", 3 * tasks)
    assert rows[2]["p50_ns"] == pytest.approx(1000, rel=0.02)


def _renamed(sums: Sums, task: int) -> Sums:
    """As another task would have found them: with names of its own, but for the most frequent."""
    other = pickle.loads(pickle.dumps(sums))
    for tables in vars(other.kinds).values():
        for place, table in enumerate(tables):
            if "name" in table.column_names:
                names = [name if name == "often" else f"{task}-{name}" for name in table["name"].to_pylist()]
                at = table.column_names.index("name")
                tables[place] = table.set_column(at, "name", pa.array(names, pa.string()))
    return other


def test_sums_travel_without_the_room_they_were_made_in(wires: Wires) -> None:
    for n in range(100):
        question = wires.say(20, "client", n, n, kind="GET", name=f"{n}", protocol="redis")
        wires.exchange(20, "client", n, n + 1000, name=f"{n}", request=question)
    _, sums = wires.add_up()
    sums.cut()
    assert len(pickle.dumps(sums)) < 50_000


@pytest.mark.slow
def test_however_many_sums_are_merged_examples_stay_few_and_the_slowest_stay() -> None:
    legs = _journeys(3000, slow_every=100)
    whole, tasks = ExampleSum(), 300
    for task in range(tasks):
        one = ExampleSum()
        at = legs.column_names.index("trace")
        one.add(legs.set_column(at, "trace", pa.array(legs["trace"].to_numpy() + task * 10_000_000)))
        one.thin()
        whole.merge(one)
    kept = sum(table.num_rows for table in vars(whole)["_candidates"])
    assert 60_000 <= kept <= 200_000
    rows = whole.table({"outside", "gateway"}).to_pylist()
    assert {row["chosen_from"] for row in rows} == {3000 * tasks}
    assert all(row["seq"] % 100 == 0 for row in rows if row["chosen"] in {"slow", "slowest"})
    assert all(row["seq"] % 100 for row in rows if row["chosen"] == "ordinary")
