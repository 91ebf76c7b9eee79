"""Files made to harm: scenarios, contender files, run folders, evidence and captures."""

from __future__ import annotations

import json
import os
import random
import shutil
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, Final

from chaos.fault import REFUSED, Fault, Must, Seen
from chaos.place import Place

_REFUSED: Final = Must(frozenset({2, 3}), memory_mib=500)
_READ: Final = Must(frozenset({0, 2, 3}), memory_mib=500)
_CONFINED: Final = Must(REFUSED | {5}, memory_mib=500)
"""5: started as far as it may be, and not ready."""
_REFUSED_BEFORE: Final = Must(REFUSED, memory_mib=500)
_FLEET: Final = (
    'fleets:\n  f: {devices: 1, topic: "t", payload: {random_bytes: 9}, every: 1/s}\nphases: {measure: 1s}\n'
)
_BOMB: Final = "a: &a [x,x,x,x,x,x,x,x,x]\n" + "".join(
    f"{after}: &{after} [{','.join([f'*{before}'] * 9)}]\n"
    for before, after in zip("abcdefghi", "bcdefghij", strict=True)
)


def _one(key: str, value: str) -> str:
    """The scenario with one other value."""
    fleet = {"devices": "1", "topic": '"t"', "payload": "{random_bytes: 9}", "every": "1/s"} | {key: value}
    listed = ", ".join(f"{name}: {text}" for name, text in fleet.items())
    return f"name: s\nfleets:\n  f: {{{listed}}}\nphases: {{measure: 1s}}\n"


_SCENARIOS: Final[dict[str, str | bytes]] = {
    "nothing": "",
    "a NUL": "name: a\0b\n" + _FLEET,
    "random bytes": random.Random(7).randbytes(5000),
    "zeros": bytes(100_000),
    "an alias bomb": _BOMB,
    "an alias of itself": "name: &a [*a]\n" + _FLEET,
    "merge keys without end": "a: &a {<<: *a}\n",
    "10 000 brackets": "name: " + "[" * 10_000,
    "3000 levels": "".join(" " * at + "a:\n" for at in range(3_000)),
    "5 MiB of keys": "".join(f"k{at}: 1\n" for at in range(400_000)),
    "a key twice": "name: a\nname: b\n" + _FLEET,
    "an object of Python": "name: !!python/object/apply:os.system [exit]\n" + _FLEET,
    "a list": "- a\n- b\n",
    "a number": "7\n",
    "tabs": "name: a\nfleets:\n\tf: 1\n",
    "UTF-16": ("name: a\n" + _FLEET).encode("utf-16"),
    "no UTF-8": b"name: \xff\xfe\n" + _FLEET.encode(),
    "a name with escapes": 'name: "\\e[2J\\e]0;x\\a"\n' + _FLEET,
    "a name that goes up": 'name: "../../up"\n' + _FLEET,
    "a name of 100 000 letters": f"name: {'x' * 100_000}\n{_FLEET}",
    "a key with escapes": '"\\e[31mred": 1\n' + _FLEET,
    "devices below zero": _one("devices", "-1"),
    "10^18 devices": _one("devices", "1000000000000000000"),
    "devices that are no number": _one("devices", ".nan"),
    "a payload of 1 TiB": _one("payload", "{random_bytes: 1TiB}"),
    "a rate of 10^300": _one("every", "1e300/s"),
    "a rate of 0": _one("every", "0/s"),
    "an endless rate": _one("every", ".inf"),
    "a topic of NUL": _one("topic", '"a\\0b"'),
    "a topic of 70 000 letters": _one("topic", f'"{"t" * 70_000}"'),
    "a template within a template": _one("topic", '"{device{device}}"'),
    "a measure of 10^9 hours": "name: s\n" + _FLEET.replace("measure: 1s", "measure: 1000000000h"),
    "a measure below zero": "name: s\n" + _FLEET.replace("measure: 1s", "measure: -1s"),
    "an expectation of code": "name: s\n" + _FLEET + 'expect: ["__import__(1) < 2"]\n',
    "a payload from a device file": _one("payload", '{file: "/dev/zero"}'),
}
_CONTENDER: Final = """\
name: hostile
about: made to harm
needs: {sleep: {executable: sleep}}
ports: [mqtt]
endpoints: {tcp: "mqtt://${host}:${port.mqtt}"}
ready: {within_s: 1}
stop: {within_s: 1}
"""
_RUN: Final = 'run: {command: ["${sleep}", "2"]}\n'
_CONTENDERS: Final = {
    "files above its folder": _RUN + 'files: {"../../escaped": "x"}\n',
    "files at the root": _RUN + 'files: {"/escaped-by-chaos": "x"}\n',
    "files of the machine": _RUN + 'files: {"taken": {file: "/etc/passwd"}}\n',
    "files above those shipped": _RUN + 'files: {"taken": {file: "../../../../../../etc/passwd"}}\n',
    "a pattern of files above": _RUN + 'files: {"taken": {file: "mosquitto/../../*"}}\n',
    "log files above its folder": _RUN + 'logs: ["../../../**/*.txt"]\n',
    "log files at the root": _RUN + 'logs: ["/etc/host*"]\n',
    "append to a file above": _RUN + "profiles:\n  tuned: {about: x, append: {'../../escaped': x}}\n",
    "an unknown name in its command": 'run: {command: ["${sleep}", "${nobody}"]}\n',
    "a program that is not there": 'run: {command: ["/nowhere/program"]}\n',
    "a program above its folder": 'run: {command: ["${dir}/../../../bin/sh"]}\n',
    "no program at all": "run: {command: []}\n",
    "a command of NUL": 'run: {command: ["${sleep}", "a\\0b"]}\n',
    "an alias bomb": _RUN + _BOMB,
    "services without end": _RUN + "services: {" + ", ".join(f"s{at}: ['*']" for at in range(20_000)) + "}\n",
    "escapes in unknown keys": _RUN + '"\\e[2J": "\\e]0;x\\a"\n',
    "ten thousand unknown keys": _RUN + "".join(f"x{at}: 1\n" for at in range(10_000)),
    "a time below zero": _RUN.replace("\n", "") + "\nstop: {within_s: -1}\n",
    "a list": "- x\n",
    "a pattern that runs away": _RUN + "failures:\n  - {match: '(a+)+$', hint: x}\n",
}


