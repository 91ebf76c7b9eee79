"""Where evidence in foreign formats comes into Spark: one module per data source."""
