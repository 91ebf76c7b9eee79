"""Services: what each service used in each phase; growing counters are turned into what the phase added."""

from __future__ import annotations

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.window import WindowSpec

from battlebrokers.pipeline.audience import Facts

_COUNTERS = ("read_bytes", "written_bytes", "received_bytes", "sent_bytes")


def services(facts: Facts, resources: DataFrame) -> DataFrame:
    """The rows of the table `services`."""
    samples = Window.partitionBy("service", "role").orderBy("sampled_ns")
    grown = resources.select("*", *[_added(name, samples) for name in _COUNTERS]).withColumn(
        "phase", facts.timeframe.phase_at(F.col("sampled_ns"))
    )
    return grown.groupBy("service", "role", "phase").agg(
        F.count("*").alias("samples"),
        _mean("cpu_percent").alias("cpu_mean_percent"),
        F.max("cpu_percent").alias("cpu_max_percent"),
        _mean("busiest_thread_percent").alias("busiest_thread_mean_percent"),
        F.max("busiest_thread_percent").alias("busiest_thread_max_percent"),
        F.max("rss_bytes").alias("rss_max_bytes"),
        *[F.sum(f"{name}_added").alias(name) for name in _COUNTERS],
        F.max("open_files").alias("open_files_max"),
        F.max("steal_percent").alias("steal_max_percent"),
    )


def _added(name: str, samples: WindowSpec) -> Column:
    """What a counter gained since the sample before; a restarted service counts from zero again."""
    before = F.lag(name).over(samples)
    return F.greatest(F.coalesce(F.col(name) - before, F.lit(0)), F.lit(0)).alias(f"{name}_added")


def _mean(name: str) -> Column:
    """The mean by millionths: whole numbers add up the same in whatever order samples come."""
    return F.sum(F.round(F.col(name) * 1e6).cast("long")) / F.count(name) / 1e6
