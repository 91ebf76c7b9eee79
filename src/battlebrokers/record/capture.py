"""Finds the wire a service is really on, and tells what a capture of it became. Talks to the system, starts nothing.

Called by `run.capturing` before it starts a capture program and after it has ended.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from battlebrokers.record.capture_tool import CaptureTool, files_begun
from battlebrokers.record.containers import Ask, ask, find_container, veth_of
from battlebrokers.record.route import addresses_of
from battlebrokers.record.wire import EVERYWHERE, LOOPBACK, Wire, safe_file_name


def located(wire: Wire, ask: Ask = ask, engines: Sequence[str] | None = None) -> Wire:
    """The same wire with its interface, namespace and addresses known; raises EnvironmentNotReady with the reason."""
    if wire.container:
        return _in_container(wire, ask, engines)
    interface = wire.interface or (EVERYWHERE if wire.namespace else LOOPBACK)
    hosts = wire.hosts or addresses_of(interface, wire.namespace_path, ask)
    return replace(wire, interface=interface, hosts=hosts)


def _in_container(wire: Wire, ask: Ask, engines: Sequence[str] | None) -> Wire:
    container = find_container(wire.container, ask, engines)
    hosts = wire.hosts or container.addresses
    if container.host_network:
        return replace(wire, interface=wire.interface or EVERYWHERE, hosts=hosts or ("127.0.0.1",))
    if wire.interface:
        return replace(wire, namespace=container.namespace, hosts=hosts)
    veth = veth_of(container, ask)
    if veth:
        return replace(wire, interface=veth, hosts=hosts)
    return replace(wire, interface=EVERYWHERE, namespace=container.namespace, hosts=hosts)


def raw_file(tool: CaptureTool, folder: Path, wire: Wire) -> Path:
    """The name to give to the program, which adds numbers of its own to it."""
    return folder / f"{safe_file_name(wire.service)}.{'pcapng' if tool.name == 'dumpcap' else 'pcap'}"


def raw_files(tool: CaptureTool, folder: Path, wire: Wire) -> list[Path]:
    """What the program has written so far under names of its own, oldest first."""
    asked = raw_file(tool, folder, wire)
    if tool.name == "dumpcap":
        return sorted(folder.glob(f"{asked.stem}_[0-9][0-9][0-9][0-9][0-9]_*{asked.suffix}"))
    return sorted(folder.glob(f"{asked.name}[0-9]*"), key=lambda path: path.stat().st_mtime_ns)


def tidied(tool: CaptureTool, folder: Path, wire: Wire, said: str) -> tuple[list[str], int]:
    """Rename what the program wrote to `<service>-00001.pcapng…`; returns the names and how many were replaced.

    The number is that of the file since the start, so that a ring that turned shows by the numbers that are missing.
    """
    asked = raw_file(tool, folder, wire)
    written = raw_files(tool, folder, wire)
    replaced = max(files_begun(tool, said) - len(written), 0)
    if tool.name == "dumpcap":
        numbers = [int(path.name[len(asked.stem) + 1 :][:5]) for path in written]
    else:
        numbers = [replaced + place for place in range(1, len(written) + 1)]
    names = [f"{asked.stem}-{number:05d}{asked.suffix}" for number in numbers]
    for name, path in zip(names, written, strict=True):
        path.rename(folder / name)
    return names, replaced


def written_bytes(tool: CaptureTool, folder: Path, wire: Wire) -> int:
    """How much of this wire lies on disk by now, replaced files not counted."""
    total = 0
    for path in raw_files(tool, folder, wire):
        try:
            total += path.stat().st_size
        except OSError:
            continue
    return total
