"""Compares what was seen after a fault with what must hold. Pure; called by the pool after each fault."""

from __future__ import annotations

import re
from typing import Final

from chaos.fault import Must, Seen

TRACEBACK: Final = "Traceback (most recent call last)"
_SILENT_CODES: Final = frozenset({0, 6, 10, -9, -1, -2, -15})
"""Verdicts, and ends by a signal nobody can answer: there need not be an error message."""
_CONTROL: Final = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f]")


def complaints_about(seen: Seen, must: Must) -> tuple[str, ...]:
    """Everything that does not hold."""
    return (*_of_the_end(seen, must), *_of_what_it_said(seen, must), *_of_what_is_left(seen, must), *seen.complaints)


def _of_the_end(seen: Seen, must: Must) -> list[str]:
    found = []
    if seen.code is None:
        found.append(f"did not end within {seen.seconds:.0f} s")
    elif seen.code not in must.codes:
        found.append(f"exit code {seen.code}, not {' or '.join(map(str, sorted(must.codes)))}")
    if must.ends_within_s and seen.after_fault_s > must.ends_within_s:
        found.append(f"ended {seen.after_fault_s:.1f} s after the fault, limit {must.ends_within_s:g} s")
    if seen.peak_mib > must.memory_mib:
        found.append(f"used {seen.peak_mib} MiB, limit {must.memory_mib} MiB")
    return found


def _of_what_it_said(seen: Seen, must: Must) -> list[str]:
    found = []
    if TRACEBACK in seen.said:
        found.append("a traceback")
    if "this is our bug" in seen.said:
        found.append("calls itself a bug")
    errors = len(re.findall(r"^(?:error:|interrupted)", seen.said, re.MULTILINE))
    if (
        seen.code is not None
        and seen.code not in _SILENT_CODES | {130}
        and errors == 0
        and "usage:" not in seen.said.lower()
    ):
        found.append("no error message")
    if errors > 1:
        found.append(f"{errors} error messages instead of one")
    if must.says and not re.search(must.says, seen.said, re.IGNORECASE):
        found.append(f"does not say /{must.says}/")
    if control := _CONTROL.search(seen.said):
        found.append(f"prints the control character {control.group()!r}")
    return found


def _of_what_is_left(seen: Seen, must: Must) -> list[str]:
    found = [f"left a process: {one}" for one in seen.left[:3]]
    found += [f"left a temporary file: {one}" for one in seen.files_left[:3]]
    found += [f"cannot be read: {one}" for one in seen.unreadable[:3]]
    found += [f"damaged run folder: {damage}" for _, damage in seen.runs if damage]
    if must.states and not seen.runs:
        found.append("there is no run folder")
    if must.states:
        wrong = [state for state, damage in seen.runs if not damage and state not in must.states]
        found += [f"the run is listed as '{state}', not {' or '.join(sorted(must.states))}" for state in wrong]
    if must.evidence and not seen.recorded_rows:
        found.append("nothing recorded is there")
    return found
