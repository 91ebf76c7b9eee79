"""The command line: one file per verb. Progress goes to stderr, results to stdout."""
