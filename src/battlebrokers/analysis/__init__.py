"""From facts to meaning: figures, trust, verdict, findings, comparisons. Small data, pyarrow and numpy, no Spark."""
