"""The network broker under Mininet: the same topology, the same addresses, the same deliveries."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from battlebrokers.sdn.lab.open_vswitch import what_is_missing
from support.apart import WHAT_IS_LEFT, script_apart

SYSTEM_PYTHON = Path("/usr/bin/python3")
SCRIPT = Path(__file__).parents[2] / "scripts" / "mininet-lab"


def _why_not() -> str:
    missing = what_is_missing()
    if missing is not None:
        return f"{missing.message}: {missing.hint}"
    if not SYSTEM_PYTHON.exists():
        return "no /usr/bin/python3, whose package Mininet is"
    asked = subprocess.run([SYSTEM_PYTHON, "-c", "import mininet"], capture_output=True, check=False)
    return "Mininet is not installed: apt-get install mininet" if asked.returncode else ""


_REASON = _why_not()
pytestmark = [pytest.mark.root, pytest.mark.slow, pytest.mark.skipif(bool(_REASON), reason=_REASON)]

LISTEN = """
import socket
heard = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
heard.bind(("", 5005))
print("listening", flush=True)
heard.settimeout(60)
print(*heard.recvfrom(999), flush=True)
"""
SEND = """
import socket
socket.socket(socket.AF_INET, socket.SOCK_DGRAM).sendto(b"over Mininet", ("1.1.1.1", 5005))
"""


def test_a_message_crosses_four_switches_built_by_mininet_and_everything_is_gone_afterwards(tmp_path: Path) -> None:
    (tmp_path / "listen.py").write_text(LISTEN)
    (tmp_path / "send.py").write_text(SEND)
    script = f"""
        bb sdn controller --state state.json > controller.log 2>&1 & controller=$!
        until grep -q REST controller.log; do sleep 0.05; done
        touch network.log h7.log h8.log
        {{
            until grep -q ready network.log; do sleep 0.05; done
            bb sdn create > /dev/null
            bb sdn subscribe 1.1.1.1 00:00:00:00:00:08,10.0.0.8
            for host in h7 h8; do
                echo "$host python3 {tmp_path}/listen.py > {tmp_path}/$host.log &"
                until grep -q listening $host.log; do sleep 0.05; done
            done
            echo "h1 python3 {tmp_path}/send.py"
            until grep -q Mininet h8.log; do sleep 0.05; done
            echo "h7 kill %1"
        }} | {SCRIPT} paper --python {sys.executable} > network.log 2>&1
        kill $controller; wait $controller; {WHAT_IS_LEFT}
    """
    done = script_apart(script, tmp_path)
    assert done.out.split() == ["left:"], done.out + done.err + (tmp_path / "network.log").read_text()
    assert (tmp_path / "h8.log").read_text().splitlines()[1].startswith("b'over Mininet' ('10.0.0.1',")
    assert (tmp_path / "h7.log").read_text() == "listening\n"
