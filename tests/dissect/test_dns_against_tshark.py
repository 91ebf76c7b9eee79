"""DNS spoken by dnsmasq and dig, over UDP and TCP: queries and answers are tshark's.

Deviations: none.
"""

from __future__ import annotations

import contextlib
import os
import socket
import subprocess
from collections import Counter
from pathlib import Path

import pytest

from support.ports import free_port
from support.wiretap import found, hears, nanoseconds, needs, overheard, running, tshark, until, wiretap

pytestmark = [
    pytest.mark.slow,
    pytest.mark.broker,
    needs("tshark", "dumpcap", "dnsmasq", "dig", why="(apt install tshark dnsmasq-base bind9-dnsutils)"),
]
TYPES = {"1": "A", "28": "AAAA", "16": "TXT", "15": "MX", "12": "PTR", "33": "SRV"}
RESULTS = {"0": "NOERROR", "3": "NXDOMAIN", "5": "REFUSED"}


def free_for_both() -> int:
    """A port nobody has, neither for datagrams nor for connections."""
    while True:
        port = free_port()
        with contextlib.suppress(OSError), socket.socket() as probe:
            probe.bind(("127.0.0.1", port))
            return port


def test_queries_and_answers_are_tsharks(tmp_path: Path) -> None:
    capture, port = tmp_path / "dns.pcapng", free_for_both()
    command = [
        found("dnsmasq") or "dnsmasq", "--no-daemon", "--no-resolv", "--no-hosts", "--listen-address=127.0.0.1",
        "--bind-interfaces", f"--port={port}", "--address=/known.test/10.1.2.3", "--local=/test/",
        "--txt-record=text.test," + ",".join(["x" * 200] * 10), "--mx-host=mail.test,10.1.2.4,10",
        "--conf-file=/dev/null", "--pid-file=", *(["--user=root"] if os.geteuid() == 0 else []),
    ]  # fmt: skip
    with wiretap(capture, port), running(command) as server:
        until(lambda: hears(server, port), what="dnsmasq")
        for words in (
            ["a.known.test"], ["b.known.test", "AAAA"], ["missing.test"], ["text.test", "TXT"], ["mail.test", "MX"],
            ["elsewhere.example"], ["a.known.test", "+tcp"], ["text.test", "TXT", "+tcp"], ["MiXed.Known.TEST"],
            ["-x", "10.1.2.3", "+tcp"],
        ):  # fmt: skip
            dig = ["dig", "@127.0.0.1", "-p", str(port), "+tries=1", "+timeout=3", "+noall", *words]
            subprocess.run(dig, capture_output=True, timeout=60, check=False)
    fields = ["dns.flags.response", "dns.qry.type", "dns.flags.rcode", "dns.id", "frame.time_epoch", "dns.time"]
    rows = tshark(capture, fields, decode_as=f"udp.port=={port},dns", only="dns")
    rows += tshark(capture, fields, decode_as=f"tcp.port=={port},dns", only="dns and tcp")
    theirs = Counter(
        RESULTS[row["dns.flags.rcode"][0]]
        if row["dns.flags.response"][0] in ("1", "True")
        else f"QUERY {TYPES[row['dns.qry.type'][0]]}"
        for row in rows
    )
    said = overheard(capture, port)
    assert Counter(kind for one in said for kind in one.kinds) == theirs
    assert {one.stream.protocol for one in said} == {"dns", "dns-tcp"}
    assert sum(one.stream.malformed + one.stream.undecoded_bytes for one in said) == 0
    exchanges = [row for one in said for row in one.exchanges]
    assert all(row.response is not None for row in exchanges)
    delays = sorted(row.response.first_ns - row.request.last_ns for row in exchanges)
    assert delays == sorted(nanoseconds(row["dns.time"][0]) for row in rows if row["dns.time"])
    assert len(delays) >= 10
