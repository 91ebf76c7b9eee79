"""What a gateway counts, and its summary in one line. Counted by gateway and guests, told by the command."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field


@dataclass(slots=True)
class Counters:
    """Since the gateway started."""

    clients: int = 0
    """Welcomed."""
    refused: int = 0
    """Not welcomed: a version we do not speak, no room, a wrong client identifier."""
    malformed: int = 0
    """Connections ended because of what they sent."""
    silent: int = 0
    """Connections ended because they said nothing for one and a half keep-alives."""
    taken_over: int = 0
    published: int = 0
    """Messages from clients that went out as datagrams, wills included."""
    wills: int = 0
    not_forwarded: Counter[str] = field(default_factory=Counter)
    """Messages from clients that did not go out, by reason."""
    arrived: int = 0
    """Datagrams from the network."""
    delivered: int = 0
    """Copies handed to clients."""
    from_store: int = 0
    """Retained messages handed to new subscribers."""
    lost_to_slow: int = 0
    """Copies not handed over because the client does not read fast enough."""
    overrun: int = 0
    """Datagrams that came faster than the gateway reads, and were lost at its door."""
    unwanted: int = 0
    """Datagrams of no known topic, or of one that nobody here wants any more."""

    def summary(self) -> str:
        """One line for people."""
        not_out = ", ".join(f"{count} {kind}" for kind, count in sorted(self.not_forwarded.items()))
        return (
            f"clients {self.clients} (refused {self.refused}, malformed {self.malformed}, silent {self.silent}, "
            f"taken over {self.taken_over}); published {self.published} (wills {self.wills}; not forwarded: "
            f"{not_out or 'none'}); arrived {self.arrived} (unwanted {self.unwanted}, overrun {self.overrun}); "
            f"delivered {self.delivered} (retained {self.from_store}, lost to slow clients {self.lost_to_slow})"
        )
