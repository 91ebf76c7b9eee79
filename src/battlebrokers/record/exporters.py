"""Metric names of known Prometheus exporters, as queries for the columns of `resources`. Data only.

Read by contender files (`metrics: {exporter: cadvisor, labels: {name: redis}}`) and by `prometheus`.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Literal

Exporter = Literal["cadvisor", "rabbitmq", "process"]

MEASURED_COLUMNS = (
    "cpu_percent",
    "busiest_thread_percent",
    "rss_bytes",
    "read_bytes",
    "written_bytes",
    "received_bytes",
    "sent_bytes",
    "open_files",
    "threads",
    "processes",
)
"""Columns of `resources` that a query may fill."""

# `irate` looks at the last two scrapes within the window: the finest a server can tell, whatever its interval.
_QUERIES: dict[Exporter, dict[str, str]] = {
    "cadvisor": {
        "cpu_percent": "100 * sum(irate(container_cpu_usage_seconds_total{@}[1m]))",
        "rss_bytes": "sum(container_memory_rss{@})",
        "read_bytes": "sum(container_fs_reads_bytes_total{@})",
        "written_bytes": "sum(container_fs_writes_bytes_total{@})",
        "received_bytes": "sum(container_network_receive_bytes_total{@})",
        "sent_bytes": "sum(container_network_transmit_bytes_total{@})",
        "open_files": "sum(container_file_descriptors{@})",
        "threads": "sum(container_threads{@})",
        "processes": "sum(container_processes{@})",
    },
    "rabbitmq": {
        "cpu_percent": "sum(irate(erlang_vm_statistics_runtime_milliseconds{@}[1m])) / 10",
        "rss_bytes": "sum(rabbitmq_process_resident_memory_bytes{@})",
        "read_bytes": "sum(rabbitmq_io_read_bytes_total{@})",
        "written_bytes": "sum(rabbitmq_io_write_bytes_total{@})",
        "received_bytes": "sum(erlang_vm_statistics_bytes_received_total{@})",
        "sent_bytes": "sum(erlang_vm_statistics_bytes_output_total{@})",
        "open_files": "sum(rabbitmq_process_open_fds{@})",
    },
    "process": {
        "cpu_percent": "100 * sum(irate(process_cpu_seconds_total{@}[1m]))",
        "rss_bytes": "sum(process_resident_memory_bytes{@})",
        "received_bytes": "sum(process_network_receive_bytes_total{@})",
        "sent_bytes": "sum(process_network_transmit_bytes_total{@})",
        "open_files": "sum(process_open_fds{@})",
        "processes": "count(process_start_time_seconds{@})",
    },
}


def queries_of(exporter: Exporter | None, labels: Mapping[str, str], own: Mapping[str, str]) -> dict[str, str]:
    """Column → query: the exporter's for these labels, with queries of one's own in their place."""
    selector = ", ".join(f"{name}={json.dumps(value)}" for name, value in sorted(labels.items()))
    known = _QUERIES[exporter] if exporter is not None else {}
    return {column: query.replace("@", selector) for column, query in known.items()} | dict(own)
