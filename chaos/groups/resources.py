"""Nothing left: disks that are full, files that may not grow, too few descriptors, too little memory, odd places."""

from __future__ import annotations

import contextlib
import os
import resource
import subprocess
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any, Final

from chaos.fault import REFUSED, Fault, Must, Seen
from chaos.groups.kills import with_evidence
from chaos.place import Place

_FULL: Final = Must(frozenset({4}), says="no space|full|space left|too large|can(not)? be written|free in")
_HEAVY: Final = {"measure": "8s", "drain": "2s"}
_MORE: Final = ("--set", "fleets.sensor.every=400/s")


def faults() -> list[Fault]:
    """All of them."""
    found = [
        Fault(
            "disk",
            f"{kib} KiB free before it starts",
            partial(_small_disk, kib=kib),
            _FULL,
            kib == 256,
            needs="mosquitto root",
        )
        for kib in (16, 256, 1024, 50_000)
    ]
    for phase in ("connect", "warm-up", "measure", "drain"):
        # In the drain everything may be written down already.
        must = Must(frozenset({0, 4}), evidence=True) if phase == "drain" else _FULL
        must = with_evidence(must) if phase == "measure" else must
        what = partial(_filled_disk, phase=phase)
        found.append(Fault("disk", f"full in {phase}", what, must, phase == "measure", needs="mosquitto root"))
    for kib in (0, 4, 16):
        what = partial(_small_files, kib=kib)
        must = _FULL if kib == 0 else Must(frozenset({0, 4}))
        found.append(Fault("disk", f"files of at most {kib} KiB", what, must, needs="mosquitto"))
    must = Must(frozenset({0, 1, 4, 6}))
    found.append(
        Fault("disk", "a full temporary folder", _full_temporary, must, within_s=180, needs="mosquitto root java")
    )
    for words in (("list",), ("schema",), ("brokers",), ("run", "--help"), ("check", "one-to-one")):
        said = " ".join(words)
        must = Must(frozenset({4}))
        found.append(
            Fault(
                "disk", f"bb {said} into /dev/full", partial(_into_full, words=words), must, short=words == ("schema",)
            )
        )
        found.append(
            Fault(
                "disk", f"bb {said} into a closed pipe", partial(_into_closed, words=words), Must(frozenset({0, -13}))
            )
        )
    for count in (12, 24, 48, 96, 256):
        must = Must(frozenset({0, 4, 5}))
        found.append(
            Fault(
                "limits",
                f"{count} file descriptors",
                partial(_few_files, count=count),
                must,
                short=count == 48,
                needs="mosquitto",
            )
        )
    # Between these a library of numpy ends the process by itself, before anything of ours is loaded.
    for mib in (64, 400, 800):
        found.append(
            Fault(
                "limits",
                f"{mib} MiB of address space",
                partial(_little_memory, mib=mib),
                Must(frozenset({0, 4})),
                needs="mosquitto",
            )
        )
    for name in _PLACES:
        # The system has other places for temporary files.
        codes = REFUSED | {0} if name.startswith("a temporary folder") else REFUSED
        what = partial(_odd_place, name=name)
        found.append(Fault("places", name, what, Must(codes), name == "a file as runs folder", needs="mosquitto"))
    return found


def _words(place: Place, runs: Path, *more: str) -> list[str]:
    return ["run", str(place.scenario(**_HEAVY)), "--broker", "mosquitto", "--no-html", "--runs", str(runs), *more]


@contextlib.contextmanager
def _mounted(place: Path, options: str) -> Iterator[None]:
    place.mkdir(parents=True, exist_ok=True)
    subprocess.run(["mount", "-t", "tmpfs", "-o", options, "tmpfs", str(place)], check=True)
    try:
        yield
    finally:
        subprocess.run(["umount", "-l", str(place)], check=True)


def _small_disk(place: Place, *, kib: int) -> Seen:
    with _mounted(place.runs, f"size={kib}k"):
        place.record(*_words(place, place.runs, *_MORE))
        return place.seen()


