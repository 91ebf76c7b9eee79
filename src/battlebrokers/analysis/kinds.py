"""What was said, kind by kind: Redis `PUBLISH` to a channel, AMQP deliveries from a queue, … between which services.

Read from `messages`, `exchanges` and `hops` in pieces. Of names (topics, channels, queues, keys) only the most frequent
are kept, so that what comes out is small whatever was captured.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from battlebrokers.analysis.columns import distinct, group_codes, numbers_of
from battlebrokers.analysis.delays import Asked
from battlebrokers.analysis.peers import Peers, read_peers
from battlebrokers.analysis.stored import pieces
from battlebrokers.tables import EXCHANGES, HOPS, MESSAGES
from battlebrokers.tables.run_folder import RunFolder

_MOST_NAMES = 20_000
"""So many names are counted at a time, over all kinds; rarer ones only add to their kind."""
_TOLD_NAMES = 3
_MOST_KINDS = 2_000
_TIMED_KINDS = 400
"""Of so many kinds the delays are known by name too."""
_GAMMA = 1.02
_BUCKETS = 1600
"""Delays of single names are counted in buckets of 2 %, up to 16 hours."""

Ints = npt.NDArray[np.int64]
Key = tuple[str, str, str, str]
"""Sender, receiver, protocol, kind."""


@dataclass(slots=True)
class Spoken:
    """Messages of one kind, or those of one name among them."""

    name: str = ""
    """Topic, channel, queue, key, …; empty: whatever the name."""
    n: int = 0
    bytes: int = 0
    payload_bytes: int = 0
    followed: int = 0
    """Those that were followed from service to service."""
    p50_ns: int | None = None
    """Median time to the answer, if it is a request."""
    p99_ns: int | None = None


@dataclass(frozen=True, slots=True)
class Kind:
    """One kind of message from one service to another."""

    sender: str
    receiver: str
    protocol: str
    kind: str
    part: str
    """`request`, `response` or `other`."""
    all: Spoken
    names: tuple[Spoken, ...]
    """The most frequent names, the busiest first; empty if they have none."""
    more_names: int
    """Names beyond those, as far as they were counted."""


@dataclass(slots=True)
class _Found:
    all: Spoken = field(default_factory=Spoken)
    names: dict[str, Spoken] = field(default_factory=dict)
    forgotten: int = 0


def read_kinds(folder: RunFolder, asked: Sequence[Asked]) -> list[Kind]:
    """All kinds, the most frequent first; `asked` are the delays by kind of request."""
    peers = read_peers(folder)
    if not peers.names:
        return []
    found = _counted(folder, peers)
    busiest = sorted(found, key=lambda key: (-found[key].all.n, key))
    told = {(key, spoken.name): spoken for key in busiest[:_TIMED_KINDS] for spoken in _told(found[key])}
    answers = _answers(folder, peers, told)
    _follow(folder, found)
    requests = {(one.asker, one.answerer, one.protocol, one.kind): one for peer in asked for one in peer.kinds}
    for key, request in requests.items():
        if key in found and request.delay is not None:
            found[key].all.p50_ns, found[key].all.p99_ns = request.delay.p50_ns, request.delay.p99_ns
    return [
        Kind(
            *key,
            "request" if key in requests else "response" if key in answers else "other",
            found[key].all,
            _told(found[key]),
            max(0, len(found[key].names) - _TOLD_NAMES) + found[key].forgotten,
        )
        for key in busiest[:_MOST_KINDS]
    ]


def _told(one: _Found) -> tuple[Spoken, ...]:
    order = sorted(one.names.values(), key=lambda spoken: (-spoken.n, spoken.name))
    return tuple(order[:_TOLD_NAMES]) if len(order) > 1 or (order and order[0].name) else ()


def _counted(folder: RunFolder, peers: Peers) -> dict[Key, _Found]:
    found: dict[Key, _Found] = {}
    sizes = ("bytes", "payload_bytes")
    for piece in pieces(folder, MESSAGES, ("stream", "sender", "protocol", "kind", "name", *sizes)):
        groups, keys = _grouped(piece, peers, "sender")
        weights = [numbers_of(piece[name]) for name in sizes]
        for key, *sums in zip(keys, *_sums(groups, len(keys), weights), strict=True):
            _add(found.setdefault(key, _Found()).all, sums)
        codes, names = group_codes(piece, ("name",))
        both, places = distinct(groups * max(1, len(names)) + codes, len(keys) * len(names))
        counted = _sums(places, len(both), weights)
        busiest = np.argsort(-np.array(counted[0], dtype=np.int64), kind="stable").tolist()
        for place in busiest[:_MOST_NAMES]:
            group, code = divmod(int(both[place]), len(names))
            name = names[code][0]
            _add(found[keys[group]].names.setdefault(name, Spoken(name)), [column[place] for column in counted])
        for place in busiest[_MOST_NAMES:]:
            found[keys[int(both[place]) // len(names)]].forgotten += 1
        _forget(found)
    return found


def _grouped(rows: pa.Table, peers: Peers, speaker: str) -> tuple[Ints, list[Key]]:
    """For each row the number of its kind, and the kinds."""
    if not rows.num_rows:
        return np.empty(0, np.int64), []
    spoke, heard = peers.pairs(rows, speaker)
    pairs, pair_codes = distinct(spoke * len(peers.names) + heard, len(peers.names) ** 2)
    said_codes, said = group_codes(rows, ("protocol", "kind"))
    codes, groups = distinct(pair_codes * len(said) + said_codes, len(pairs) * len(said))
    keys: list[Key] = []
    for code in codes.tolist():
        pair, kind = divmod(code, len(said))
        sender, receiver = divmod(int(pairs[pair]), len(peers.names))
        keys.append((peers.names[sender], peers.names[receiver], *said[kind]))
    return groups, keys


def _sums(groups: Ints, count: int, weights: Sequence[Ints]) -> list[list[int]]:
    """How many rows each group has, and their sums."""
    found = [np.bincount(groups, minlength=count).tolist()]
    # Sums of sizes are exact as floats up to eight petabytes.
    found += [np.bincount(groups, values, minlength=count).astype(np.int64).tolist() for values in weights]
    return found


def _add(spoken: Spoken, sums: Sequence[int]) -> None:
    spoken.n += sums[0]
    spoken.bytes += sums[1]
    spoken.payload_bytes += sums[2]


def _forget(found: Mapping[Key, _Found]) -> None:
    """Keep the most frequent names only, when there are too many of them."""
    if sum(len(one.names) for one in found.values()) <= 2 * _MOST_NAMES:
        return
    order = sorted(
        ((spoken.n, key, name) for key, one in found.items() for name, spoken in one.names.items()), reverse=True
    )
    for _, key, name in order[_MOST_NAMES:]:
        del found[key].names[name]
        found[key].forgotten += 1


def _answers(folder: RunFolder, peers: Peers, told: Mapping[tuple[Key, str], Spoken]) -> set[Key]:
    """Which kinds are answers; told names learn how long theirs took."""
    answers: set[Key] = set()
    counts: dict[tuple[Key, str], Ints] = {}
    columns = ("stream", "asker", "protocol", "kind", "name", "answer", "asked_ns", "answered_ns")
    for piece in pieces(folder, EXCHANGES, columns):
        rows = piece.filter(piece["answered_ns"].is_valid())
        groups, keys = _grouped(rows, peers, "asker")
        codes, said = group_codes(rows, ("answer", "name"))
        took_ns = np.maximum(1, numbers_of(rows["answered_ns"]) - numbers_of(rows["asked_ns"]))
        buckets = np.minimum(_BUCKETS - 1, np.log(took_ns) / np.log(_GAMMA)).astype(np.int64)
        both, places = distinct(groups * max(1, len(said)) + codes, len(keys) * len(said))
        order = np.argsort(places, kind="stable")
        parts = np.split(buckets[order], np.cumsum(np.bincount(places, minlength=len(both)))[:-1])
        for part, code in zip(parts, both.tolist(), strict=False):
            key, (answer, name) = keys[code // len(said)], said[code % len(said)]
            answers.add((key[1], key[0], key[2], answer))
            if (key, name) in told:
                counts[key, name] = counts.get((key, name), 0) + np.bincount(part, minlength=_BUCKETS)
    for place, found in counts.items():
        told[place].p50_ns, told[place].p99_ns = (_quantile_ns(found, share) for share in (0.5, 0.99))
    return answers


def _quantile_ns(counts: Ints, share: float) -> int:
    bucket = int(np.searchsorted(np.cumsum(counts), np.ceil(share * counts.sum())))
    return round(math.pow(_GAMMA, bucket + 0.5))


def _follow(folder: RunFolder, found: Mapping[Key, _Found]) -> None:
    """Count the followed ones."""
    for piece in pieces(folder, HOPS, ("sender", "receiver", "protocol", "kind", "name")):
        groups, keys = group_codes(piece, piece.column_names)
        for (*way, name), n in zip(keys, np.bincount(groups, minlength=len(keys)).tolist(), strict=True):
            one = found.get((way[0], way[1], way[2], way[3]))
            if one is not None:
                one.all.followed += n
                if name in one.names:
                    one.names[name].followed += n
