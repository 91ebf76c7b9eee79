"""Work done inside another network namespace of this machine: a socket stays where it was created.

Used by links whose contender is a network, by the lab and by tests. Never moves the calling thread.
"""

from __future__ import annotations

import ctypes
import os
import threading
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any, Final, TypeVar

NAMED: Final = Path("/run/netns")
"""Where `ip netns` keeps the names."""
_NEW_NETWORK: Final = 0x40000000

T = TypeVar("T")


def in_namespace(name: str, make: Callable[[], T]) -> T:
    """What `make` returns when called inside a network namespace, by its name or path; raises OSError."""
    made: list[T] = []
    faults: list[BaseException] = []

    def work() -> None:
        # A thread of its own: it never comes back to the outside, so nothing has to be restored.
        try:
            place = os.open(NAMED / name, os.O_RDONLY | os.O_CLOEXEC)
            try:
                if _libc().setns(place, _NEW_NETWORK):
                    number = ctypes.get_errno()
                    raise OSError(number, os.strerror(number), str(NAMED / name))
            finally:
                os.close(place)
            made.append(make())
        except BaseException as fault:  # noqa: BLE001 - raised again in the calling thread
            faults.append(fault)

    worker = threading.Thread(target=work, name=f"in {name}")
    worker.start()
    worker.join()
    if faults:
        raise faults[0]
    return made[0]


@cache
def _libc() -> Any:
    return ctypes.CDLL(None, use_errno=True)
