"""Makes `spark.read.format("capture")` known: Spark looks for packages with this prefix when a format is new to it.

Registering the source at every start would cost half a second that analyses of ours never need.
"""

from battlebrokers.pipeline.sources.capture import CaptureSource as DefaultSource

__all__ = ["DefaultSource"]
