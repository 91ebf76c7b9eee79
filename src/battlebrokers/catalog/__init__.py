"""Finding runs: what lies in a runs directory, and which of them a user means."""
