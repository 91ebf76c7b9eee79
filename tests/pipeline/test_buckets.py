"""The formula in SQL and the formula in Python must put every latency into the same bucket."""

from __future__ import annotations

import random

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F  # noqa: N812

from battlebrokers.pipeline.buckets import bucket_at
from battlebrokers.tables.measures import BUCKET_GAMMA, BUCKET_LOST, BUCKET_TINY, bucket_of, bucket_value_ns

pytestmark = pytest.mark.spark


def _interesting_latencies() -> list[int]:
    """Random ones of every magnitude, and the whole numbers on both sides of every border up to two hours."""
    dice = random.Random(3)
    border_ns = [1000.0 * BUCKET_GAMMA**bucket for bucket in range(1200)]
    at_borders = [int(ns) + step for ns in border_ns for step in (-1, 0, 1, 2)]
    random_ones = [int(10 ** dice.uniform(0, 13)) for _ in range(20_000)]
    return [-(2**62), -1, 0, 1, 999, 1000, 1001, 2**62, *at_borders, *random_ones]


@pytest.mark.parametrize("compiled", [True, False])
def test_spark_and_python_agree_on_every_bucket(spark: SparkSession, compiled: bool) -> None:
    spark.conf.set("spark.sql.codegen.wholeStage", str(compiled).lower())
    spark.conf.set("spark.sql.codegen.factoryMode", "FALLBACK" if compiled else "NO_CODEGEN")
    latencies = _interesting_latencies()
    frame = spark.createDataFrame(pa.table({"ns": pa.array(latencies, pa.int64())}))
    # Repartitioned, or the optimiser would fold the expression away while planning.
    found = frame.repartition(2).select("ns", bucket_at(F.col("ns")).alias("bucket")).toArrow().to_pylist()
    assert len(found) == len(latencies)
    wrong = [(row["ns"], row["bucket"]) for row in found if row["bucket"] != bucket_of(row["ns"])]
    assert wrong == []


def test_what_never_arrived_has_a_bucket_of_its_own(spark: SparkSession) -> None:
    frame = spark.createDataFrame(pa.table({"ns": pa.array([None], pa.int64())}))
    assert frame.select(bucket_at(F.col("ns"))).collect()[0][0] == BUCKET_LOST


def test_a_bucket_stands_for_its_values_within_one_percent() -> None:
    for latency_ns in _interesting_latencies():
        bucket = bucket_of(latency_ns)
        if bucket != BUCKET_TINY:
            assert bucket_value_ns(bucket) == pytest.approx(latency_ns, rel=0.0101)
