"""THE EVIDENCE: what happened, written down as it happens. Append-only, never blocking the engine."""
