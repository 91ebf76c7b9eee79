"""`resources`, `sockets` and `clocks`: what the services used, whom they called, and how well clocks agree."""

from __future__ import annotations

from battlebrokers.tables.base import Column, Table

RESOURCES = Table(
    name="resources",
    layer="recorded",
    about="One sample of one service, summed over its processes; null is what its source does not tell.",
    columns=(
        Column("sampled_ns", "int64", "When it was read (run time)."),
        Column("service", "string", "The service: a part of the contender, `worker-…`, `host`, or whom Prometheus and sar were asked about (`name@sar` is a machine)."),
        Column("role", "string", "`contender`, `generator`, `host`, or `observed`: told by Prometheus or sar after the run."),
        Column("cpu_percent", "float64", "CPU of all its threads since the last sample; 100 is one core.", nullable=True),
        Column("busiest_thread_percent", "float64", "CPU of its busiest thread; near 100 means one thread is the limit.", nullable=True),
        Column("rss_bytes", "int64", "Resident memory.", nullable=True),
        Column("read_bytes", "int64", "Bytes read from disk since the start.", nullable=True),
        Column("written_bytes", "int64", "Bytes written to disk since the start.", nullable=True),
        Column("received_bytes", "int64", "Bytes read through system calls, sockets included where the kernel counts them; for `host` and for services with a network of their own received on all interfaces.", nullable=True),
        Column("sent_bytes", "int64", "The same, written.", nullable=True),
        Column("open_files", "int32", "Open file descriptors.", nullable=True),
        Column("threads", "int32", "Threads.", nullable=True),
        Column("processes", "int32", "Processes; 0 means the service is gone.", nullable=True),
        Column("steal_percent", "float64", "CPU time the hypervisor took away (host only).", nullable=True),
        Column("load_1min", "float64", "Load average (host only).", nullable=True),
    ),
)

CLOCKS = Table(
    name="clocks",
    layer="recorded",
    about="One four-stamp probe between the orchestrator and a worker.",
    columns=(
        Column("worker", "string", "The worker probed."),
        Column("same_clock", "bool", "Whether both sides run on one machine and read the same clock."),
        Column("t1_ns", "int64", "Orchestrator sent (its run time)."),
        Column("t2_ns", "int64", "Worker received (its run time)."),
        Column("t3_ns", "int64", "Worker answered (its run time)."),
        Column("t4_ns", "int64", "Orchestrator received (its run time)."),
    ),
)

SOCKETS = Table(
    name="sockets",
    layer="recorded",
    about="A TCP connection that a service of the contender opened, seen while the run was captured; names packets on loopback.",
    columns=(
        Column("service", "string", "Who opened it."),
        Column("address", "string", "Its address."),
        Column("port", "int32", "Its port."),
        Column("peer_address", "string", "The address it called."),
        Column("peer_port", "int32", "The port it called."),
        Column("first_ns", "int64", "When it was seen first (run time); looked up about once a second."),
        Column("last_ns", "int64", "When it was seen last, as far as known when the row was written; the latest row counts."),
    ),
)
