"""What this machine must allow the analysis: better known before a load than after it. Pure functions over facts.

Called by `bb doctor` and before runs, beside `preflight`, which judges what the load itself needs.
"""

from __future__ import annotations

from battlebrokers.heap import JAVA_FILES, address_space_bytes, scratch_bytes
from battlebrokers.run.machine import Machine
from battlebrokers.run.preflight import Check, Needs
from battlebrokers.units import format_count, format_size


def analysis(machine: Machine, needs: Needs) -> list[Check]:
    """What Spark will need."""
    return [java_files(machine), address_space(machine, needs), scratch(machine, needs)]


def java_files(machine: Machine) -> Check:
    """Java opens every library of Spark; it raises its own limit as far as it is allowed to."""
    name = "Java files"
    hard = machine.open_files_hard
    value = f"at most {format_count(hard) if hard >= 0 else 'without limit'}; {JAVA_FILES} needed"
    if hard < 0 or hard >= JAVA_FILES:
        return Check(name, "ok", value, "the analysis opens every library of Spark")
    return Check(
        name,
        "fail",
        value,
        "the analysis opens every library of Spark, and could not start after the load",
        f"ulimit -n {max(1024, JAVA_FILES)}   (before bb, in a new shell where the limit was lowered)",
    )


def address_space(machine: Machine, needs: Needs) -> Check:
    """A JVM reserves far more addresses than it uses memory."""
    name = "address space"
    limit = machine.address_space_bytes
    needed = address_space_bytes(needs.events, machine.memory_bytes)
    if limit is None:
        return Check(name, "ok", "without limit", "the analysis reserves addresses, not memory")
    value = f"limited to {format_size(limit)}; {format_size(needed)} needed"
    if limit >= needed:
        return Check(name, "ok", value, "the analysis reserves addresses, not memory")
    return Check(
        name,
        "fail",
        value,
        "Java reserves addresses for heap, classes and compiled code, and could not start after the load",
        "ulimit -v unlimited   (before bb, in a new shell where the limit was lowered)",
    )


def scratch(machine: Machine, needs: Needs) -> Check:
    """Spark keeps its temporary files where all programs do."""
    name = "scratch"
    fix = "free some space there, or choose another place: TMPDIR=DIR"
    if not machine.scratch_folder:
        return Check(name, "fail", "no temporary folder can be written", "the analysis needs one", fix)
    value = f"{format_size(machine.scratch_free_bytes)} free in {machine.scratch_folder}"
    needed = scratch_bytes(needs.events)
    if machine.scratch_free_bytes < needed:
        return Check(name, "fail", value, f"the analysis of this load needs about {format_size(needed)} there", fix)
    return Check(name, "ok", value, f"the analysis of this load needs about {format_size(needed)} there")
