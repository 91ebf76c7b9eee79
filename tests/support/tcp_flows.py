"""Made-up TCP connections: as a lossy network leaves them in a capture, and as nobody would ever send them."""

from __future__ import annotations

from random import Random

from battlebrokers.dissect.segments import ACK, FIN, PSH, RST, SYN
from support.capture_files import Packet

_FULL = 1 << 32
_START_NS = 1_700_000_000 * 10**9


class _End:
    """One endpoint: what it sent and what it has received."""

    def __init__(self, random: Random) -> None:
        self.start = random.choice((random.randrange(_FULL), _FULL - random.randrange(1, 60_000)))
        self.next = self.start
        self.unacknowledged: list[tuple[int, int]] = []
        self.received: set[tuple[int, int]] = set()
        self.expects = 0
        self.window = random.choice((64_240, 502, 8_000))
        self.shift = -1


def lossy_flow(random: Random, packets: int) -> list[Packet]:
    """Two endpoints over a network that loses, delays, reorders and repeats, seen from the middle of the way.

    Loss before the tap leaves a hole, loss behind it a retransmission; some are seen from their middle only.
    """
    ends = (_End(random), _End(random))
    now_ns = _START_NS + random.randrange(10**9)
    seen: list[tuple[int, Packet]] = []
    loss = random.choice((0, 0.01, 0.05, 0.2))

    def emit(sender: int, seq: int, size: int, flags: int, shift: int = -1) -> bool:
        """Send a packet; whether the other side gets it."""
        own, peer = ends[sender], ends[1 - sender]
        ack = own.expects if flags & ACK else 0
        packet = Packet(now_ns, sender, seq % _FULL, ack % _FULL, flags, own.window, size, shift)
        if random.random() < loss:
            return False
        delay_ns = random.choice((0, 0, 0, 200_000, 4_000_000, 50_000_000)) if random.random() < loss else 0
        seen.append((now_ns + delay_ns, packet))
        if random.random() < loss / 3:
            seen.append((now_ns + delay_ns + 1000, packet))
        if random.random() < loss:
            return False
        if size or flags & (SYN | FIN):
            peer.received.add((seq, seq + size + (1 if flags & (SYN | FIN) else 0)))
            _advance(peer)
        if flags & ACK:
            peer.unacknowledged = [part for part in peer.unacknowledged if part[1] > ack]
        return True

    if random.random() < 0.8:
        scaling = random.random() < 0.7
        for sender, flags in ((0, SYN), (1, SYN | ACK)):
            own = ends[sender]
            own.shift = random.choice((0, 2, 7)) if scaling else -1
            ends[1 - sender].expects = own.start
            emit(sender, own.start, 0, flags, own.shift)
            own.next += 1
            ends[1 - sender].expects = own.next
            now_ns += random.choice((50_000, 1_000_000, 20_000_000))
        emit(0, ends[0].next, 0, ACK)
    else:
        for sender in (0, 1):
            ends[1 - sender].expects = ends[sender].next
    while len(seen) < packets:
        now_ns += random.choice((5_000, 50_000, 500_000, 2_000_000, 30_000_000))
        sender = random.choice((0, 0, 0, 1))
        own, peer = ends[sender], ends[1 - sender]
        action = random.random()
        if action < 0.04:
            own.window = random.choice((0, 0, 502, 8_000, 64_240, own.window))
            emit(sender, own.next, 0, ACK)
        elif action < 0.07:
            now_ns += 10**9
            emit(sender, own.next - 1, random.choice((0, 1)), ACK)
            emit(1 - sender, peer.next, 0, ACK)
        elif action < 0.09 and peer.window == 0:
            emit(sender, own.next, 1, ACK)
            emit(1 - sender, peer.next, 0, ACK)
        elif action < 0.25 and own.unacknowledged:
            start, end = own.unacknowledged[0] if random.random() < 0.7 else random.choice(own.unacknowledged)
            emit(sender, start, end - start, ACK | PSH)
        elif action < 0.9 and len(own.unacknowledged) < 20:
            room = (peer.window << max(peer.shift, 0)) - sum(end - start for start, end in own.unacknowledged)
            size = random.choice((1, 2, 100, 1448, 1448, 1448, 4344, max(1, min(room, 30_000))))
            own.unacknowledged.append((own.next, own.next + size))
            start, own.next = own.next, own.next + size
            emit(sender, start, size, ACK | random.choice((0, PSH)))
            if random.random() < 0.6:
                now_ns += random.choice((10_000, 300_000))
                emit(1 - sender, peer.next, 0, ACK)
        else:
            emit(sender, own.next, 0, ACK)
    for sender in (0, 1):
        if random.random() < 0.6:
            emit(sender, ends[sender].next, 0, FIN | ACK)
            ends[sender].next += 1
            emit(1 - sender, ends[1 - sender].next, 0, ACK)
            if random.random() < 0.2:
                emit(sender, ends[sender].next - 1, 0, FIN | ACK)
    if random.random() < 0.3:
        emit(0, ends[0].next, 0, RST | ACK)
    seen.sort(key=lambda row: row[0])
    return _at_times(seen)


