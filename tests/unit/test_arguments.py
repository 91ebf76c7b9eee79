"""The arguments of our own process, as lists of processes show them."""

from __future__ import annotations

import subprocess
import sys

import pytest

from battlebrokers.arguments import masked_arguments

_LOOK = (
    "import pathlib, sys; from battlebrokers.arguments import mask_own_arguments; mask_own_arguments();"
    "sys.stdout.buffer.write(pathlib.Path('/proc/self/cmdline').read_bytes()); print(sys.argv)"
)


def test_passwords_in_urls_and_settings_are_masked() -> None:
    given = [
        b"bb",
        b"--broker",
        b"mqtt://u:hunter2@h",
        b"--set",
        b"a.password=hunter2",
        b"ws://h/?token=hunter2",
        b"u:hunter2@127.0.0.1:1883",
        b"u:a@hunter2@h",
        b"\xff",
    ]
    assert b"hunter2" not in b"".join(masked_arguments(given))
    assert masked_arguments(given)[:2] == given[:2]
    assert masked_arguments(given)[-1] == b"\xff"


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="needs /proc")
@pytest.mark.parametrize("password", ["x", "hunter2", "h" * 500])
def test_they_are_overwritten_where_others_see_them_and_kept_for_ourselves(password: str) -> None:
    words = ["--broker", f"mqtt://u:{password}@h:1", "--set", f"a.password={password}", "--quiet"]
    done = subprocess.run([sys.executable, "-c", _LOOK, *words], capture_output=True, check=True)
    shown, _, kept = done.stdout.rpartition(b"[")
    assert f"u:{password}@".encode() not in shown
    assert f"password={password}".encode() not in shown
    assert b"--set" in shown
    assert str(words)[1:].encode() in kept


def test_what_is_no_address_stays_as_it_is() -> None:
    given = [b"mosquitto@host:1", b"note=a:b@c", b"/a:b@c", b"LAST~1", b"12:30"]
    assert masked_arguments(given) == given
