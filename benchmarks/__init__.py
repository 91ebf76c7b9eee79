"""How fast we are, beside peers measured in the same run on the same broker. `make bench` runs all of it."""
