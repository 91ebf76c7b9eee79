"""`make chaos`: faults applied to the real `bb` and real brokers, each with what must hold. Not part of the product."""
