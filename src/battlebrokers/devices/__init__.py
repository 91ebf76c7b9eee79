"""WHO speaks and listens, WHEN the plan says so; and the one stopwatch that stamps it all."""
