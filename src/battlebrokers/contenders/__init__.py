"""WHOM we battle: one YAML file per broker (`specs/`) and the small engine that finds, starts, watches and stops it.

`spec` is what a file may say, `reader` reads it, `availability` looks whether it can run here, `lifecycle` runs it,
`broker_url` names one somebody else runs. Called by `run` and `cli`; never speaks more MQTT than one handshake.
"""
