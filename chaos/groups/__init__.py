"""The faults, by group; each module offers `faults()`."""
