"""A message that nobody acknowledges, and of which the network says late that nobody was there: real datagrams."""

from __future__ import annotations

import socket
from pathlib import Path

import pyarrow.parquet as pq

from battlebrokers.clock import SECOND_NS, Anchor
from battlebrokers.devices.stopwatch import Stopwatch
from battlebrokers.protocols.base import Endpoint, Failure, LinkOptions, Outgoing
from battlebrokers.protocols.registry import make_link
from battlebrokers.record.publish_log import OUTCOME_SENT
from battlebrokers.record.recorder import Recorder
from battlebrokers.tables import ACKS, PUBLISHES
from support.links import until


async def test_it_is_recorded_also_when_its_row_was_written_before(tmp_path: Path) -> None:
    recorder = Recorder(tmp_path, "worker-0")
    watch = Stopwatch(Anchor.take(), recorder)
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as nobody:
        nobody.bind(("127.0.0.1", 0))
        port = nobody.getsockname()[1]
    link = make_link("udp", Endpoint("udp", "127.0.0.1", port, ""), LinkOptions("d"), watch)
    await link.open()
    now_ns = watch.now_ns()
    link.publish(Outgoing(b"t", [b"x" * 16], 0, False, recorder.publishes.next_token))
    recorder.publishes.add(now_ns, 7, recorder.topic_id("t"), 0, now_ns, now_ns, 16, 1, 0, 0, 0, OUTCOME_SENT)
    # The kernel knows by now that nobody is there, but our loop has not had its turn: the row goes first.
    recorder.turn(now_ns + 2 * SECOND_NS)
    await until(lambda: watch.failed == 1)
    link.abort()
    recorder.finish(now_ns + 3 * SECOND_NS)
    (row,) = pq.read_table(tmp_path / PUBLISHES.folder).to_pylist()
    assert (row["outcome"], row["reason"]) == ("sent", None)
    (late,) = pq.read_table(tmp_path / ACKS.folder).to_pylist()
    assert (late["device"], late["seq"], late["outcome"], late["reason"]) == (7, 0, "failed", Failure.CLOSED)
