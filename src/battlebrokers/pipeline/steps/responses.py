"""Step: exchanges between named services → `responses`, one row per pair of peers and kind of request."""

from __future__ import annotations

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812 - as everybody calls it

_QUANTILES = {"p25_ns": 0.25, "p50_ns": 0.5, "p75_ns": 0.75, "p95_ns": 0.95, "p99_ns": 0.99}
_ACCURACY = 1000


def responses(asked: DataFrame) -> DataFrame:
    """`asked` are the exchanges with the services that asked and answered."""
    took = F.col("answered_ns") - F.col("asked_ns")
    # One sorted sample for all quantiles of a group instead of one each.
    quantiles = F.percentile_approx(took, list(_QUANTILES.values()), _ACCURACY).alias("quantiles")
    counted = asked.groupBy(
        F.col("asking").alias("asker"), F.col("answering").alias("answerer"), "protocol", "kind"
    ).agg(
        F.count("*").alias("n"),
        _how_many(F.col("outcome") != "unanswered").alias("answered"),
        _how_many(F.col("outcome") == "failed").alias("failed"),
        _how_many(F.col("outcome") == "unanswered").alias("unanswered"),
        _how_many(~F.col("certain")).alias("uncertain"),
        F.min(took).alias("min_ns"),
        F.max(took).alias("max_ns"),
        F.avg(took).alias("mean_ns"),
        F.sum("request_bytes").alias("request_bytes"),
        F.coalesce(F.sum("response_bytes"), F.lit(0)).alias("response_bytes"),
        quantiles,
    )
    return counted.withColumns({name: F.col("quantiles")[place] for place, name in enumerate(_QUANTILES)})


def _how_many(condition: Column) -> Column:
    return F.sum(condition.cast("long"))
