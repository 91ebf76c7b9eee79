"""Preflight: may this machine run this load, and if not, what exactly to type. Pure functions over gathered facts.

Called by `bb doctor` and before runs. Each check says what was measured, what it means and how to mend it.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

from battlebrokers.contenders.availability import Available
from battlebrokers.errors import EnvironmentNotReady
from battlebrokers.record.capture_tool import NoCapture
from battlebrokers.run.machine import Machine
from battlebrokers.units import format_count, format_size

State = Literal["ok", "warn", "fail"]

JAVA_AT_LEAST = 17
FILES_BESIDE_CONNECTIONS = 200
"""Files a broker or an engine process has open besides its connections: logs, libraries, pipes, event loops."""
CONNECTIONS_PER_ENGINE = 15_000
SOURCE_PORTS_KEPT = 500
"""Local ports of one source address we leave to everybody else."""
BYTES_PER_EVENT = 64
MEBIBYTE = 1 << 20
LEAST_DISK_BYTES = 100 * MEBIBYTE
LAST_DISK_BYTES = 2 * MEBIBYTE
HELD_IN_MEMORY_S = 3.0
GIBIBYTE = 1 << 30
FAST_CLOCKS = ("tsc", "kvm-clock", "arch_sys_counter", "hyperv_clocksource_tsc_page", "xen", "timebase")
STEADY_GOVERNORS = ("", "performance")
PACED_BY_TIMERS = "bbr"


@dataclass(frozen=True, slots=True)
class Needs:
    """What a load asks of the machine."""

    connections: int = 1000
    events: int = 1_000_000
    """Messages published and delivered, the rows that will be recorded."""
    events_per_s: float = 0.0
    broker_here: bool = True
    """Whether the broker runs on this machine too."""

    @property
    def open_files(self) -> int:
        """The most files one process here has open: the broker holds all connections, an engine its share."""
        connections = self.connections if self.broker_here else min(self.connections, CONNECTIONS_PER_ENGINE)
        return connections + FILES_BESIDE_CONNECTIONS

    @property
    def disk_bytes(self) -> int:
        """What the evidence of the load takes, as an estimate; at least what every run may need."""
        return max(self.events * BYTES_PER_EVENT, LEAST_DISK_BYTES)

    @property
    def last_bytes(self) -> int:
        """What must be free while a load lasts: room for the events in memory, samples and the manifest."""
        in_memory = int(self.events_per_s * BYTES_PER_EVENT * HELD_IN_MEMORY_S)
        return min(LAST_DISK_BYTES + in_memory, self.disk_bytes // 2)


@dataclass(frozen=True, slots=True)
class Check:
    """One look at the machine. `fail`: a run cannot work; `warn`: it works, but the figures may suffer."""

    name: str
    state: State
    value: str
    meaning: str
    fix: str = ""


def preflight(machine: Machine, needs: Needs) -> list[Check]:
    """Every check that needs no program to be asked."""
    return [
        open_files(machine, needs),
        local_ports(machine, needs),
        accept_queue(machine),
        congestion_control(machine, needs),
        disk(machine, needs),
        memory(machine),
        cpu(machine),
        load(machine),
        clock(machine),
    ]


def examine(machine: Machine, needs: Needs) -> list[Check]:
    """Every check there is."""
    programs = [java(machine), spark(machine), brokers(machine), capture(machine)]
    return [*preflight(machine, needs), *programs, switches(machine), lab_tools(machine), lab_rights(machine)]


def require(checks: Iterable[Check]) -> None:
    """Raise EnvironmentNotReady if a check failed, with all of them and their fixes."""
    failed = [check for check in checks if check.state == "fail"]
    if failed:
        raise EnvironmentNotReady(
            "; ".join(f"{check.name}: {check.value} ({check.meaning})" for check in failed),
            hint="; ".join(check.fix for check in failed),
        )


def open_files(machine: Machine, needs: Needs) -> Check:
    """One connection is one open file: all of them in the broker, a share of them in each engine process."""
    needed = needs.open_files
    soft, hard = machine.open_files_soft, machine.open_files_hard
    name = "open files"
    value = f"{_limit(soft)} per process, at most {_limit(hard)}; {format_count(needed)} needed"
    if soft < 0 or soft >= needed:
        return Check(name, "ok", value, "every connection is an open file, in the broker and in an engine process")
    if hard < 0 or hard >= needed:
        return Check(
            name,
            "warn",
            value,
            "the limit of this shell is below the need; it may be raised without more rights",
            f"ulimit -n {needed}   (then run bb in that same shell)",
        )
    able = max(hard - FILES_BESIDE_CONNECTIONS, 0)
    return Check(
        name,
        "fail",
        value,
        f"one process can hold about {format_count(able)} connections; beyond that they are refused",
        f"as root: printf '* soft nofile {needed}\\n* hard nofile {needed}\\n' >> /etc/security/limits.conf, then log "
        f"in again; in a container: docker run --ulimit nofile={needed}; under systemd: LimitNOFILE={needed}",
    )


def local_ports(machine: Machine, needs: Needs) -> Check:
    """Between one source address and one broker port there are only as many connections as local ports."""
    name = "local ports"
    if machine.local_ports is None:
        return Check(name, "ok", "unknown here", "outgoing connections each take a local port")
    first, last = machine.local_ports
    usable = max(last - first + 1 - SOURCE_PORTS_KEPT, 0)
    value = f"{first}–{last}: about {format_count(usable)} connections per source address"
    if needs.connections <= usable:
        return Check(name, "ok", value, "each connection to one broker port takes one local port")
    sources = -(-needs.connections // max(usable, 1))
    return Check(
        name,
        "warn",
        f"{value}; {format_count(needs.connections)} needed",
        f"this load needs {sources} source addresses (127.0.0.1 to 127.0.0.{sources} for a broker on this machine) "
        "or a wider range",
        'as root: sysctl -w net.ipv4.ip_local_port_range="1024 65535"   (gives about 64 000 per address)',
    )


def accept_queue(machine: Machine) -> Check:
    """Connections that arrive faster than the broker accepts wait in a queue of this length."""
    name = "accept queue"
    if machine.somaxconn is None:
        return Check(name, "ok", "unknown here", "connections wait in it until the broker accepts them")
    value = f"somaxconn {machine.somaxconn}"
    if machine.somaxconn >= 1024:
        return Check(name, "ok", value, "connections wait in it until the broker accepts them")
    return Check(
        name,
        "warn",
        value,
        "when many devices connect at once, the system drops some and they try again a second later",
        "as root: sysctl -w net.core.somaxconn=4096",
    )


def congestion_control(machine: Machine, needs: Needs) -> Check:
    """Loopback has no congestion to control, so all a broker on this machine can get from it is its price."""
    name = "TCP"
    meaning = "how TCP decides when to send, for the broker as well as for us"
    control = machine.tcp_congestion_control
    value = f"congestion control {control}" if control else "congestion control unknown here"
    if control != PACED_BY_TIMERS or not needs.broker_here:
        return Check(name, "ok", value, meaning)
    return Check(
        name,
        "warn",
        value,
        "on loopback it paces what is sent by timers; brokers pay for them, and rates come out lower",
        "as root: sysctl -w net.ipv4.tcp_congestion_control=cubic",
    )


def disk(machine: Machine, needs: Needs) -> Check:
    """The evidence is written while the run goes on."""
    name = "disk"
    if not machine.runs_writable:
        return Check(
            name,
            "fail",
            f"{machine.runs_folder} cannot be written",
            "run folders are made there",
            "choose another folder: --runs DIR or BB_RUNS=DIR",
        )
    needed = needs.events * BYTES_PER_EVENT
    value = f"{format_size(machine.disk_free_bytes)} free in {machine.runs_folder}"
    if machine.disk_free_bytes < max(needed, LEAST_DISK_BYTES):
        least = format_size(LEAST_DISK_BYTES)
        return Check(
            name,
            "fail",
            value,
            f"the evidence of this load takes about {format_size(needed)}, and no run begins with less than {least}",
            "free some space, or choose another disk: --runs DIR or BB_RUNS=DIR",
        )
    if machine.disk_free_bytes < needed * 3 + GIBIBYTE:
        return Check(name, "warn", value, "little room for evidence and analysis", "free some space, or --runs DIR")
    return Check(name, "ok", value, f"the evidence of this load takes about {format_size(needed)}")


def memory(machine: Machine) -> Check:
    """Spark takes about one gibibyte, the broker and its connections the rest."""
    name = "memory"
    usable = machine.memory_available_bytes
    value = f"{format_size(usable)} available of {format_size(machine.memory_bytes)}"
    if machine.memory_limit_bytes is not None:
        usable = min(usable, machine.memory_limit_bytes)
        value += f", limited to {format_size(machine.memory_limit_bytes)}"
    meaning = "the analysis takes about 1 GiB, a connection a few KiB on each side"
    if usable < GIBIBYTE:
        return Check(name, "fail", value, meaning, "close other programs, or use a machine with at least 2 GiB free")
    if usable < 2 * GIBIBYTE:
        return Check(name, "warn", value, meaning, "close other programs: swapping ruins every latency")
    return Check(name, "ok", value, meaning)


def cpu(machine: Machine) -> Check:
    """The generator must never be what is measured."""
    name = "CPU"
    cores = f"{machine.cores} core" + ("s" if machine.cores != 1 else "")
    value = cores + (f", governor {machine.governor}" if machine.governor else ", governor not visible")
    if machine.cpu_quota_cores is not None:
        value += f", limited to {machine.cpu_quota_cores:g} cores"
    if machine.cpu_quota_cores is not None and machine.cpu_quota_cores < machine.cores:
        return Check(
            name,
            "warn",
            value,
            "a CPU quota freezes all threads when it is used up, which shows as latency that is not the broker's",
            "run without a CPU limit (docker: no --cpus; systemd: no CPUQuota)",
        )
    if machine.governor not in STEADY_GOVERNORS:
        return Check(
            name,
            "warn",
            value,
            "the clock frequency follows the load, so that quiet runs look slower than busy ones",
            "as root: cpupower frequency-set -g performance   (or write performance into "
            "/sys/devices/system/cpu/cpu*/cpufreq/scaling_governor)",
        )
    if machine.cores < 2:
        return Check(
            name,
            "warn",
            value,
            "generator and broker share one core and slow each other down",
            "use a machine with two cores or more, or a broker on another machine: --broker mqtt://host:1883",
        )
    if machine.steal_percent is not None and machine.steal_percent > 5.0:
        return Check(
            name,
            "warn",
            f"{value}, {machine.steal_percent:g}% stolen since boot",
            "the hypervisor takes CPU time away; stalls you see may be its",
            "use a machine of your own, or a dedicated instance",
        )
    return Check(name, "ok", value, "generator and broker share these cores")


def load(machine: Machine) -> Check:
    """Whoever else works here is measured too."""
    value = f"{machine.load_1min:.2f} in the last minute on {machine.cores} cores"
    if machine.load_1min > 0.5 * machine.cores:
        return Check(
            "load",
            "warn",
            value,
            "other programs use the CPU and will be part of the result",
            "end or pause them (`top` shows who it is), wait a minute, and look again",
        )
    return Check("load", "ok", value, "the machine is quiet enough")


def clock(machine: Machine) -> Check:
    """Two readings of the clock are taken for every message."""
    name = "clock"
    source = machine.clock_source
    if not source or source.startswith(FAST_CLOCKS):
        return Check(name, "ok", source or "unknown here", "reading the time is cheap")
    return Check(
        name,
        "warn",
        source,
        "each reading of this clock costs a microsecond or more, and there are two for each message",
        "as root: echo tsc > /sys/devices/system/clocksource/clocksource0/current_clocksource   (if offered there)",
    )


def java(machine: Machine) -> Check:
    """Spark runs on Java."""
    name = "Java"
    fix = "as root: apt-get install -y --no-install-recommends openjdk-17-jre-headless   (or a newer one)"
    if machine.java is None:
        return Check(name, "fail", "not found", f"the analysis needs Java {JAVA_AT_LEAST} or newer", fix)
    value = f"{machine.java.major or 'unknown version'} ({machine.java.path})"
    if machine.java.major < JAVA_AT_LEAST:
        return Check(
            name,
            "fail",
            value,
            f"the analysis needs Java {JAVA_AT_LEAST} or newer",
            f"{fix}, then point JAVA_HOME to it",
        )
    return Check(name, "ok", value, "the analysis runs on it")


def spark(machine: Machine) -> Check:
    """The pipeline is PySpark."""
    if not machine.spark_version:
        return Check(
            "Spark", "fail", "not found", "the analysis is a PySpark pipeline", "pip install 'pyspark>=4.3,<4.4'"
        )
    return Check("Spark", "ok", machine.spark_version, "installed; not started by this check")


def brokers(machine: Machine) -> Check:
    """At least one contender must be able to run; two make a battle."""
    here = {name: found for name, found in machine.brokers.items() if isinstance(found, Available)}
    missing = sorted(set(machine.brokers) - set(here))
    value = ", ".join(f"{name} {found.version}" for name, found in here.items()) or "none"
    if not here:
        return Check("brokers", "fail", value, "no contender can run here", "pip install amqtt, or see `bb brokers`")
    if missing:
        word = f"not here: {', '.join(missing)}"
        return Check("brokers", "ok", value, word, "`bb brokers` tells how to install them")
    return Check("brokers", "ok", value, "all contenders can run here")


def capture(machine: Machine) -> Check:
    """Only `--capture` and `bb capture` need it; a run without it goes on."""
    name = "capture"
    meaning = "only --capture and `bb capture` need it; runs go on without"
    if machine.capture is None:
        return Check(name, "ok", "not looked at", meaning)
    if isinstance(machine.capture, NoCapture):
        return Check(name, "ok", f"not possible: {machine.capture.why}", meaning, machine.capture.fix)
    inside = "also in namespaces and containers" if machine.is_root else "not in namespaces and containers: takes root"
    return Check(name, "ok", f"{machine.capture.name} may capture ({inside})", meaning)


def switches(machine: Machine) -> Check:
    """The network broker's lab is made of Open vSwitch; nothing else needs it."""
    missing = _lab_tools_missing(machine, switching=True)
    how = "the kernel switches" if machine.kernel_switches else "its daemon switches, as the kernel has no module"
    return _for_the_lab(machine, "Open vSwitch", missing, how, "as root: apt-get install openvswitch-switch")


