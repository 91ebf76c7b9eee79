"""From captured bytes to protocol messages: pure functions, no Spark, no files, no clocks."""
