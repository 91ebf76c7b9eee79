"""One text file per service: what it said and heard on its wire, peer by peer and stream by stream.

Called by `bb pcap` and for captured runs. Plain words and columns, to be read and searched; computes nothing.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from pathlib import Path

from battlebrokers.analysis.conversations import Conversation, Questions
from battlebrokers.analysis.delays import LEVELS, Asked
from battlebrokers.analysis.kinds import Kind, Spoken
from battlebrokers.analysis.passages import Passage
from battlebrokers.analysis.traffic import active_s
from battlebrokers.analysis.wire import Wire
from battlebrokers.report.wording import NOTHING, point_text, some
from battlebrokers.tables.run_folder import write_atomically
from battlebrokers.units import format_count, format_duration, format_rate, format_size

FOLDER = "services"
_WIDTH = 118
_LONGEST_NAME = 80
_MOST_KINDS = 40


def write_service_texts(wire: Wire, folder: Path) -> list[Path]:
    """Write `<service>.txt` for every service into `folder`/services; files of an earlier time are replaced."""
    place = folder / FOLDER
    for old in place.glob("*.txt"):
        old.unlink()
    written = []
    taken: set[str] = set()
    for service in wire.services:
        name = _file_name(service, taken)
        taken.add(name.casefold())
        write_atomically(place / name, (service_text(wire, service) + "\n").encode())
        written.append(place / name)
    return written


def service_text(wire: Wire, service: str) -> str:
    """The whole text of one service."""
    return "\n".join(line.rstrip() for line in _lines(wire, service))


def _lines(wire: Wire, service: str) -> Iterator[str]:
    streams = wire.conversations.of_service.get(service, ())
    count = wire.conversations.count_of_service.get(service, 0)
    yield from (_plain(service), "=" * min(_WIDTH, len(_plain(service))), "")
    yield from _protocols(streams, count)
    asked = [one for one in wire.asked if service in (one.asker, one.answerer)]
    yield from ("", "REQUESTS AND RESPONSES", "")
    yield from _delays(asked, service)
    yield from ("", "BYTES (per second from the first message to the last)", "")
    yield from _flows(wire, service)
    kinds = [one for one in wire.kinds if service in (one.sender, one.receiver) and one.part != "response"]
    if kinds:
        yield from ("", "KINDS OF MESSAGES", "")
        yield from _kinds(kinds, wire)
    passages = [one for one in wire.passages if one.sender == service]
    if passages:
        yield from ("", "FOLLOWED MESSAGES", "")
        yield from _passages(passages, wire, service)
    shown = f"the busiest {len(streams)} of {format_count(count)}" if count > len(streams) else format_count(count)
    yield from ("", f"STREAMS ({shown})")
    for number, stream in enumerate(streams, 1):
        yield ""
        yield from _stream(number, stream)


def _protocols(streams: Sequence[Conversation], count: int) -> Iterator[str]:
    sums: dict[str, list[int]] = {}
    bare = 0
    for stream in streams:
        bare += stream.bare_packets
        for name, messages in stream.messages.items():
            mine = sums.setdefault(name, [0, 0, 0])
            mine[0] += stream.packets[name]
            mine[1] += 1
            mine[2] += messages
    yield "PACKETS PER PROTOCOL" + ("" if len(streams) == count else " (of the streams below)")
    yield ""
    for name, (packets, spoken_in, messages) in sorted(sums.items(), key=lambda row: (-row[1][0], row[0])):
        words = f"in {some(spoken_in, 'stream')}, {some(messages, 'message')}"
        yield f"  {_plain(name):<20} {format_count(packets):>12} packets {words}"
    yield f"  {'none of these':<20} {format_count(bare):>12} packets: acknowledgements, opening and closing, unread"


def _delays(asked: Sequence[Asked], service: str) -> Iterator[str]:
    if not asked:
        yield "  Nothing was asked."
        return
    for direction, peers in (
        ("asked by", [one for one in asked if one.answerer == service]),
        ("asks", [one for one in asked if one.asker == service]),
    ):
        for peer in peers:
            other = peer.asker if direction == "asked by" else peer.answerer
            yield f"  {direction} {_plain(other)}, {peer.protocol}: {_outcome(peer)}"
            head = "".join(f"{level:>10}" for level in ("min", "p25", "p50", "p75", "p95", "p99", "max"))
            yield f"    {'':<26}{'asked':>10}{'pending':>9}{'failed':>8}{head}"
            for kind in peer.kinds:
                points = kind.delay.points if kind.delay else (None,) * len(LEVELS)
                n = kind.delay.n if kind.delay else 0
                told = "".join(f"{point_text(at, n, p):>10}" for at, p in zip(points, LEVELS, strict=True))
                yield (
                    f"    {_plain(kind.kind)[:25]:<26}{format_count(kind.n):>10}{format_count(kind.unanswered):>9}"
                    f"{format_count(kind.failed):>8}{told}"
                )


def _outcome(one: Asked) -> str:
    return (
        f"{some(one.n, 'request')}, {format_count(one.answered)} answered ({format_count(one.uncertain)} uncertain), "
        f"{format_count(one.unanswered)} pending, {format_count(one.failed)} failed"
    )


def _flows(wire: Wire, service: str) -> Iterator[str]:
    found = [flow for flow in wire.traffic.flows if service in (flow.sender, flow.receiver)]
    yield f"  {'':<46}{'bytes':>12}{'per second':>14}{'requests':>11}{'responses':>11}{'neither':>11}"
    for flow in found:
        per_s = flow.bytes / active_s([flow], wire.span_s)
        name = _plain(f"{flow.sender} -> {flow.receiver}, {flow.protocol}")
        yield (
            f"  {name[:45]:<46}{format_size(flow.bytes):>12}{format_size(per_s) + '/s':>14}"
            f"{format_count(flow.requests):>11}{format_count(flow.responses):>11}{format_count(flow.others):>11}"
        )
    if not found:
        yield "  none that a dissector could read"


def _kinds(kinds: Sequence[Kind], wire: Wire) -> Iterator[str]:
    head = "".join(f"{name:>12}" for name in ("messages", "per second", "bytes", "followed", "answer p50", "p99"))
    yield f"  {'':<46}{head}"
    for kind in kinds[:_MOST_KINDS]:
        spoke_s = wire.active_s(kind.sender, kind.receiver, kind.protocol)
        words = f"{kind.sender} -> {kind.receiver}, {kind.protocol} {kind.kind}"
        yield f"  {_plain(words)[:45]:<46}{_spoken(kind.all, spoke_s)}"
        yield from (f"    {_plain(one.name)[:43]:<44}{_spoken(one, spoke_s)}" for one in kind.names)
    if len(kinds) > _MOST_KINDS:
        yield f"  and {some(len(kinds) - _MOST_KINDS, 'rarer kind')}"


def _spoken(one: Spoken, spoke_s: float) -> str:
    cells = (
        format_count(one.n), format_rate(one.n / spoke_s), format_size(one.bytes), format_count(one.followed),
        point_text(one.p50_ns, one.n, 0.5), point_text(one.p99_ns, one.n, 0.99),
    )  # fmt: skip
    return "".join(f"{cell:>12}" for cell in cells)


def _passages(passages: Sequence[Passage], wire: Wire, service: str) -> Iterator[str]:
    for one in passages:
        words = f"{one.protocol} {one.kind} to {one.receiver}"
        p50, p95 = point_text(one.inside_p50_ns, one.n, 0.5), point_text(one.inside_p95_ns, one.n, 0.95)
        kept = f"kept p50 {p50}, p95 {p95}"
        yield f"  {_plain(words):<46}{format_count(one.n):>12} messages, {kept}"
    for gone in wire.last_seen:
        if gone.service == service:
            yield f"  {some(gone.n, 'message')} came in and never went out"


def _stream(number: int, one: Conversation) -> Iterator[str]:
    row = one.row
    from_, to = f"{row['client']}:{row['client_port']}", f"{row['server']}:{row['server_port']}"
    yield f"  [{number}] {_plain(one.client)} ({from_}) -> {_plain(one.server)} ({to}), {_plain(one.protocols)}"
    lasted = format_duration(row["last_ns"] - row["first_ns"])
    halves = [
        f"{format_count(packets)} from the {side} with {format_size(row[f'{side}_bytes'])}"
        for side, packets in (("client", row["client_packets"]), ("server", row["packets"] - row["client_packets"]))
    ]
    yield f"      packets          {format_count(row['packets'])} in {lasted}: {', '.join(halves)}"
    said = ", ".join(
        f"{_plain(name)} {format_count(count)} in {some(one.packets[name], 'packet')}"
        for name, count in one.messages.items()
    )
    yield f"      messages         {said or 'none that a dissector could read'}"
    yield f"      client asked     {_questions(one.from_client)}"
    yield f"      server asked     {_questions(one.from_server)}"
    yield (
        f"      malformed        {format_count(row['malformed'])}; {format_size(row['undecoded_bytes'])} undecoded, "
        f"{format_size(row['gap_bytes'])} not in the capture"
    )
    if row["transport"] != "tcp":
        return
    yield (
        f"      retransmissions  {format_count(row['retransmissions'])} ({format_count(row['fast_retransmissions'])} "
        f"fast, {format_count(row['spurious_retransmissions'])} spurious), out of order "
        f"{format_count(row['out_of_order'])}, duplicate ACKs {format_count(row['duplicate_acks'])}, zero windows "
        f"{format_count(row['zero_windows'])}, lost segments {format_count(row['lost_segments'])}"
    )
    trips = (("handshake", "initial_rtt_ns"), ("client", "client_rtt_ns"), ("server", "server_rtt_ns"))
    yield "      round trip       " + ", ".join(f"{name} {_time(row[column])}" for name, column in trips)


def _questions(one: Questions) -> str:
    if not one.asked:
        return "nothing"
    return (
        f"{format_count(one.asked)}, answered {format_count(one.answered)} ({format_count(one.uncertain)} uncertain), "
        f"failed {format_count(one.failed)}, pending {format_count(one.pending)}"
    )


def _time(value_ns: float | None) -> str:
    return NOTHING if value_ns is None else format_duration(value_ns)


def _plain(text: str) -> str:
    """Without control characters: what is captured must not steer a terminal."""
    return "".join(letter if letter.isprintable() else "\ufffd" for letter in text)


def _file_name(service: str, taken: set[str]) -> str:
    """A name that is safe on every file system, and no other service's."""
    stem = re.sub(r"[^A-Za-z0-9._-]+", "_", service).strip("._")[:_LONGEST_NAME] or "unnamed"
    name, number = f"{stem}.txt", 2
    while name.casefold() in taken:
        name, number = f"{stem}-{number}.txt", number + 1
    return name