def lab_tools(machine: Machine) -> Check:
    """Hosts and cables of the lab are made with the system's own tools."""
    missing = _lab_tools_missing(machine, switching=False)
    fix = "as root: apt-get install iproute2"
    return _for_the_lab(machine, "lab tools", missing, "ip is here", fix)


def lab_rights(machine: Machine) -> Check:
    """Namespaces take root, and a daemon that switches takes packets from the kernel by a device."""
    fault = fix = ""
    if machine.lab is not None and machine.lab.root_rights:
        fault, fix = "not root", "run bb with sudo"
    elif machine.lab is not None and machine.lab.tun:
        fault = f"/dev/net/tun: {machine.lab.tun}"
        fix = "as root: modprobe tun; in a container: docker run --privileged --device /dev/net/tun"
    return _for_the_lab(machine, "lab rights", fault, "root, and /dev/net/tun opens", fix)


def _lab_tools_missing(machine: Machine, *, switching: bool) -> str:
    tools = machine.lab.tools if machine.lab is not None else ()
    chosen = [tool for tool in tools if tool.startswith("ovs") is switching]
    return f"not here: {', '.join(chosen)}" if chosen else ""


def _for_the_lab(machine: Machine, name: str, fault: str, good: str, fix: str) -> Check:
    meaning = "only the network broker (`bb sdn lab`, and as a contender) needs it; other runs go on without"
    if machine.lab is None:
        return Check(name, "ok", "not looked at", meaning)
    return Check(name, "ok", fault, meaning, fix) if fault else Check(name, "ok", good, meaning)


def _limit(number: int) -> str:
    return "without limit" if number < 0 else format_count(number)
