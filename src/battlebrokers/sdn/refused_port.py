"""Why nobody can be listened to at an address, and what to do. Used wherever the broker opens a port."""

from __future__ import annotations

import errno
import os
import socket

from battlebrokers.errors import EnvironmentNotReady


def cannot_listen(whom: str, where: str, fault: OSError, option: str) -> EnvironmentNotReady:
    """The error to tell people; `option` chooses another port."""
    is_name = isinstance(fault, socket.gaierror)
    # asyncio's own words repeat the address.
    why = os.strerror(fault.errno) if fault.errno and not is_name else fault.strerror or str(fault)
    if fault.errno == errno.EADDRINUSE:
        hint = f"another program has the port: end it, or choose another one with {option}"
    elif fault.errno == errno.EACCES:
        hint = f"ports below 1024 are for root: choose another one with {option}"
    else:
        hint = "--host takes an address of this machine, such as 127.0.0.1"
    return EnvironmentNotReady(f"cannot listen for {whom} on {where}: {why}", hint=hint)
