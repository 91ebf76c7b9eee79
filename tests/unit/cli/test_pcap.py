"""`bb pcap` around the decoding: what it writes and prints."""

from __future__ import annotations

import json
import os
import signal
from contextlib import contextmanager
from pathlib import Path
from typing import ClassVar

import pytest

from battlebrokers.cli import pcap as verb
from battlebrokers.cli.trace import explain, trace
from battlebrokers.errors import InputError, Interrupted, UsageError
from battlebrokers.report.captures import capture_lines
from support.capture_writer import pcap as pcap_file
from support.wires import small_system

SUMMARY = {
    "packets": 1372,
    "streams": 6,
    "messages": {"mqtt": {"PUBLISH": 100}},
    "exchanges": {"mqtt": {"answered": 101, "unanswered": 0, "uncertain": 0}},
    "tcp": {"retransmissions": 3, "lost_segments": 0},
    "malformed": 0,
    "undecoded_bytes": 0,
    "defects": [],
    "seconds": 0.1,
}


class MadeUpAnalyst:
    """Decodes nothing: the tables of a made-up system appear where they are wanted."""

    pairing: ClassVar[list[dict | None]] = []
    tls_keys: ClassVar[list[Path | None]] = []

    @classmethod
    @contextmanager
    def start(cls, _master: str, *, expected_events: int, idle: bool):
        assert (expected_events, idle) == (1, False)
        yield cls()

    def decode(self, _places, target, _services, _progress, pairing, tls_keys):
        self.pairing.append(pairing)
        self.tls_keys.append(tls_keys)
        small_system().write(Path(target))
        return dict(SUMMARY)


@pytest.fixture
def capture(monkeypatch, tmp_path):
    monkeypatch.setattr(verb, "Analyst", MadeUpAnalyst)
    monkeypatch.chdir(tmp_path)
    file = tmp_path / "town.pcap"
    file.write_bytes(pcap_file([]))
    return str(file)


def test_json_is_the_summary_and_what_was_said_kind_by_kind(capture, capsys):
    assert verb.pcap([capture], out="town", as_json=True, quiet=True) == 0
    told = json.loads(capsys.readouterr().out)
    assert {name: value for name, value in told.items() if name != "kinds"} == SUMMARY
    pushed = [row for row in told["kinds"] if (row["sender"], row["protocol"]) == ("dispatcher", "redis")]
    assert [(row["receiver"], row["messages"], row["name"]) for row in pushed] == [("redis", 102, "")]


def test_page_texts_and_csv_are_written_and_named(capture, capsys, tmp_path):
    assert verb.pcap([capture], out="town", csv=tmp_path / "csv", quiet=True) == 0
    assert "town/report.html" in capsys.readouterr().out
    assert (tmp_path / "town" / "services" / "redis.txt").exists()
    assert {"kinds.csv", "streams.csv"} <= {path.name for path in (tmp_path / "csv").iterdir()}


def test_mistakes_are_told_before_anything_is_decoded(capture):
    with pytest.raises(InputError, match="no such file"):
        verb.pcap(["nowhere.pcap"], out="town")
    Path("empty.pcap").write_bytes(b"")
    Path("letter.pcap").write_bytes(b"Dear Sir or Madam, ")
    for file, words in ((".", "is a directory"), ("empty.pcap", "is empty"), ("letter.pcap", "is no capture")):
        with pytest.raises(InputError, match=words):
            verb.pcap([file], out="town")
    with pytest.raises(UsageError, match="not service=address"):
        verb.pcap([capture], out="town", names=["redis"])
    with pytest.raises(UsageError, match=r"nowhere\.invalid has no address"):
        verb.pcap([capture], out="town", names=["redis=nowhere.invalid:6379"])
    with pytest.raises(UsageError, match="'x' is not a port"):
        verb.pcap([capture], out="town", names=["redis=10.0.0.5:x"])


def test_names_are_spelled_as_captures_spell_addresses():
    assert verb.parse_names(
        ["a=[2001:DB8:0::5]:6379", "b=2001:db8::6", "c=10.0.0.5:1883", "d=*:80", "e=::ffff:10.0.0.6"]
    ) == {"[2001:db8::5]:6379": "a", "2001:db8::6": "b", "10.0.0.5:1883": "c", "*:80": "d", "10.0.0.6": "e"}


