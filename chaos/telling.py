"""What chaos tells: a line per fault, the sum, JSON, and the figures in the page on robustness. Mostly pure."""

from __future__ import annotations

import json
import platform
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

from chaos.fault import Result

_BEGIN: Final = "<!-- chaos: written by `make chaos`, from chaos.json beside this page -->"
_END: Final = "<!-- end of chaos -->"
_AGAIN: Final = (
    "Of them {} were lost at first, and tried again after the product, or what the fault expects, was changed:"
)
_ABOUT: Final = {
    "kill": "SIGKILL for each process of a run, in each phase",
    "pause": "SIGSTOP for each process, for a moment or for good",
    "interrupt": "SIGINT once and twice, SIGTERM, SIGHUP, in each phase",
    "disk": "full disks, files that may not grow, output nobody takes",
    "limits": "too few file descriptors, too little memory",
    "places": "runs folders where nothing can be written",
    "server": "servers that speak wrongly: MQTT, TLS, HTTP, WebSocket, AMQP, CoAP",
    "file": "hostile scenarios, contenders, manifests, evidence, captures",
}


def line(result: Result) -> str:
    """One fault, as it ended."""
    state = "skip" if result.skipped else "held" if result.held else "LOST"
    why = result.skipped or "; ".join(result.complaints)
    code = "-" if result.code is None else str(result.code)
    return f"{state}  {result.seconds:6.1f} s  {code:>4}  {result.fault}{f'   {why}' if why else ''}"


def total(results: Sequence[Result]) -> str:
    """The sum."""
    counts = _counts(results)
    skipped = f", not tried here {counts['skipped']}" if counts["skipped"] else ""
    return f"tried {counts['tried']}, held {counts['held']}, lost {counts['lost']}{skipped}"


def as_json(results: Sequence[Result], seconds: float) -> dict[str, Any]:
    """Everything, for programs."""
    groups: dict[str, list[Result]] = {}
    for result in results:
        groups.setdefault(result.fault.partition("/")[0], []).append(result)
    return {
        **_counts(results),
        "seconds": round(seconds),
        "machine": {"system": platform.system(), "python": platform.python_version()},
        "groups": {name: _counts(ones) for name, ones in sorted(groups.items())},
        "faults": [
            {
                "fault": one.fault, "held": one.held, "code": one.code, "seconds": round(one.seconds, 1),
                **({"complaints": list(one.complaints)} if one.complaints else {}),
                **({"skipped": one.skipped} if one.skipped else {}),
            }
            for one in sorted(results, key=lambda one: one.fault)
        ],
    }  # fmt: skip


def results_in(told: dict[str, Any]) -> list[Result]:
    """What `as_json` told, read back."""
    return [
        Result(one["fault"], one["seconds"], one["code"], tuple(one.get("complaints", ())), one.get("skipped", ""))
        for one in told["faults"]
    ]


def block(told: dict[str, Any]) -> str:
    """The figures as a table for the page."""
    again = told.get("tried_again", ())
    rows = [
        f"| {_ABOUT.get(name, name)} | {counts['tried']} | {counts['held']} | {counts['lost']} |"
        for name, counts in told["groups"].items()
    ]
    lost = [
        f"- `{one['fault']}`: {'; '.join(one['complaints'])}"
        for one in told["faults"]
        if not one["held"] and "complaints" in one
    ]
    skipped = [f"- `{one['fault']}`: {one['skipped']}" for one in told["faults"] if "skipped" in one]
    return "\n".join(
        [
            _BEGIN, "", "| faults | tried | held | lost |", "|---|---|---|---|", *rows,
            f"| **all** | **{told['tried']}** | **{told['held']}** | **{told['lost']}** |", "",
            f"In {told['seconds'] / 60:.0f} minutes; every fault by name in [chaos.json](chaos.json).",
            *(["", _AGAIN.format(len(again)), "", *(f"- `{name}`" for name in again)] if again else []),
            *(["", "Lost:", "", *lost] if lost else []),
            *(["", "Not tried there:", "", *skipped] if skipped else []), "", _END,
        ]
    )  # fmt: skip


def record(told: dict[str, Any], folder: Path) -> None:
    """Write `chaos.json` and put its figures into `robustness.md` in that folder."""
    (folder / "chaos.json").write_text(json.dumps(told, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    page = folder / "robustness.md"
    page.write_text(with_block(page.read_text(encoding="utf-8"), block(told)), encoding="utf-8")


def with_block(page: str, figures: str) -> str:
    """The page with these figures in place of those it has."""
    before, _, rest = page.partition(_BEGIN)
    _, found, after = rest.partition(_END)
    if not found:
        raise ValueError("the page has no place for the figures")
    return before + figures + after


def _counts(results: Sequence[Result]) -> dict[str, int]:
    states = Counter("skipped" if one.skipped else "held" if one.held else "lost" for one in results)
    tried = states["held"] + states["lost"]
    return {"tried": tried, "held": states["held"], "lost": states["lost"], "skipped": states["skipped"]}
