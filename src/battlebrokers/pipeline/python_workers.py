"""The parent of Spark's Python workers: imports once what each of them needs, so that forked workers start at once.

Started by Spark (`spark.python.daemon.module`) when a stage runs Python for the first time, on every machine.
"""

from __future__ import annotations

import gc

from battlebrokers.pipeline.without_pandas import hide_pandas

if __name__ == "__main__":
    hide_pandas()
    import numpy.ma  # noqa: F401 - arrow imports these three when they are first used
    import pyarrow.acero
    import pyarrow.dataset  # noqa: F401
    import pyspark.worker  # noqa: F401
    from pyspark.daemon import manager

    from battlebrokers.dissect.registry import dissectors
    from battlebrokers.pipeline import captures  # noqa: F401
    from battlebrokers.pipeline.sources import capture  # noqa: F401

    dissectors()
    # Conversations are lists of plain values by the million, without cycles: to look through them again is in vain.
    gc.freeze()
    gc.set_threshold(100_000, 50, 1000)
    manager()
