"""Resources from a Prometheus server, asked through its HTTP API after a run: exporters' names and queries.

Called by `bb run --prometheus`. An unreachable server or a query without an answer is told and never stops a run.
"""

from __future__ import annotations

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