def steady_flow(random: Random, packets: int) -> list[Packet]:
    """A long healthy connection, with data both ways; its numbers may wrap around."""
    ends = [random.choice((random.randrange(_FULL), _FULL - 5_000)) for _ in (0, 1)]
    now_ns = _START_NS
    result = [
        Packet(now_ns, 0, (ends[0] - 1) % _FULL, 0, SYN, 64_240, 0, 7),
        Packet(now_ns + 400_000, 1, (ends[1] - 1) % _FULL, ends[0], SYN | ACK, 65_160, 0, 7),
        Packet(now_ns + 900_000, 0, ends[0], ends[1], ACK, 502, 0),
    ]
    acked = list(reversed(ends))
    while len(result) < packets:
        now_ns += random.choice((20_000, 200_000, 5_000_000))
        sender = random.choice((0, 1, 1))
        size = random.choice((0, 20, 300, 1448, 1448))
        if not size and acked[sender] == ends[1 - sender]:
            size = 1448
        acked[sender] = ends[1 - sender]
        window = 502 if random.random() < 0.9 else 501
        result.append(Packet(now_ns, sender, ends[sender] % _FULL, acked[sender] % _FULL, ACK, window, size))
        ends[sender] += size
    return result


def absurd_flow(random: Random, packets: int) -> list[Packet]:
    """Packets around the edges of all rules, in no order a TCP would send them."""
    start = [random.choice((random.randrange(1 << 16, _FULL), _FULL - random.randrange(1, 5000))) for _ in (0, 1)]
    following, acked, window = list(start), [0, 0], [random.choice((0, 1000, 1000)) for _ in (0, 1)]
    shift = [random.choice((-1, 0, 3)) for _ in (0, 1)]
    now_ns = _START_NS
    result: list[Packet] = []
    if random.random() < 0.7:
        result.append(Packet(now_ns, 0, start[0], 0, SYN, 1000, 0, shift[0]))
        now_ns += random.choice((1000, 3_000_000, 80_000_000))
        result.append(Packet(now_ns, 1, start[1], (start[0] + 1) % _FULL, SYN | ACK, 1000, 0, shift[1]))
        following = [value + 1 for value in following]
        acked = [following[1], following[0]]
    closed = False
    for _ in range(packets):
        now_ns += random.choice((0, 1000, 100_000, 1_000_000, 2_900_000, 3_100_000, 19_000_000, 21_000_000, 10**9))
        sender = random.choice((0, 1))
        if random.random() < 0.03 and not closed and result[:1] and result[0].flags == SYN and sender == 0:
            result.append(Packet(now_ns, 0, start[0], 0, SYN, 1000, 0, shift[0]))
            continue
        size = random.choice((0, 0, 0, 1, 2, 100, 1448, 1448))
        seq = following[sender] + random.choice((0, 0, 0, 0, 0, 0, -1, -1, -2, -100, -1448, -2896, 1, 1448))
        unseen = random.choice((0, 0, 0, 0, 0, 0, 0, 0, 1, 1448)) - random.choice((0, 0, 0, 1, 1448, 5000))
        ack = random.choice((acked[sender], acked[sender], following[1 - sender] + unseen))
        flags = random.choice((ACK,) * 16 + (ACK | PSH, FIN | ACK, RST, RST | ACK, PSH))
        closed |= bool(flags & (FIN | RST))
        if random.random() < 0.2:
            window[sender] = random.choice((0, 1000, 1448, 100))
        if random.random() < 0.1 and size and shift[1 - sender] >= 0:
            edge = acked[1 - sender] + (window[1 - sender] << shift[1 - sender])
            size = max(1, min(60_000, edge - seq))
        following[sender] = max(following[sender], seq + size + (1 if flags & FIN else 0))
        acked[sender] = ack
        result.append(Packet(now_ns, sender, seq % _FULL, ack % _FULL, flags, window[sender], size))
    return result


def _advance(end: _End) -> None:
    while reached := [part for part in end.received if part[0] <= end.expects < part[1]]:
        end.expects = max(part[1] for part in reached)
    end.received = {part for part in end.received if part[1] > end.expects}


def _at_times(rows: list[tuple[int, Packet]]) -> list[Packet]:
    return [
        Packet(time_ns, row.sender, row.seq, row.ack, row.flags, row.window, row.size, row.shift)
        for time_ns, row in rows
    ]
