"""Arrivals nobody asked for: others' messages disturb the measurement, our own gone astray are the broker's fault.

Called by `trust` and `summary`. Pure. A scenario that expects something of `unexpected` or `wrong_topic` decides by
itself.
"""

from __future__ import annotations

from battlebrokers.analysis.facts import Facts
from battlebrokers.analysis.model import Check, Judged, Messages
from battlebrokers.units import format_count

FEW_STRAYS = 10
"""So many say little about a broker that others may use as well."""
STRAY_SHARE = 0.001
"""Of the deliveries owed: more of them move latencies, and cost the broker what is put down to our load."""


def stray_limit(messages: Messages) -> float:
    """How many arrivals nobody asked for are let pass."""
    return max(FEW_STRAYS, STRAY_SHARE * messages.expected)


def count_unrecorded(facts: Facts) -> int:
    """Arrivals that workers counted and did not record, because there were more than the scenario can cause."""
    return sum(worker.counters.get("arrivals_not_recorded", 0) for worker in facts.manifest.workers)


def check_flood(facts: Facts) -> Check:
    """Whether everything that arrived was recorded: beyond several times what was due it is only counted."""
    count = count_unrecorded(facts)
    if not count:
        return Check(id="flood", level="ok", sentence="everything that arrived was recorded", measured=0, limit=0)
    received = sum(worker.counters.get("received", 0) for worker in facts.manifest.workers)
    sentence = (
        f"the broker sent {format_count(received)} messages, several times more than this scenario can cause; "
        f"{format_count(max(0, received - count))} were recorded, the other {format_count(count)} only counted"
    )
    return Check(id="flood", level="void", sentence=sentence, measured=count, limit=0)


def check_foreign(texts: list[str], messages: Messages) -> Check:
    """Whether the broker was ours alone, as far as arrivals tell."""
    count, limit = messages.foreign, stray_limit(messages)
    if not count:
        return Check(id="foreign-messages", level="ok", sentence="only messages of this run arrived", measured=0)
    verb, whose = ("was", "a message") if count == 1 else ("were", "messages")
    sentence = f"{format_count(count)} of the arrivals {verb} {whose} this run never sent"
    if messages.foreign_runs:
        sentence += f", {format_count(messages.foreign_runs)} of them with the header of another BattleBrokers run"
    if count <= limit or _decides(texts):
        return Check(id="foreign-messages", level="note", sentence=sentence, measured=count, limit=limit)
    who = "another run or publisher" if messages.foreign_runs else "another publisher"
    sentence += (
        f" (limit {format_count(round(limit))}): {who} used the same broker and topics at the same time; run them one "
        "after the other, or give them topics of their own"
    )
    return Check(id="foreign-messages", level="void", sentence=sentence, measured=count, limit=limit)


def judge_strays(texts: list[str], messages: Messages) -> list[Judged]:
    """What no scenario needs to say: nobody gets what they did not ask for. Told only where they do."""
    count = messages.unexpected - messages.foreign
    if count <= stray_limit(messages) or _decides(texts):
        return []
    measured = f"{format_count(count)} messages of this run arrived where nobody had asked for them"
    text = "nobody gets what they did not ask for"
    return [Judged(text=text, ok=False, measured=measured, value=float(count), source="promise")]


def judge_topics(texts: list[str], messages: Messages) -> list[Judged]:
    """What no scenario needs to say: messages arrive on their topic. Told only where one did not."""
    count = messages.wrong_topic
    if not count or _decides(texts, "wrong_topic"):
        return []
    measured = f"{format_count(count)} on a wrong topic"
    text = "messages arrive on the topic they were published on"
    return [Judged(text=text, ok=False, measured=measured, value=float(count), source="promise")]


def _decides(texts: list[str], name: str = "unexpected") -> bool:
    return any(text.split()[0].rstrip("<>=!") == name for text in texts if text.split())
