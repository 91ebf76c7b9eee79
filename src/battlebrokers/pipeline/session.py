"""The Spark session: quiet, private, quick to start, sized for the run at hand.

Called by the analyst, tests and benchmarks. Only captures need Python workers; all other steps are native expressions.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType

import psutil
from pyspark import SparkContext
from pyspark.sql import SparkSession

from battlebrokers.heap import FEW_EVENTS, QUICK_EVENTS, heap_bytes
from battlebrokers.pipeline.jvm import Jvm, find_java, start_jvm
from battlebrokers.scratch import Scratch

_EVENTS_PER_PARTITION = 5_000_000
_PYTHON_MEMORY = {
    "ARROW_DEFAULT_MEMORY_POOL": "system",
    "MALLOC_MMAP_THRESHOLD_": str(256 << 20),
    "MALLOC_TRIM_THRESHOLD_": str(512 << 20),
    "MALLOC_TOP_PAD_": str(16 << 20),
}
"""Python workers keep the memory of one block for the next: given back, each of its pages is asked for again."""


class Session:
    """A Spark session and the JVM under it; close it, or use it as a context."""

    def __init__(self, spark: SparkSession, jvm: Jvm, scratch: Scratch) -> None:
        self.spark = spark
        self.jvm = jvm
        self._scratch = scratch

    @property
    def pid(self) -> int:
        """The JVM's process id."""
        return self.jvm.process.pid

    def close(self) -> None:
        """Stop Spark, end the JVM, remove its files."""
        try:
            self.spark.stop()
        finally:
            gateway = SparkContext._gateway  # noqa: SLF001 - or the next session of this process would use a dead one
            if gateway is not None:
                gateway.shutdown()
            SparkContext._gateway = None  # noqa: SLF001
            SparkContext._jvm = None  # noqa: SLF001
            for name in ("PYSPARK_GATEWAY_PORT", "PYSPARK_GATEWAY_SECRET"):
                os.environ.pop(name, None)
            self.jvm.close()
            self._scratch.close()

    def __enter__(self) -> Session:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def start_session(
    master: str = "local[*]", expected_events: int = 0, extra: Mapping[str, str] | None = None
) -> Session:
    """Start Spark; `expected_events` 0 means unknown, `extra` are Spark settings that win over ours."""
    java = find_java()
    os.environ["PYSPARK_PYTHON"] = sys.executable
    scratch = Scratch("bb-spark-")
    conf = {**_settings(master, scratch.path), **(extra or {})}
    try:
        jvm = start_jvm(java, scratch.path, _jvm_flags(expected_events), conf)
    except BaseException:
        scratch.close()
        raise
    os.environ["PYSPARK_GATEWAY_PORT"] = str(jvm.port)
    os.environ["PYSPARK_GATEWAY_SECRET"] = jvm.secret
    try:
        builder = SparkSession.builder
        for name, value in conf.items():
            builder = builder.config(name, value)
        spark = builder.getOrCreate()
    except BaseException:
        jvm.close()
        scratch.close()
        raise
    return Session(spark, jvm, scratch)


def _jvm_flags(expected_events: int) -> list[str]:
    heap = f"-Xmx{heap_bytes(expected_events, psutil.virtual_memory().total) >> 20}m"
    if 0 < expected_events <= QUICK_EVENTS:
        return [heap, "-XX:-UsePerfData", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1"]
    return [heap, "-XX:-UsePerfData", "-XX:+UseParallelGC", "-XX:-DontCompileHugeMethods"]


def _settings(master: str, scratch: Path) -> dict[str, str]:
    local = master.startswith("local")
    settings = {
        "spark.master": master,
        "spark.app.name": "battlebrokers",
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.local.dir": str(scratch),
        "spark.sql.warehouse.dir": (scratch / "warehouse").as_uri(),
        "spark.sql.catalogImplementation": "in-memory",
        "spark.sql.session.timeZone": "UTC",
        "spark.python.daemon.module": "battlebrokers.pipeline.python_workers",
        # Evidence may hold any number, in foreign headers above all: arithmetic wraps, it does not stop the analysis.
        "spark.sql.ansi.enabled": "false",
        # Or every column expression asks the JVM where in our code it was written.
        "spark.python.sql.dataFrameDebugging.enabled": "false",
        # Many small segments: read several in one task, and list them here instead of in a job of their own.
        "spark.sql.files.openCostInBytes": str(64 << 10),
        "spark.sql.sources.parallelPartitionDiscovery.threshold": "100000",
        # The messages are sorted already where they are grouped: no hash table of all of them.
        "spark.sql.execution.replaceHashWithSortAgg": "true",
        "spark.sql.autoBroadcastJoinThreshold": str(32 << 20),
        "spark.sql.execution.arrow.localRelationThreshold": str(256 << 20),
        "spark.hadoop.mapreduce.fileoutputcommitter.marksuccessfuljobs": "false",
        "spark.hadoop.mapreduce.fileoutputcommitter.algorithm.version": "2",
        "spark.hadoop.parquet.summary.metadata.level": "NONE",
    }
    settings |= {f"spark.executorEnv.{name}": value for name, value in _PYTHON_MEMORY.items()}
    if local:
        settings |= {
            "spark.driver.host": "127.0.0.1",
            "spark.driver.bindAddress": "127.0.0.1",
            # What is shuffled on one machine stays in its page cache: packing it costs more than it saves.
            "spark.shuffle.compress": "false",
            "spark.shuffle.spill.compress": "false",
            # Or each task opens a file with a serializer of its own per share: half of all a capture costs the JVM.
            "spark.shuffle.sort.bypassMergeThreshold": "1",
            # Plain files, without a checksum file beside each.
            "spark.hadoop.fs.file.impl": "org.apache.hadoop.fs.RawLocalFileSystem",
        }
    return settings


def is_small(events: int) -> bool:
    """Whether a run has so few events that preparing for many would take longer than the work itself."""
    return events <= FEW_EVENTS


def tune(spark: SparkSession, events: int) -> None:
    """Settings for the next run: few events are interpreted, many are compiled for; the session stays the same."""
    few = is_small(events)
    parallel = spark.sparkContext.defaultParallelism
    settings = {
        "spark.sql.codegen.wholeStage": str(not few).lower(),
        "spark.sql.codegen.factoryMode": "NO_CODEGEN" if few else "FALLBACK",
        "spark.sql.adaptive.enabled": str(not few).lower(),
        # Tables of measures are small; adaptive execution merges what is still too fine.
        "spark.sql.shuffle.partitions": "1" if few else str(max(parallel, min(2000, events // _EVENTS_PER_PARTITION))),
    }
    for name, value in settings.items():
        spark.conf.set(name, value)
