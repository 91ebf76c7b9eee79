"""A capture with a tenth of its bytes flipped: `bb pcap` tells what can still be read, and that it is damaged."""

from __future__ import annotations

import json
import random
import struct
from pathlib import Path

import paho.mqtt.client as mqtt
import pytest
from benchmarks.synthetic_capture import write_capture

from support.ports import free_port
from support.runs import bb
from support.wiretap import listens, needs, running, until, wiretap

MESSAGES = 300
SHARE = 10
pytestmark = [pytest.mark.slow, pytest.mark.spark]


def flip(path: Path, front_bytes: int, seed: int = 1) -> None:
    """Change one byte in ten, anywhere behind the front that says what kind of file it is."""
    noise = random.Random(seed)
    content = bytearray(path.read_bytes())
    for at in noise.sample(range(front_bytes, len(content)), (len(content) - front_bytes) // SHARE):
        content[at] ^= noise.randint(1, 255)
    path.write_bytes(content)


def pcapng_front(path: Path) -> int:
    """The section header and the description of its first interface."""
    content = path.read_bytes()
    size = struct.unpack_from("<I", content, 4)[0]
    kind, more = struct.unpack_from("<II", content, size)
    assert kind == 1
    return int(size + more)


def told(tmp_path: Path, capture: Path) -> tuple[dict, int]:
    """What `bb pcap` made of it, and the damaged places it counted; it must have ended well and written its page."""
    done = bb("pcap", str(capture), "--out", "told", "--csv", "csv", cwd=tmp_path, timeout=280)
    assert done.code == 0, done.err
    assert "DEFECT" in done.out
    assert "damaged places" in done.out
    assert "Traceback" not in done.err
    page = (tmp_path / "told" / "report.html").read_text()
    assert "damaged places" in page
    assert page.rstrip().endswith("</html>")
    assert (tmp_path / "csv" / "streams.csv").stat().st_size > 0
    summary = json.loads((tmp_path / "told" / "decoded" / "summary.json").read_text())
    assert {defect["file"] for defect in summary["defects"]} == {str(capture)}
    # The statistics that dumpcap wrote at the end may have been hit as well and then tell of drops that never were.
    (damages,) = (defect["count"] for defect in summary["defects"] if "damaged places" in defect["reason"])
    return summary, damages


@pytest.mark.broker
@pytest.mark.root
@needs("mosquitto", "dumpcap")
def test_a_real_capture_with_a_tenth_of_its_bytes_flipped_yields_a_report(tmp_path: Path) -> None:
    port = free_port()
    capture = tmp_path / "town.pcapng"
    acknowledged: list[int] = []
    with running(["mosquitto", "-p", str(port)]):
        until(lambda: listens(port), what="mosquitto")
        with wiretap(capture, port):
            client = mqtt.Client(mqtt.CallbackAPIVersion.VERSION2)
            client.on_publish = lambda *_: acknowledged.append(1)
            client.connect("127.0.0.1", port)
            client.loop_start()
            for number in range(MESSAGES):
                client.publish("town/air", b"reading %06d of a sensor" % number, qos=1)
            until(lambda: len(acknowledged) == MESSAGES, what="the last acknowledgement")
            client.disconnect()
            client.loop_stop()
    flip(capture, pcapng_front(capture))
    summary, damages = told(tmp_path, capture)
    assert summary["packets"] > 0
    assert damages > MESSAGES // SHARE


def test_a_made_up_capture_with_a_tenth_of_its_bytes_flipped_yields_a_report(tmp_path: Path) -> None:
    capture = tmp_path / "made-up.pcap"
    packets = write_capture(capture, 2 << 20)
    flip(capture, 24)
    summary, damages = told(tmp_path, capture)
    assert packets // 20 < summary["packets"] <= packets + damages
    assert summary["streams"] > 10
    assert damages > packets // SHARE
