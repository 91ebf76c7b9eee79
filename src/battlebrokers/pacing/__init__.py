"""WHEN devices speak: one file per shape of load, each a pure function from message numbers to times.

`schedule.Schedule` is what a device holds; the shapes do not know each other.
"""
