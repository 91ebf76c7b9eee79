"""Fitness: whether a contender can honour a scenario. Refused with the reason, never approximated.

Called by the orchestrator before anything is started. External brokers (URLs) are taken at their word.
"""
