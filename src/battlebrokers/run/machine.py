"""Looks at the machine before a battle: limits, programs, free space, load. Gathers only; `preflight` judges.

Called by `bb doctor` and before runs. Starts nothing but `java -version` and the brokers' own version questions.
"""

from __future__ import annotations

import importlib.metadata
import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

import psutil

from battlebrokers.contenders.availability import Available, Missing, availability
from battlebrokers.contenders.reader import load_contenders
from battlebrokers.record.capture_tool import CaptureTool, NoCapture, find_tool
from battlebrokers.run import host
from battlebrokers.sdn.lab import open_vswitch

_JAVA_TIMEOUT_S = 30.0


@dataclass(frozen=True, slots=True)
class Java:
    """A Java program and its major version; 0 when it does not tell one."""

    path: str
    major: int


@dataclass(frozen=True, slots=True)
class Machine:
    """What was found; None or empty where the system does not tell."""

    open_files_soft: int = 1024
    """-1 is without limit."""
    open_files_hard: int = 4096
    local_ports: tuple[int, int] | None = None
    somaxconn: int | None = None
    tcp_congestion_control: str = ""
    cores: int = 1
    cpu_quota_cores: float | None = None
    governor: str = ""
    clock_source: str = ""
    steal_percent: float | None = None
    load_1min: float = 0.0
    memory_bytes: int = 0
    memory_available_bytes: int = 0
    memory_limit_bytes: int | None = None
    runs_folder: str = "runs"
    runs_writable: bool = True
    disk_free_bytes: int = 0
    address_space_bytes: int | None = None
    """What `ulimit -v` allows one process at most; None is without limit."""
    scratch_folder: str = ""
    """Where temporary files are made; empty when there is no place that can be written."""
    scratch_free_bytes: int = 0
    java: Java | None = None
    spark_version: str = ""
    brokers: Mapping[str, Available | Missing] = field(default_factory=dict)
    capture: CaptureTool | NoCapture | None = None
    """The program that captures, or why none can; None when nobody looked."""
    is_root: bool = False
    lab: open_vswitch.Lacks | None = None
    """What a lab of the network broker lacks here; None when nobody looked."""
    kernel_switches: bool = False
    """Whether the kernel has Open vSwitch's module."""


def gather(runs_folder: Path, *, programs: bool = True) -> Machine:
    """Look at this machine; without `programs` only at limits and free space, which takes no time."""
    soft, hard = host.open_files_limit()
    memory = psutil.virtual_memory()
    existing = _nearest_existing(runs_folder)
    scratch = _scratch_folder()
    return Machine(
        open_files_soft=soft,
        open_files_hard=hard,
        local_ports=host.local_ports(),
        somaxconn=host.somaxconn(),
        tcp_congestion_control=host.tcp_congestion_control(),
        cores=host.usable_cores(),
        cpu_quota_cores=host.cpu_quota_cores(),
        governor=host.cpu_governor(),
        clock_source=host.clock_source(),
        steal_percent=host.steal_percent(),
        load_1min=os.getloadavg()[0],
        memory_bytes=memory.total,
        memory_available_bytes=memory.available,
        memory_limit_bytes=host.memory_limit_bytes(),
        runs_folder=str(runs_folder),
        runs_writable=os.access(existing, os.W_OK | os.X_OK) and existing.is_dir(),
        disk_free_bytes=shutil.disk_usage(existing).free,
        address_space_bytes=host.address_space_limit(),
        scratch_folder=scratch,
        scratch_free_bytes=(host.free_bytes(Path(scratch)) or 0) if scratch else 0,
        java=find_java() if programs else None,
        spark_version=spark_version(),
        brokers={each.name: availability(each) for each in load_contenders() if not each.run.external}
        if programs
        else {},
        capture=find_tool() if programs else None,
        is_root=os.geteuid() == 0,
        lab=open_vswitch.look() if programs else None,
        kernel_switches=open_vswitch.kernel_switches(),
    )


def find_java() -> Java | None:
    """The Java that Spark will use: that of JAVA_HOME, else the first on PATH."""
    home = os.environ.get("JAVA_HOME")
    path = shutil.which(str(Path(home) / "bin" / "java")) if home else shutil.which("java")
    if path is None:
        return None
    try:
        told = subprocess.run([path, "-version"], capture_output=True, timeout=_JAVA_TIMEOUT_S, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return Java(path, 0)
    return Java(path, java_major((told.stderr + told.stdout).decode(errors="replace")))


def java_major(told: str) -> int:
    """The major version in what `java -version` prints; before 9 it was written 1.8."""
    match = re.search(r'version "(?:1\.)?(\d+)', told)
    return int(match.group(1)) if match else 0


def spark_version() -> str:
    """The version of PySpark, without importing it; empty when it is not installed."""
    try:
        return importlib.metadata.version("pyspark")
    except importlib.metadata.PackageNotFoundError:
        return ""


def _scratch_folder() -> str:
    try:
        return tempfile.gettempdir()
    except OSError:
        return ""


def _nearest_existing(folder: Path) -> Path:
    folder = folder.absolute()
    return next((path for path in (folder, *folder.parents) if path.exists()), folder)