def _filled_disk(place: Place, *, phase: str) -> Seen:
    """Something else fills it while the run is under way."""
    with _mounted(place.runs, "size=110m"):
        times = {"warm_up": "6s" if phase == "warm-up" else "0s", "measure": "6s", "drain": "5s", "quiet": "3s"}
        words = ["run", str(place.scenario(**times)), "--broker", "mosquitto", "--no-html", "--runs", str(place.runs)]
        place.record(*words, *_MORE)
        place.in_phase(phase)
        place.now()
        with contextlib.suppress(OSError), (place.runs / "filler").open("wb", buffering=0) as filler:
            while filler.write(bytes(1 << 16)):
                pass
        return place.seen()


def _small_files(place: Place, *, kib: int) -> Seen:
    limit = partial(resource.setrlimit, resource.RLIMIT_FSIZE, (kib << 10, kib << 10))
    # What it prints goes into a pipe: the limit is for what it records.
    return _through_a_pipe(place, _words(place, place.runs, *_MORE), limit)


def _through_a_pipe(place: Place, words: list[str], limit: Any) -> Seen:
    reading, writing = os.pipe()
    place.record(*words, stdout=writing, stderr=writing, preexec_fn=limit)
    os.close(writing)
    with os.fdopen(reading, "rb") as said:
        # It ends when nobody has the other end any more.
        place.write("said", said.read()[-100_000:])
    return place.seen()


def _full_temporary(place: Place) -> Seen:
    with _mounted(place.temporary, "size=128k"):
        place.bb(
            "run",
            str(place.scenario(measure="1s", drain="1s")),
            "--broker",
            "mosquitto",
            "--no-html",
            "--runs",
            str(place.runs),
        )
        return place.seen()


def _into_full(place: Place, *, words: tuple[str, ...]) -> Seen:
    with Path("/dev/full").open("wb") as full:
        place.bb(*words, stdout=full)
        return place.seen()


def _into_closed(place: Place, *, words: tuple[str, ...]) -> Seen:
    reading, writing = os.pipe()
    os.close(reading)
    place.bb(*words, stdout=writing)
    os.close(writing)
    return place.seen()


def _few_files(place: Place, *, count: int) -> Seen:
    limit = partial(resource.setrlimit, resource.RLIMIT_NOFILE, (count, count))
    place.record(
        *_words(place, place.runs, "--set", "fleets.sensor.devices=100", "--set", "phases.measure=1s"), preexec_fn=limit
    )
    return place.seen()


def _little_memory(place: Place, *, mib: int) -> Seen:
    limit = partial(resource.setrlimit, resource.RLIMIT_AS, (mib << 20, mib << 20))
    place.bb("check", str(place.scenario(measure="1s")), preexec_fn=limit)
    return place.seen()


_PLACES: Final = (
    "a file as runs folder", "runs below a file", "runs in /proc", "runs in a read-only file system",
    "a link in a circle as runs folder", "a name of 300 letters", "a temporary folder that is not there",
)  # fmt: skip


def _odd_place(place: Place, *, name: str) -> Seen:
    runs, env = place.folder / "odd", {}
    with contextlib.ExitStack() as stack:
        if name == "a file as runs folder":
            runs.write_text("not a folder")
        elif name == "runs below a file":
            runs.write_text("not a folder")
            runs /= "below"
        elif name == "runs in /proc":
            runs = Path("/proc/runs")
        elif name == "runs in a read-only file system":
            stack.enter_context(_mounted(runs, "ro"))
        elif name == "a link in a circle as runs folder":
            runs.symlink_to(runs)
        elif name == "a name of 300 letters":
            runs = place.folder / ("x" * 300)
        else:
            runs, env = place.runs, {"TMPDIR": str(place.folder / "nowhere")}
        words = ["run", str(place.scenario()), "--broker", "mosquitto", "--no-html", "--runs", str(runs)]
        place.record(*words, env=env)
        return place.seen()