def test_the_name_of_a_host_stands_for_its_addresses():
    found = verb.parse_names(["broker=localhost:1883"])
    assert set(found.values()) == {"broker"}
    assert found.keys() & {"127.0.0.1:1883", "[::1]:1883"}


def test_a_file_says_which_messages_answer_which(capture, tmp_path):
    file = tmp_path / "mine.yaml"
    file.write_text("pairing: {type: action, id: requestId, answers: {get: got}, unanswered: [hello]}\n")
    assert verb.pcap([capture], out="town", pairing=file, quiet=True) == 0
    assert MadeUpAnalyst.pairing[-1] == {
        "type": "action", "id": "requestId", "answers": {"get": "got"}, "unanswered": ["hello"],
    }  # fmt: skip
    assert verb.pcap([capture], out="town", quiet=True) == 0
    assert MadeUpAnalyst.pairing[-1] is None


def test_a_key_log_is_checked_before_anything_is_decoded(capture, tmp_path):
    keys = tmp_path / "keys.log"
    with pytest.raises(InputError, match="No such file"):
        verb.pcap([capture], out="town", tls_keys=keys)
    keys.write_text("# nothing yet\n")
    with pytest.raises(InputError, match="no TLS secrets"):
        verb.pcap([capture], out="town", tls_keys=keys)
    with pytest.raises(InputError, match="directory"):
        verb.pcap([capture], out="town", tls_keys=tmp_path)
    keys.write_text(f"CLIENT_RANDOM {'ab' * 32} {'cd' * 48}\n")
    assert verb.pcap([capture], out="town", tls_keys=keys, quiet=True) == 0
    assert MadeUpAnalyst.tls_keys[-1] == keys


def test_what_stays_encrypted_is_said(capture, capsys, monkeypatch, tmp_path):
    monkeypatch.setitem(SUMMARY, "messages", {"tls": {"ApplicationData": 170}})
    assert verb.pcap([capture], out="town", quiet=True) == 0
    assert "170 records of application data were not decrypted" in capsys.readouterr().out
    assert "170 records of application data were not decrypted" in (tmp_path / "town" / "report.html").read_text()


def test_an_address_of_this_machine_is_a_path(capture, tmp_path):
    town = tmp_path / "the town"
    assert verb.pcap([Path(capture).as_uri()], out=town.as_uri(), quiet=True) == 0
    assert (town / "report.html").exists()


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_who_is_interrupted_says_so_and_leaves_nothing_that_looks_whole(capture, monkeypatch, tmp_path, number):
    town = tmp_path / "town"
    assert verb.pcap([capture], out="town", quiet=True) == 0
    (town / "decoded" / "summary.json").write_text("{}")
    (town / "mine.txt").write_text("kept")
    assert trace(str(town), runs=tmp_path) == 0

    def decode(*_):
        (town / "decoded" / "summary.json").unlink()
        os.kill(os.getpid(), number)

    monkeypatch.setattr(MadeUpAnalyst, "decode", decode)
    handler = signal.getsignal(signal.SIGTERM)
    with pytest.raises(Interrupted, match="the tables in town are not whole"):
        verb.pcap([capture], out="town", quiet=True)
    assert signal.getsignal(signal.SIGTERM) is handler
    assert not (town / "report.html").exists()
    assert not list((town / "services").iterdir())
    assert (town / "mine.txt").exists()
    for verb_of_traces in (trace, explain):
        with pytest.raises(InputError, match="not decoded to the end"):
            verb_of_traces(str(town), runs=tmp_path)


def test_packets_nobody_could_place_are_told():
    told = [line.plain for line in capture_lines(SUMMARY | {"unread_packets": {"link": 686}}, "out")]
    assert any("686 packets belong to no stream: their link layer is not one we read" in line for line in told)
    assert not any("belong to no stream" in line.plain for line in capture_lines(SUMMARY, "out"))
