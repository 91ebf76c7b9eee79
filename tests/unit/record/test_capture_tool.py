from __future__ import annotations

import os
from pathlib import Path

import pytest

from battlebrokers.record.capture import tidied
from battlebrokers.record.capture_tool import (
    CaptureTool,
    Counted,
    Limits,
    NoCapture,
    command,
    complaint,
    counted,
    files_begun,
    find_tool,
    is_up,
)
from battlebrokers.record.wire import Wire

DUMPCAP = CaptureTool("dumpcap", "/usr/bin/dumpcap", 0.6)
TCPDUMP = CaptureTool("tcpdump", "/usr/bin/tcpdump", 1.5)
WIRE = Wire("broker", (1883,), ("127.0.0.1",), "lo")

DUMPCAP_SAID = """Capturing on 'Loopback: lo'
File: /tmp/c/broker_00001_20260101000000.pcapng
File: /tmp/c/broker_00002_20260101000001.pcapng
Packets captured: 399
Packets received/dropped on interface 'Loopback: lo': 399/7 (pcap:5/dumpcap:2/flushed:0/ps_ifdrop:0) (98.3%)
"""
TCPDUMP_SAID = """tcpdump: listening on lo, link-type EN10MB (Ethernet), snapshot length 262144 bytes
12 packets captured
24 packets received by filter
3 packets dropped by kernel
"""


def test_dumpcap_writes_a_ring_of_pcapng_files_of_whole_packets() -> None:
    words = command(DUMPCAP, WIRE, Path("/r/broker.pcapng"), Limits(total_bytes=1_000_000_000))
    assert words[:3] == ["/usr/bin/dumpcap", "-q", "-n"]
    assert words[words.index("-i") + 1] == "lo"
    assert words[words.index("-w") + 1] == "/r/broker.pcapng"
    assert [words[at + 1] for at, word in enumerate(words) if word == "-b"] == ["filesize:250000", "files:4"]
    assert words[-2:] == ["-f", "port 1883"]
    assert "-s" not in words


def test_dumpcap_keeps_the_front_of_packets_when_asked() -> None:
    words = command(DUMPCAP, WIRE, Path("b.pcapng"), Limits(snap_bytes=128))
    assert words[words.index("-s") + 1] == "128"


def test_tcpdump_stamps_nanoseconds_and_stays_who_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    words = command(TCPDUMP, WIRE, Path("b.pcap"), Limits(total_bytes=8_000_000))
    assert "--time-stamp-precision=nano" in words
    assert words[words.index("-C") + 1 : words.index("-C") + 4] == ["2", "-W", "4"]
    assert words[words.index("-Z") + 1] == "root"
    assert words[-1] == "port 1883"


def test_a_namespace_is_entered_first() -> None:
    words = command(DUMPCAP, Wire("a", interface="any", namespace="blue"), Path("a.pcapng"), Limits())
    assert words[:3] == ["nsenter", "--net=/run/netns/blue", "--"]
    assert "-f" not in words


@pytest.mark.parametrize("total", [1_000_000, 3_000_000, 10_000_000, 1 << 30, 4 << 30, 1 << 40])
def test_a_ring_never_keeps_much_more_than_its_limit(total: int) -> None:
    limits = Limits(total_bytes=total)
    assert limits.files >= 2
    assert limits.files * limits.file_bytes <= max(total, 2_000_000)


def test_it_captures_once_it_has_begun_its_file() -> None:
    assert not is_up(DUMPCAP, "Capturing on 'Loopback: lo'\n")
    assert is_up(DUMPCAP, "Capturing on 'Loopback: lo'\nFile: /r/b_00001_2026.pcapng\n")
    assert not is_up(TCPDUMP, "")
    assert is_up(TCPDUMP, TCPDUMP_SAID.splitlines()[0])


def test_last_words_are_counted() -> None:
    assert counted(DUMPCAP, DUMPCAP_SAID) == Counted(399, 7)
    assert counted(TCPDUMP, TCPDUMP_SAID) == Counted(12, 3)
    assert files_begun(DUMPCAP, DUMPCAP_SAID) == 2
    assert files_begun(TCPDUMP, TCPDUMP_SAID) == 1
    up, *last_words = TCPDUMP_SAID.splitlines()
    echoed = ["/tmp/my c/broker.pcap0", "/tmp/my c/broker.pcap1"]
    assert files_begun(TCPDUMP, "\n".join([up, *echoed, *last_words])) == 3
    refused = [f"tcpdump: compress_savefile: execlp(echo, {name}) failed: Permission denied" for name in echoed]
    assert files_begun(TCPDUMP, "\n".join([up, *refused, *last_words])) == 3
    assert complaint("\n".join([*refused, "tcpdump: pcap_loop: The interface disappeared"])).startswith("pcap_loop")


def test_the_files_of_a_tcpdump_ring_are_numbered_since_the_start(tmp_path: Path) -> None:
    for place, age in ((0, 2), (1, 1), (2, 4), (3, 3)):
        path = tmp_path / f"broker.pcap{place}"
        path.write_text(str(place))
        os.utime(path, (1000 - age, 1000 - age))
    said = "\n".join([TCPDUMP_SAID.splitlines()[0], *(f"{tmp_path}/broker.pcap{number % 4}" for number in range(9))])
    names, replaced = tidied(TCPDUMP, tmp_path, WIRE, said)
    assert replaced == 6
    assert names == [f"broker-{number:05d}.pcap" for number in (7, 8, 9, 10)]
    assert [(tmp_path / name).read_text() for name in names] == ["2", "3", "0", "1"]


@pytest.mark.parametrize("tool", [DUMPCAP, TCPDUMP])
def test_a_killed_program_counts_nothing(tool: CaptureTool) -> None:
    assert counted(tool, "Killed") == Counted(None, None)


def test_the_reason_of_a_refusal_is_found() -> None:
    said = (
        "Capturing on 'Loopback: lo'\ndumpcap: The capture session could not be initiated on capture device \"lo\".\n"
        "(You do not have permission to capture on that device)\nPlease check to make sure …\n"
    )
    assert complaint(said) == "(You do not have permission to capture on that device)"
    assert complaint("tcpdump: nope: No such device exists\n") == "nope: No such device exists"
    assert complaint("") == ""


def test_without_any_program_the_package_is_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    found = find_tool()
    assert isinstance(found, NoCapture)
    assert found.why == "neither dumpcap nor tcpdump is installed"
    assert "apt-get install" in found.fix


def test_without_the_right_the_command_that_gives_it_is_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    program = tmp_path / "dumpcap"
    program.write_text("#!/bin/sh\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    found = find_tool()
    assert isinstance(found, NoCapture)
    assert found.why == "dumpcap may not capture as you"
    assert found.fix == f"as root: setcap cap_net_raw,cap_net_admin=eip {program}"


def test_a_service_in_a_namespace_takes_root(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "tcpdump").write_text("")
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    found = find_tool(other_namespace=True)
    assert isinstance(found, NoCapture)
    assert "takes root" in found.why
