"""PostgreSQL spoken by a real server, psql and pgbench: message counts per kind are tshark's.

Deviations, with their reasons:

- tshark pairs no PostgreSQL messages: that every request is answered is checked against the protocol's own count (one
  ReadyForQuery per Query, Sync and start).
- The single byte that answers an SSLRequest is a message of ours (`SSLResponse`), tshark gives it no type.
"""

from __future__ import annotations

import os
import pwd
import subprocess
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from support.ports import free_port
from support.wiretap import found, listens, needs, overheard, running, tshark, until, wiretap

pytestmark = [
    pytest.mark.slow,
    pytest.mark.broker,
    needs("tshark", "dumpcap", "psql", "pgbench", why="(apt install tshark postgresql)"),
]

KINDS = {
    "Startup message": "StartupMessage", "SSL request": "SSLRequest", "GSS encrypt request": "GSSENCRequest",
    "Authentication request": "Authentication", "Parameter status": "ParameterStatus",
    "Backend key data": "BackendKeyData", "Ready for query": "ReadyForQuery", "Simple query": "Query",
    "Row description": "RowDescription", "Data row": "DataRow", "Command completion": "CommandComplete",
    "Error": "ErrorResponse", "Notice": "NoticeResponse", "Termination": "Terminate", "Parse": "Parse",
    "Bind": "Bind", "Describe": "Describe", "Execute": "Execute", "Sync": "Sync", "Close": "Close",
    "Parse completion": "ParseComplete", "Bind completion": "BindComplete", "Close completion": "CloseComplete",
    "No data": "NoData", "Parameter description": "ParameterDescription", "CopyIn response": "CopyInResponse",
    "CopyOut response": "CopyOutResponse", "Copy data": "CopyData", "Copy completion": "CopyDone",
    "Notification": "NotificationResponse", "Empty query": "EmptyQueryResponse", "Flush": "Flush",
    "Portal suspended": "PortalSuspended",
}  # fmt: skip


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[int]:
    folders = sorted(Path("/usr/lib/postgresql").glob("*/bin")) if Path("/usr/lib/postgresql").exists() else []
    binaries = folders[-1] if folders else Path(found("initdb") or "/nowhere/initdb").parent
    if not (binaries / "initdb").exists():
        pytest.skip("initdb is not installed (apt install postgresql)")
    data, port = tmp_path_factory.mktemp("postgresql"), free_port()
    options: dict[str, object] = {}
    if os.geteuid() == 0:
        # It refuses to run as root.
        user = pwd.getpwnam("nobody")
        options = {"user": user.pw_uid, "group": user.pw_gid}
        os.chown(data, user.pw_uid, user.pw_gid)
        for folder in [data, *data.parents[:3]]:
            folder.chmod(folder.stat().st_mode | 0o711)
    subprocess.run(
        [binaries / "initdb", "-D", data / "db", "-U", "bob", "-A", "trust", "--no-sync"],
        check=True, capture_output=True, cwd=data, **options,
    )  # fmt: skip
    command = [str(binaries / "postgres"), "-D", str(data / "db"), "-p", str(port), "-k", str(data), "-c", "fsync=off"]
    with running(command, cwd=data, **options):
        until(lambda: listens(port), what="PostgreSQL")
        yield port


def psql(port: int, *commands: str, text: str = "") -> None:
    words = [word for command in commands for word in ("-c", command)]
    subprocess.run(
        ["psql", "-h", "127.0.0.1", "-p", str(port), "-U", "bob", "-d", "postgres", "-q", *words],
        input=text, text=True, capture_output=True, timeout=60, check=False,
    )  # fmt: skip


def test_kinds_and_counts_are_tsharks(server: int, tmp_path: Path) -> None:
    capture = tmp_path / "postgresql.pcapng"
    with wiretap(capture, server):
        psql(server, "create table t (a int, b text)", "insert into t select n, 'text' from generate_series(1, 500) n")
        psql(server, "select * from t; select 1; select count(*) from t", "select * from nowhere", "listen news")
        psql(server, "listen news; notify news, 'hello'", "copy t to stdout", "do $$begin raise notice 'x'; end$$")
        psql(server, text="copy t from stdin;\n1\tone\n2\ttwo\n\\.\nselect 1/0;\n;\n")
        for protocol in ("simple", "extended", "prepared"):
            bench = ["pgbench", "-h", "127.0.0.1", "-p", str(server), "-U", "bob", "-M", protocol, "-n"]
            script = tmp_path / "script.sql"
            script.write_text("\\set n random(1, 500)\nselect b from t where a = :n;\nselect 1 / (:n - :n);\n")
            subprocess.run([*bench, "-t", "20", "-f", script, "postgres"], capture_output=True, timeout=60, check=False)
            subprocess.run(
                [*bench, "-i", "-s", "1", "postgres"] if protocol == "simple" else [*bench, "-t", "20", "postgres"],
                capture_output=True, timeout=60, check=False,
            )  # fmt: skip
    rows = tshark(capture, ["pgsql.type"], decode_as=f"tcp.port=={server},pgsql", only="pgsql")
    theirs = Counter(KINDS.get(kind, kind) for row in rows for kind in row["pgsql.type"])
    said = overheard(capture, server)
    ours = Counter(kind for one in said for kind in one.kinds)
    assert {one.stream.protocol for one in said if one.messages} == {"postgresql"}
    assert ours.pop("SSLResponse") == theirs["SSLRequest"]
    assert ours == theirs
    assert {"Query", "Parse", "CopyData", "ErrorResponse", "NotificationResponse", "NoticeResponse"} <= set(ours)
    assert sum(one.stream.malformed + one.stream.undecoded_bytes for one in said) == 0
    unanswered = [row.request.found.kind for one in said for row in one.exchanges if row.response is None]
    assert unanswered == []
    asked = Counter(row.request.found.kind for one in said for row in one.exchanges)
    failed = Counter(row.request.found.kind for one in said for row in one.exchanges if row.response.found.failed)
    assert asked["Query"] == theirs["Query"]
    assert asked["Query"] + asked["Sync"] + asked["StartupMessage"] == theirs["ReadyForQuery"]
    assert asked["Execute"] == theirs["Execute"]
    assert failed["Query"] >= 2
    assert all(row.response.first_ns >= row.request.last_ns for one in said for row in one.exchanges)
