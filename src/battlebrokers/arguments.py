"""The arguments `bb` was called with, as other users of the machine see them in lists of processes.

Called once by `main`, before anything else. Python keeps its own copy, so the verbs still get what was typed.
"""

from __future__ import annotations

import contextlib
import ctypes
import re
from pathlib import Path

from battlebrokers.secrets import MASK, masked_setting

_NO_SCHEME = re.compile(r"^(?P<user>[^\s:/=@]*):[^/=].*@(?=[^@]*$)")
"""A broker's address of which only the scheme is missing: user:password@host."""
_ARG_START, _ARG_END = 45, 46
"""Places in `/proc/self/stat` behind the program's name (see proc(5): fields 48 and 49)."""


def masked_arguments(arguments: list[bytes]) -> list[bytes]:
    """The same arguments with ••• for passwords in URLs, secret parameters, and secret keys of settings."""
    shown = []
    for argument in arguments:
        text = argument.decode("utf-8", "surrogateescape")
        text = _NO_SCHEME.sub(rf"\g<user>:{MASK}@", masked_setting(text))
        shown.append(text.encode("utf-8", "surrogateescape"))
    return shown


def mask_own_arguments() -> None:
    """Overwrite them where the kernel reads them from. Where there is no `/proc` they stay as they are."""
    with contextlib.suppress(OSError, ValueError, IndexError):
        stat = Path("/proc/self/stat").read_bytes().rpartition(b")")[2].split()
        start, end = int(stat[_ARG_START]), int(stat[_ARG_END])
        if not 0 < start < end:
            return
        held = ctypes.string_at(start, end - start)
        arguments = held.rstrip(b"\0").split(b"\0")
        shown = masked_arguments(arguments)
        if shown != arguments:
            text = b"\0".join(shown)
            if len(text) >= len(held):
                text = text.replace(MASK.encode(), b"*")
            # Never longer than what was there; behind it lies the environment.
            text = text[: len(held) - 1]
            ctypes.memmove(start, text.ljust(len(held), b"\0"), len(held))
