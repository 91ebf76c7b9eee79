"""Pairing of requests and answers, once for all protocols."""

from __future__ import annotations

from battlebrokers.dissect import talk as talk_module
from battlebrokers.dissect.payload_marks import fingerprint_of
from battlebrokers.dissect.talk import CLIENT, SERVER, Found, Talk
from battlebrokers.tables.message_header import HEADER, VERSION


def pairs(talk: Talk) -> list[tuple[int, int, bool]]:
    return [(ask.number, response, ask.certain) for ask, response in talk.answered]


def say(talk: Talk, sender: int = CLIENT, size: int = 10) -> int:
    return talk.add(sender, 0, size, "K")


def test_numbers_go_on_after_the_driver_took_some():
    talk = Talk("p")
    assert [say(talk), say(talk)] == [0, 1]
    assert talk.take()[0] == 0
    assert say(talk) == 2
    first, fields = talk.take()
    assert (first, Found(*fields)) == (2, Found(CLIENT, 0, 10, "p", "K", "", "", False, 0, None, None, None, None))


def test_the_oldest_request_under_a_key_is_answered_first():
    talk = Talk("p")
    for number in (0, 1):
        talk.ask("key", number, ordered=True)
    talk.ask("other", 2)
    assert talk.waiting("key") == 2
    assert talk.answer("key", 3)
    assert talk.answer("other", 4)
    assert pairs(talk) == [(0, 3, True), (2, 4, True)]


def test_an_answer_nobody_asked_for_is_refused():
    talk = Talk("p")
    assert not talk.answer("key", 0)
    assert talk.answered == []


def test_parts_of_an_answer_add_up():
    talk = Talk("p")
    talk.ask("key", say(talk))
    for _ in range(3):
        assert talk.answer("key", say(talk, SERVER, 7), final=False)
    talk.answer("key", say(talk, SERVER))
    ((ask, response),) = talk.answered
    assert (ask.first, ask.part_bytes, response) == (1, 21, 4)


def test_an_early_answer_waits_for_the_request_that_had_begun():
    talk = Talk("p")
    talk.before = lambda *_: True
    answer = say(talk, SERVER)
    assert not talk.answer("key", answer, early=True)
    talk.ask("key", say(talk))
    assert pairs(talk) == [(1, 0, True)]


def test_an_early_answer_may_grow_until_its_request_is_whole():
    talk = Talk("p")
    asked: list[tuple[int, ...]] = []
    talk.before = lambda *places: asked.append(places) or True
    answer = say(talk, SERVER)
    talk.answer("key", answer, final=False, early=True)
    talk.extend(answer, 25, 0)
    talk.take()
    talk.ask("key", say(talk))
    talk.answer("key", say(talk, SERVER))
    assert asked == [(CLIENT, 0, SERVER, 24)]
    assert [ask.part_bytes for ask, _ in talk.answered] == [25]


def test_an_early_answer_is_dropped_when_the_request_began_after_it():
    talk = Talk("p")
    talk.before = lambda *_: False
    talk.answer("key", say(talk, SERVER), early=True)
    talk.ask("key", say(talk))
    assert (pairs(talk), talk.waiting("key")) == ([], 1)
    talk.before = lambda *_: True
    talk.ask("key", say(talk))
    assert talk.waiting("key") == 2


def test_early_answers_are_bounded():
    talk = Talk("p")
    for key in range(1000):
        for _ in range(3):
            talk.answer(key % 500, say(talk, SERVER), early=True)
    assert len(talk._early) <= talk_module._EARLY_KEYS + 1


def test_doubt_strikes_pairs_by_order_only_and_ends_with_a_rest():
    talk = Talk("p")
    talk.ask("order", 0, ordered=True)
    talk.ask("id", 1)
    talk.doubt()
    talk.ask("order", 2, ordered=True)
    talk.answer("order", 3)
    talk.answer("id", 4)
    talk.rested()
    assert not talk.doubting
    talk.ask("order", 5, ordered=True)
    talk.answer("order", 6)
    assert pairs(talk) == [(0, 3, False), (1, 4, True), (2, -1, False), (5, 6, True)]


def test_a_rest_without_doubt_changes_nothing():
    talk = Talk("p")
    talk.ask("order", 0, ordered=True)
    talk.rested()
    assert talk.waiting("order") == 1


def test_whoever_waits_at_the_end_was_not_answered():
    talk = Talk("p")
    talk.ask("a", 0)
    talk.ask("b", 1, ordered=True)
    talk.end()
    assert pairs(talk) == [(0, -1, True), (1, -1, True)]
    assert list(talk.open_asks()) == []


def test_open_requests_are_bounded(monkeypatch):
    monkeypatch.setattr(talk_module, "_OPEN_ASKS", 10)
    talk = Talk("p")
    for number in range(25):
        talk.ask("key", number)
    assert talk.waiting("key") == 10
    assert pairs(talk) == [(number, -1, True) for number in range(15)]


def test_our_header_and_a_fingerprint_are_found_in_a_payload():
    talk = Talk("p")
    talk.add(CLIENT, 0, 9, "K", payload=b"words")
    talk.add(CLIENT, 0, 9, "K", payload=HEADER.pack(VERSION << 24 | 77, 5, 123) + b"more")
    plain, ours = talk.message(0), talk.message(1)
    assert (plain.fingerprint, plain.device, plain.payload_bytes) == (fingerprint_of(b"words"), None, 5)
    assert (ours.device, ours.seq) == (77, 5)


def test_fingerprints_are_the_same_on_every_machine():
    assert fingerprint_of(b"words") == 0x86DA0AEE43E6678C


def test_a_payload_that_is_not_all_there_has_no_fingerprint():
    talk = Talk("p")
    talk.add(CLIENT, 0, 9, "K", payload=b"wor", payload_bytes=5)
    assert (talk.message(0).fingerprint, talk.message(0).payload_bytes) == (None, 5)


def test_a_message_may_be_made_longer_while_somebody_keeps_it():
    talk = Talk("p")
    number = say(talk)
    talk.extend(number, 20, 3)
    assert (talk.message(number).end, talk.message(number).payload_bytes) == (20, 3)
    _, talk.kept[number] = talk.take()
    talk.extend(number, 30, 4)
    assert (talk.message(number).end, talk.message(number).payload_bytes) == (30, 7)
    talk.extend(99, 30, 4)
