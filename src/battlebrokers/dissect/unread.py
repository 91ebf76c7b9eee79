"""Bytes that were heard but not read yet. Used by the stream driver and by protocols inside others.

Time grows with the bytes whatever their pieces: they are joined when somebody reads, not when they come.
"""

from __future__ import annotations

_EAGER_BYTES = 64 * 1024


class Unread:
    """A queue of bytes."""

    def __init__(self) -> None:
        self.size = 0
        self._parts: list[bytes] = []
        self._patience = 0

    def append(self, data: bytes) -> None:
        """More of them."""
        if data:
            self._parts.append(data)
            self.size += len(data)

    def worth_showing(self, need: int) -> bool:
        """Whether there are as many as somebody needs, and enough more than last time to look at them again."""
        return self.size > 0 and self.size >= need and self.size >= self._patience

    def all(self) -> bytes:
        """What there is."""
        if len(self._parts) > 1:
            self._parts = [b"".join(self._parts)]
        return self._parts[0] if self._parts else b""

    def remove(self, count: int) -> None:
        """The first `count` bytes were read."""
        if count == self.size:
            self.clear()
        elif count:
            rest = self.all()[count:]
            self._parts = [rest] if rest else []
            self.size = len(rest)
            self._patience = 0
        elif self.size > _EAGER_BYTES:
            # Whoever waits for so much without saying for how much is asked again when there is markedly more.
            self._patience = self.size + self.size // 8

    def clear(self) -> int:
        """Give them up; returns how many there were."""
        count, self.size = self.size, 0
        self._parts, self._patience = [], 0
        return count
