from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parents[3] / "scripts" / "first-battle"
BB = """#!/usr/bin/env bash
if [[ $1 == brokers ]]; then cat "$(dirname "$0")/brokers.json"; exit; fi
echo "$*" >> "$(dirname "$0")/asked"
codes=($(cat "$(dirname "$0")/codes"))
exit ${codes[$(($(wc -l < "$(dirname "$0")/asked") - 1))]}
"""


def fight(folder: Path, here: list[str], codes: list[int]) -> tuple[int, list[str], str]:
    """(exit code, what `bb` was asked, what was told) of the script beside a `bb` that ends with these codes."""
    binaries = folder / ".venv" / "bin"
    binaries.mkdir(parents=True)
    (folder / "scripts").mkdir()
    shutil.copy(SCRIPT, folder / "scripts")
    (binaries / "python").symlink_to(sys.executable)
    (binaries / "bb").write_text(BB)
    (binaries / "bb").chmod(0o755)
    known = ("amqtt", "mosquitto", "aedes", "nats", "emqx")
    (binaries / "brokers.json").write_text(json.dumps([{"name": name, "available": name in here} for name in known]))
    (binaries / "codes").write_text(" ".join(map(str, codes)))
    done = subprocess.run([folder / "scripts" / "first-battle"], capture_output=True, text=True, check=False)
    return done.returncode, (binaries / "asked").read_text().splitlines(), done.stderr


@pytest.mark.parametrize(
    ("here", "asked", "words"),
    [
        (["amqtt", "mosquitto", "nats"], "battle smart-city mosquitto amqtt", ""),
        (["amqtt", "nats"], "battle smart-city nats amqtt", "nats fights amqtt instead"),
        (["amqtt"], "run smart-city --broker amqtt", "the embedded one, amqtt, runs alone"),
    ],
)
def test_who_is_here_fights(tmp_path: Path, here: list[str], asked: str, words: str) -> None:
    code, commands, told = fight(tmp_path, here, [0])
    assert (code, commands) == (0, [asked])
    assert words in told
    assert ("Mosquitto is not on this machine" in told) == ("mosquitto" not in here)


@pytest.mark.parametrize(
    ("codes", "code", "words"),
    [
        ([6, 0], 0, "once more"),
        ([6, 6], 0, "VOID twice"),
        ([10], 0, "the answer"),
        ([5], 5, ""),
        ([6, 5], 5, "once more"),
    ],
)
def test_what_cannot_be_trusted_is_tried_again_and_then_told(
    tmp_path: Path, codes: list[int], code: int, words: str
) -> None:
    ended, commands, told = fight(tmp_path, ["amqtt", "mosquitto"], codes)
    assert (ended, len(commands)) == (code, len(codes))
    assert words in told
