"""CoAP spoken by libcoap's server and client: kinds, and requests with their responses, are tshark's.

Notifications after the first response are in neither tshark's pairs nor ours. Deviations, with their reasons:

- A separate response (an empty ACK, then a CON of the server with the request's token) answers its request here;
  tshark 4.0 pairs such a response with nothing.
"""

from __future__ import annotations

import shutil
import subprocess
from collections import Counter
from pathlib import Path

import pytest

from support.ports import free_port
from support.wiretap import hears, nanoseconds, needs, overheard, running, tshark, until, wiretap

CLIENT = next((tool for tool in ("coap-client-notls", "coap-client") if shutil.which(tool)), "coap-client")
SERVER = next((tool for tool in ("coap-server-notls", "coap-server") if shutil.which(tool)), "coap-server")
pytestmark = [
    pytest.mark.slow,
    pytest.mark.broker,
    needs("tshark", "dumpcap", CLIENT, SERVER, why="(apt install tshark libcoap3-bin)"),
]
TYPES = ("CON", "NON", "ACK", "RST")
METHODS = {0: "Empty", 1: "GET", 2: "POST", 3: "PUT", 4: "DELETE", 5: "FETCH", 6: "PATCH", 7: "iPATCH"}


def kind(number: str, code: str) -> str:
    value = int(code)
    return f"{TYPES[int(number)]} {METHODS[value] if value < 32 else f'{value >> 5}.{value & 31:02d}'}"


def test_kinds_and_pairs_are_tsharks(tmp_path: Path) -> None:
    capture, port = tmp_path / "coap.pcapng", free_port()
    server = f"coap://127.0.0.1:{port}"
    with wiretap(capture, port), running([SERVER, "-A", "127.0.0.1", "-p", str(port), "-d", "10"]) as listening:
        until(lambda: hears(listening, port), what="the server")

        def ask(*words: str) -> None:
            subprocess.run([CLIENT, *words], capture_output=True, timeout=60, check=False)

        ask("-m", "get", f"{server}/")
        ask("-m", "get", f"{server}/.well-known/core")
        ask("-m", "put", "-e", "hello", f"{server}/example_data")
        ask("-m", "put", "-b", "64", "-e", "x" * 700, f"{server}/example_data")
        ask("-m", "get", "-N", f"{server}/example_data")
        ask("-m", "get", "-b", "64", f"{server}/example_data")
        ask("-m", "get", f"{server}/nowhere")
        ask("-m", "get", "-T", "tok", f"{server}/async?1")
        ask("-m", "get", "-s", "3", "-B", "4", f"{server}/time")
        ask("-m", "delete", f"{server}/example_data")
    fields = ["coap.type", "coap.code", "frame.number", "frame.time_epoch", "coap.response_in"]
    rows = tshark(capture, fields, decode_as=f"udp.port=={port},coap", only="coap")
    theirs = Counter(kind(row["coap.type"][0], row["coap.code"][0]) for row in rows)
    said = overheard(capture, port)
    ours = Counter(word for one in said for word in one.kinds)
    assert ours == theirs
    assert {one.stream.protocol for one in said} == {"coap"}
    assert sum(one.stream.malformed + one.stream.undecoded_bytes for one in said) == 0
    when = {row["frame.number"][0]: nanoseconds(row["frame.time_epoch"][0]) for row in rows}
    pairs = Counter(
        (nanoseconds(row["frame.time_epoch"][0]), when[answer]) for row in rows for answer in row["coap.response_in"]
    )
    exchanges = [row for one in said for row in one.exchanges if row.response is not None]
    asked = [row for row in exchanges if row.request.found.kind.split()[1] in METHODS.values()]
    separate = [row for row in asked if row.request.found.kind == "CON GET" and row.response.found.kind == "CON 2.05"]
    assert [row.request.found.name for row in separate] == ["/async?1"]
    asked.remove(separate[0])
    assert Counter((row.request.first_ns, row.response.first_ns) for row in asked) == pairs
    assert len(pairs) >= 10
