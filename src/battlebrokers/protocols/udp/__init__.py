"""Datagrams: plain ones to addresses, and those of a contender's dialect."""