def faults() -> list[Fault]:
    """All of them."""
    found = [
        _fault(
            f"a scenario: {name}",
            partial(_check, content=content),
            _READ,
            short=name in ("an alias bomb", "a name with escapes"),
        )
        for name, content in _SCENARIOS.items()
    ]
    found += [
        _fault(
            f"a contender: {name}",
            partial(_contender, content=content),
            _REFUSED_BEFORE if "file" in name else _CONFINED,
            short=name == "files above its folder",
        )
        for name, content in _CONTENDERS.items()
    ]
    for name in (
        "a folder",
        "a link in a circle",
        "a pipe nobody writes to",
        "/dev/zero",
        "/dev/null",
        "nothing at all",
    ):
        found.append(
            _fault(
                f"a scenario that is {name}", partial(_odd, name=name), _REFUSED, within_s=40, short=name == "/dev/zero"
            )
        )
    for name, change in _MANIFESTS.items():
        found.append(
            _fault(f"a manifest: {name}, listed", partial(_manifest, change=change, verb="list"), Must(frozenset({0})))
        )
        found.append(
            _fault(
                f"a manifest: {name}, reported",
                partial(_manifest, change=change, verb="report"),
                Must(frozenset({3, 4})),
                short=name == "times of 10^18",
            )
        )
    for name, spoil in _EVIDENCE.items():
        what = partial(_evidence, spoil=spoil)
        found.append(
            _fault(f"evidence: {name}", what, Must(frozenset({0, 6, 10, 3, 4})), within_s=240, needs="mosquitto java")
        )
    for name, content in _CAPTURES.items():
        what = partial(_capture, content=content)
        found.append(_fault(f"a capture: {name}", what, Must(frozenset({0, 3})), within_s=240, needs="java"))
    return found


def _fault(
    name: str, what: Callable[[Place], Seen], must: Must, *, short: bool = False, within_s: float = 90, needs: str = ""
) -> Fault:
    return Fault("file", name, what, must, short, within_s, needs)


def _check(place: Place, *, content: str | bytes) -> Seen:
    place.bb("check", str(place.write("hostile.yaml", content)))
    return place.seen()


def _contender(place: Place, *, content: str) -> Seen:
    text = _CONTENDER + content
    witness = place.write("witness.txt", "not the contender's")
    place.bb("brokers", "test", "--trust", str(place.write("deep/er/hostile.yaml", text)))
    seen = place.seen()
    if not witness.exists():
        return replace(seen, files_left=(), complaints=("removed a file outside of its folder",))
    at_the_root = Path("/escaped-by-chaos")
    if list(place.folder.rglob("escaped")) or (at_the_root.name in content and at_the_root.exists()):
        at_the_root.unlink(missing_ok=True)
        return replace(seen, files_left=(), complaints=("wrote outside of its folder",))
    # What it tried is kept for people to look at.
    return replace(seen, files_left=())


