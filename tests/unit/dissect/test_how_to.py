"""The how-to's example is a dissector: dropped into the folder it is found, registered and right."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from battlebrokers.dissect import protocols
from battlebrokers.dissect.registry import _KNOWN, dissectors, recognised
from support.conversation import CLIENT, SERVER, Lost, heard, summary

PAGE = Path(__file__).parents[3] / "docs" / "how-to" / "new-dissector.md"


def example() -> str:
    blocks = re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL)
    assert len(blocks) == 1
    return blocks[0]


@pytest.fixture
def dropped_in(tmp_path):
    """One new file in the folder of protocols, nothing else."""
    (tmp_path / "stomp.py").write_text(example())
    before = set(dissectors())
    protocols.__path__.append(str(tmp_path))
    dissectors.cache_clear()
    try:
        assert set(dissectors()) - before == {"stomp"}
        yield
    finally:
        protocols.__path__.remove(str(tmp_path))
        sys.modules.pop(f"{protocols.__name__}.stomp", None)
        _KNOWN.pop("stomp", None)
        dissectors.cache_clear()
        dissectors()


def frame(command: str, body: str = "", **headers: str) -> bytes:
    lines = [command, *(f"{name.replace('_', '-')}:{value}" for name, value in headers.items()), "", body]
    return "\n".join(lines).encode() + b"\x00\n"


TURNS = [
    (CLIENT, frame("CONNECT", host="/")), (SERVER, frame("CONNECTED", version="1.2")),
    (CLIENT, frame("SEND", "hello", destination="/queue/a", receipt="r1")),
    (CLIENT, frame("SEND", "a\x00b", destination="/queue/b", receipt="r2", content_length="3")),
    (SERVER, frame("RECEIPT", receipt_id="r2")), (SERVER, frame("RECEIPT", receipt_id="r1")),
    (SERVER, frame("MESSAGE", "hello", destination="/queue/a")), (SERVER, frame("ERROR", "no", message="bad")),
]  # fmt: skip


@pytest.mark.usefixtures("dropped_in")
def test_the_example_tells_and_pairs_messages():
    said = heard(TURNS, 61613, protocol="stomp")
    assert said.pairs == [("CONNECT", "CONNECTED"), ("SEND", "RECEIPT"), ("SEND", "RECEIPT")]
    rows = {(row.kind, row.name, row.payload_bytes) for row in (told.found for told in said.messages)}
    assert {("SEND", "/queue/a", 5), ("SEND", "/queue/b", 3), ("MESSAGE", "/queue/a", 5)} <= rows
    assert [told.found.kind for told in said.messages if told.found.failed] == ["ERROR"]
    assert said.stream.malformed == 0


@pytest.mark.usefixtures("dropped_in")
def test_the_example_does_not_care_how_packets_are_cut():
    whole = summary(heard(TURNS, 61613))
    assert all(summary(heard(TURNS, 61613, cut=cut, window=7)) == whole for cut in (1, 3, 50))


@pytest.mark.usefixtures("dropped_in")
def test_the_example_is_recognised_and_survives_gaps_and_nonsense():
    assert recognised("tcp", 9, 9, frame("CONNECT"), b"")[0].name == "stomp"
    turns = [*TURNS[:2], (CLIENT, frame("SEND", "lost")[:4]), (CLIENT, Lost(9)), (CLIENT, frame("SEND", "found"))]
    assert heard(turns, 61613).kinds.count("SEND") == 1
    assert heard([*TURNS[:2], (CLIENT, b"\xff" * 600_000)], 61613).stream.malformed >= 1


def test_the_example_is_clean(tmp_path):
    (tmp_path / "stomp.py").write_text(example())
    for command in (
        ["-m", "ruff", "check", "--config", "pyproject.toml", "--ignore", "ARG002"],
        ["-m", "mypy", "--strict"],
    ):
        done = subprocess.run(
            [sys.executable, *command, str(tmp_path / "stomp.py")],
            cwd=PAGE.parents[2], capture_output=True, text=True, check=False,
        )  # fmt: skip
        if "No module named" in done.stderr:
            pytest.skip(f"{command[1]} is not installed")
        assert done.returncode == 0, done.stdout
