"""Bodies of the Spark stages that run Python on captures: blocks of columns in, blocks and finished files out."""
