"""Many runs shown to a dissector at once, where it offers that and nothing waits, is missing or in doubt.

Used by the stream driver; whatever cannot be read so it shows run by run.
"""

from __future__ import annotations

from battlebrokers.dissect.runs import Runs
from battlebrokers.dissect.side import Side
from battlebrokers.dissect.talk import Dissection, ManyAtOnce, Talk

MANY_PIECES, WORTH_IT_PIECES = 8192, 32
"""At most so many pieces are shown at once; fewer than these are sooner read one by one."""
ONE_BY_ONE = 256
"""So many runs are read one by one after one that could not be read with others: most likely more like it follow."""


class ManyRuns:
    """Of one conversation in one protocol."""

    def __init__(self, dissection: Dissection, talk: Talk, sides: tuple[Side, Side]) -> None:
        self._many = dissection if isinstance(dissection, ManyAtOnce) else None
        self._talk = talk
        self._sides = sides

    def can_follow(self, said: Runs, number: int) -> bool:
        """Whether runs from this one on may be shown together."""
        talk = self._talk
        return (
            self._many is not None
            and len(said.sizes) - said.start[number] >= WORTH_IT_PIECES
            and not (said.gap[number] or talk.doubting or any(talk.skipping) or any(talk.need))
            and not any(side.unread.size or side.lost for side in self._sides)
        )

    def hear(self, said: Runs, number: int, parts: list[bytes]) -> tuple[int, int]:
        """Show them: which run is the next, and before which one not to try this again."""
        client, server = self._sides
        spoken = said.spoken(number, MANY_PIECES, parts, (client.at, server.at))
        shown, many = len(spoken.run_end), self._many
        assert many is not None
        try:
            read = max(0, min(many.feed_runs(spoken), shown))
        except Exception:  # noqa: BLE001 - dissectors may be anybody's; one by one this one may do better
            self._many, read = None, 0
        said_by_client, said_by_server = spoken.said(read)
        client.at += said_by_client
        server.at += said_by_server
        return number + read, number + read + (0 if read == shown else ONE_BY_ONE)