def _odd(place: Place, *, name: str) -> Seen:
    path = place.folder / "odd.yaml"
    if name == "a folder":
        path.mkdir()
    elif name == "a link in a circle":
        path.symlink_to(path)
    elif name == "a pipe nobody writes to":
        os.mkfifo(path)
    elif name.startswith("/dev/"):
        path = Path(name)
    place.bb("check", str(path))
    return place.seen()


_HUGE: Final = 10**18


def _numbers(document: Any, number: Any) -> Any:
    """The document with this in place of all its numbers."""
    if isinstance(document, dict):
        return {key: _numbers(value, number) for key, value in document.items()}
    if isinstance(document, list):
        return [_numbers(value, number) for value in document]
    return number if isinstance(document, int) and not isinstance(document, bool) else document


_MANIFESTS: Final[dict[str, Callable[[str], str]]] = {
    "times of 10^18": lambda text: json.dumps(_numbers(json.loads(text), _HUGE)),
    "times of -10^18": lambda text: json.dumps(_numbers(json.loads(text), -_HUGE)),
    "times of 10^400": lambda text: json.dumps(_numbers(json.loads(text), _HUGE)).replace(str(_HUGE), "1" + "0" * 400),
    "cut in half": lambda text: text[: len(text) // 2],
    "nothing": lambda _: "",
    "another type everywhere": lambda text: json.dumps(_numbers(json.loads(text), "seven")),
    "100 000 brackets": lambda _: "[" * 100_000,
    "escapes everywhere": lambda text: text.replace('"chaos"', '"\\u001b[2Jchaos"'),
}


def _recorded_run(place: Place) -> Path:
    """A manifest as a run writes it, made up once by a real run without a broker."""
    place.record(
        "run",
        str(place.scenario(measure="500ms", drain="500ms")),
        "--broker",
        "loopback://",
        "--no-html",
        "--runs",
        str(place.runs),
    )
    place.until(lambda: "recorded:" in place.said(), "a recorded run")
    return place.only_run.path


def _manifest(place: Place, *, change: Callable[[str], str], verb: str) -> Seen:
    run = _recorded_run(place)
    manifest = run / "manifest.json"
    manifest.write_text(change(manifest.read_text()))
    (place.folder / "said").unlink()
    place.bb(*((verb, "--runs", str(place.runs)) if verb == "list" else (verb, str(run))))
    return _without_runs(place.seen())


def _without_runs(seen: Seen) -> Seen:
    """That its run folder is damaged is the fault itself."""
    return replace(seen, runs=(), unreadable=())


_EVIDENCE: Final[dict[str, Callable[[Path], Any]]] = {
    "every file cut in half": lambda path: path.write_bytes(path.read_bytes()[: path.stat().st_size // 2]),
    "every file of zeros": lambda path: path.write_bytes(bytes(path.stat().st_size)),
    "every file empty": lambda path: path.write_bytes(b""),
    "every file gone": lambda path: path.unlink(),
}


def _evidence(place: Place, *, spoil: Callable[[Path], Any]) -> Seen:
    run = _recorded_run(place)
    for path in run.glob("recorded/**/*.parquet"):
        spoil(path)
    (place.folder / "said").unlink()
    place.bb("analyze", str(run))
    return _without_runs(place.seen())


_PCAP: Final = b"\xd4\xc3\xb2\xa1\x02\x00\x04\x00" + bytes(8) + b"\xff\xff\x00\x00\x01\x00\x00\x00"
_CAPTURES: Final = {
    "nothing": b"", "random bytes": random.Random(9).randbytes(50_000), "a head alone": _PCAP,
    "a record of 4 GiB": _PCAP + bytes(8) + b"\xff\xff\xff\xff\xff\xff\xff\xff" + bytes(500),
    "random records": _PCAP + random.Random(10).randbytes(100_000),
}  # fmt: skip


def _capture(place: Place, *, content: bytes) -> Seen:
    place.bb("pcap", str(place.write("hostile.pcap", content)), "--out", str(place.folder / "out"))
    seen = place.seen()
    shutil.rmtree(place.folder / "out", ignore_errors=True)
    return seen
