"""A container engine for tests, in the place of Docker: `info`, `run` and `inspect` as its manual has them.

It is NOT Docker. `run` starts Mosquitto at the published port, in a control group (version 2) of its own, and stays in
the foreground as Docker's client does; busy, so that who measures the client is found out. `inspect` prints the part of
the documented answer that we read. Called as `docker` from a folder on PATH; containers are notes in that folder.
"""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from pathlib import Path


def run(notes: Path, words: list[str]) -> int:
    name = words[words.index("--name") + 1]
    published = words[words.index("--publish") + 1]
    host, port, _ = published.split(":")
    group = hierarchy() / f"bb-test-{name}.scope"
    group.mkdir()
    config = notes / f"{name}.conf"
    config.write_text(f"listener {port} {host}\nallow_anonymous true\npersistence false\n")
    command = f'echo $$ > "{group}/cgroup.procs" && exec mosquitto -c "{config}"'
    # The engine's daemon starts it, so it is no child of the client.
    inside = subprocess.Popen(["/bin/sh", "-c", command], start_new_session=True)
    (notes / f"{name}.json").write_text(json.dumps(inspected(name, inside.pid)))
    ended: list[int] = []
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda given, _: ended.append(given))
    while not ended and inside.poll() is None:
        sum(range(10_000))
    inside.terminate()
    status = inside.wait()
    (notes / f"{name}.json").unlink()
    group.rmdir()
    return status


def inspected(name: str, pid: int) -> list[dict[str, object]]:
    """As `docker inspect` prints it."""
    return [
        {
            "Id": f"{pid:064x}",
            "State": {"Status": "running", "Running": True, "Paused": False, "Pid": pid, "ExitCode": 0},
            "Name": f"/{name}",
            "HostConfig": {"NetworkMode": "host", "CgroupParent": ""},
            "NetworkSettings": {"IPAddress": "", "Networks": {"host": {"IPAddress": "", "GlobalIPv6Address": ""}}},
        }
    ]


def hierarchy() -> Path:
    roots = (Path("/sys/fs/cgroup"), Path("/sys/fs/cgroup/unified"))
    return next(root for root in roots if (root / "cgroup.controllers").is_file())


def main() -> int:
    notes, words = Path(sys.argv[1]), sys.argv[2:]
    if words[0] == "info":
        return 0
    if words[0] == "run":
        return run(notes, words)
    if words[:3] == ["inspect", "--type", "container"]:
        note = notes / f"{words[3]}.json"
        if not note.exists():
            print(f"Error: No such container: {words[3]}", file=sys.stderr)
            return 1
        print(note.read_text())
        return 0
    print(f"unknown command {words}", file=sys.stderr)
    return 125


def install(folder: Path) -> Path:
    """Put it into a folder as `docker`; returns the folder for PATH."""
    folder.mkdir()
    script = folder / "docker"
    script.write_text(f'#!/bin/sh\nexec "{sys.executable}" "{Path(__file__)}" "{folder}" "$@"\n')
    script.chmod(0o755)
    return folder


if __name__ == "__main__":
    sys.exit(main())
