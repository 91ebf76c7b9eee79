"""How long to wait before connecting again: exponential, jittered, capped.

Used by the device layer between two `Link.open` calls; no link ever waits or reconnects by itself.
"""

from __future__ import annotations

import random
from collections.abc import Iterator

FIRST_S = 0.1
CAP_S = 30.0
FACTOR = 2.0


def backoff_delays(
    seed: int, *, first_s: float = FIRST_S, cap_s: float = CAP_S, factor: float = FACTOR
) -> Iterator[float]:
    """Endless seconds to wait: doubling up to a cap, each drawn from its upper half so that a fleet spreads out."""
    # String seeds are hashed the same way in every process, unlike `hash()`.
    draw = random.Random(f"backoff/{seed}").uniform
    ceiling_s = first_s
    while True:
        yield draw(ceiling_s / 2, ceiling_s)
        ceiling_s = min(cap_s, ceiling_s * factor)
