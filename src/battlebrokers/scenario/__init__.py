"""WHAT should happen: the scenario language, from YAML to a plan of every device. Pure data; no sockets, no clock.

Read in this order: `model` (every key), `reader` (file → checked scenario), `plan` (scenario + seed → devices).
"""
