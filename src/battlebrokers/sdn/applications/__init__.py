"""Applications of the network broker: each shows what publishing to addresses is good for."""
