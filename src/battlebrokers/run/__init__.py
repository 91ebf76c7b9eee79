"""THE BATTLE: an orchestrator, its workers, and the messages between them. Meets the pipeline on disk only."""
