"""The recorder of one engine process: event logs in front, one writer thread behind.

The engine only fills memory and puts chunks on a queue; the thread turns them into Parquet segments. What finds no
room, or cannot be written, is counted: an overflow or a failed write makes the run VOID.
"""

from __future__ import annotations

import os
import queue
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from battlebrokers.record import delivery_log, publish_log
from battlebrokers.record.chunks import Chunk
from battlebrokers.record.columns import known_or_null, numbers, words
from battlebrokers.record.delivery_log import MOST_ROWS, DeliveryLog
from battlebrokers.record.publish_log import PublishLog
from battlebrokers.record.segments import SegmentWriter
from battlebrokers.record.silent_log import SilentDeliveryLog, SilentPublishLog
from battlebrokers.tables import ACKS, DELIVERIES, NODES, OPERATIONS, PUBLISHES

_MOST_HEARD_TOPIC_BYTES = 64 << 20
"""Topics of arrivals that nobody in this process publishes to, wrong ones included: hundreds of thousands."""
_TOPIC_OVERHEAD_BYTES = 200
_AGAIN_AFTER_S = 0.8
_WRITE_WITHIN_S = 120.0
"""For all that is in memory when the load is over: a disk that hangs must not hold the process for ever."""


class Recorder:
    """Records one engine process into `folder`; with `keep=False` it keeps no messages."""

    def __init__(self, folder: Path, worker: str, *, keep: bool = True, most_arrivals: int = MOST_ROWS) -> None:
        self._worker = worker
        self._topics: list[str] = []
        self._topic_ids: dict[str, int] = {}
        self._heard_topic_bytes = 0
        self._unnamed = 0
        self._queue: queue.SimpleQueue[tuple[str, Any] | None] = queue.SimpleQueue()
        self._writers = {
            table.name: SegmentWriter(folder, table, worker)
            for table in (PUBLISHES, ACKS, DELIVERIES, OPERATIONS, NODES)
        }
        self._late: list[tuple[Any, ...]] = []
        self._operations: list[tuple[Any, ...]] = []
        publish_log_kind, delivery_log_kind = (
            (PublishLog, DeliveryLog) if keep else (SilentPublishLog, SilentDeliveryLog)
        )
        self.publishes = publish_log_kind(lambda chunk: self._queue.put(("publishes", chunk)), self._late_ack)
        self.deliveries = delivery_log_kind(lambda chunk: self._queue.put(("deliveries", chunk)), most_arrivals)
        self.failure = ""
        self.write_error = ""
        """Why the system refused a write (disk full, quota, limit of a file's size); empty as long as it did not."""
        self.unwritten = 0
        self._thread = threading.Thread(target=self._write_all, name="recorder", daemon=True)
        self._thread.start()

    @property
    def overflow(self) -> int:
        """Events that could not be kept, for want of memory or of disk."""
        return self.publishes.overflow + self.deliveries.overflow + self.unwritten

    @property
    def arrivals_beyond(self) -> int:
        """Arrivals that were counted only, because there were more than the run can expect."""
        return self.deliveries.beyond + self._unnamed

    @property
    def crowded(self) -> bool:
        """Whether the writer is far behind; who is not on the clock waits until it is not."""
        return self.publishes.crowded and self._thread.is_alive()

    def topic_id(self, topic: str) -> int:
        """The number under which a topic is recorded."""
        known = self._topic_ids.get(topic)
        if known is None:
            known = len(self._topics)
            self._topics.append(topic)
            self._topic_ids[topic] = known
        return known

    def heard_topic_id(self, topic: str) -> int | None:
        """The same for a topic a broker named; None once it has made up too many of them."""
        known = self._topic_ids.get(topic)
        if known is not None:
            return known
        self._heard_topic_bytes += len(topic) + _TOPIC_OVERHEAD_BYTES
        if self._heard_topic_bytes <= _MOST_HEARD_TOPIC_BYTES:
            return self.topic_id(topic)
        return None

    def leave_out(self) -> None:
        """Count an arrival that is not recorded, because its topic is one too many."""
        self._unnamed += 1

    def operation(self, row: tuple[Any, ...]) -> None:
        """Record one operation: the columns of `operations` after `worker`."""
        self._operations.append((self._worker, *row))

    def nodes(self, rows: list[tuple[Any, ...]]) -> None:
        """Record who is here: the columns of `nodes` before `worker`."""
        self._queue.put(("nodes", [(*row, self._worker) for row in rows]))

    def turn(self, now_ns: int) -> None:
        """Housekeeping, a few times a second, from the engine's loop."""
        self.publishes.turn(now_ns)
        self.deliveries.turn(now_ns)
        if self._operations:
            self._queue.put(("operations", self._operations))
            self._operations = []
        if self._late:
            self._queue.put(("acks", self._late))
            self._late = []

    def finish(self, now_ns: int) -> None:
        """Write everything and end the thread; afterwards the evidence of this process is complete."""
        self.publishes.finish(now_ns)
        self.deliveries.finish()
        self.turn(now_ns)
        self._queue.put(None)
        self._thread.join(_WRITE_WITHIN_S)
        if self._thread.is_alive():
            self.write_error = f"writing takes longer than {_WRITE_WITHIN_S:.0f} s"
            self.failure = self.failure or self.write_error

    def _late_ack(self, device: int, seq: int, at_ns: int | None, outcome: str, reason: int) -> None:
        self._late.append(
            (self._worker, device, seq, at_ns, outcome, None if reason in (0, publish_log.NONE) else reason)
        )

    def _write_all(self) -> None:
        item = self._queue.get()
        while item is not None:
            name, first = item
            batch = [first]
            # Whatever of the same table waits already goes into the same file.
            follower: tuple[str, Any] | None = None
            while len(batch) < 16:
                try:
                    follower = self._queue.get_nowait()
                except queue.Empty:
                    follower = ("", None)
                    break
                if follower is None or follower[0] != name:
                    break
                batch.append(follower[1])
                follower = ("", None)
            self._write(name, batch)
            item = self._queue.get() if follower is not None and not follower[0] else follower

    def _write(self, name: str, batch: list[Any]) -> None:
        # Counted now: a chunk that was given back is the engine's again, and it starts over.
        events = sum(item.used if isinstance(item, Chunk) else len(item) for item in batch)
        try:
            if name == "publishes":
                self._write_publishes(batch)
            elif name == "deliveries":
                self._write_deliveries(batch)
            else:
                rows = [row for rows in batch for row in rows]
                table = {"operations": OPERATIONS, "nodes": NODES, "acks": ACKS}[name]
                self._write_segment(name, dict(zip(table.column_names, zip(*rows, strict=True), strict=True)))
        except Exception as error:  # noqa: BLE001 - whatever it is: the thread lives on, and what is not on disk counts
            self.unwritten += events
            self.failure = f"{name} could not be written: {error}"

    def _write_segment(self, name: str, columns: dict[str, Any]) -> None:
        writer = self._writers[name]
        try:
            writer.write(columns)
        except OSError as error:
            # The engine ends the load for it, and the orchestrator gives up the room it has reserved.
            self.write_error = os.strerror(error.errno) if error.errno else str(error)
            time.sleep(_AGAIN_AFTER_S)
            writer.write(columns)

    def _write_publishes(self, chunks: list[Chunk]) -> None:
        rows = _taken_out(chunks, self.publishes.give_back)
        flags = rows["flags"]
        self._write_segment(
            "publishes",
            {
                "worker": _constant(self._worker, len(rows)),
                "device": rows["device"],
                "seq": rows["seq"],
                "topic": self._topic_names(rows["topic"]),
                "qos": rows["qos"].astype(np.int8),
                "retain": (flags & publish_log.FLAG_RETAIN) != 0,
                "stamped": (flags & publish_log.FLAG_STAMPED) != 0,
                "planned_ns": rows["planned_ns"],
                "sent_ns": known_or_null(rows["sent_ns"], pa.int64()),
                "acked_ns": known_or_null(rows["acked_ns"], pa.int64()),
                "outcome": words(publish_log.OUTCOMES, rows["outcome"]),
                "reason": numbers(rows["reason"], pa.int16(), rows["reason"] == publish_log.NONE),
                "held": words(publish_log.HELD, rows["held"]),
                "retries": rows["retries"],
                "payload_bytes": rows["payload_bytes"],
                "structure_bytes": rows["structure_bytes"],
                "url_bytes": rows["url_bytes"],
                "wire_bytes": rows["wire_bytes"],
            },
        )

    def _write_deliveries(self, chunks: list[Chunk]) -> None:
        rows = _taken_out(chunks, self.deliveries.give_back)
        flags = rows["flags"]
        self._write_segment(
            "deliveries",
            {
                "worker": _constant(self._worker, len(rows)),
                "client": rows["client"],
                "device": rows["device"],
                "seq": rows["seq"],
                "planned_ns": known_or_null(rows["planned_ns"], pa.int64()),
                "received_ns": rows["received_ns"],
                "topic": self._topic_names(rows["topic"]),
                "qos": rows["qos"].astype(np.int8),
                "dup": (flags & delivery_log.FLAG_DUP) != 0,
                "retained": (flags & delivery_log.FLAG_RETAINED) != 0,
                "payload_bytes": rows["payload_bytes"],
                "wire_bytes": rows["wire_bytes"],
            },
        )

    def _topic_names(self, ids: npt.NDArray[np.int32]) -> pa.Array:
        # Only the topics that occur: a fleet may have tens of thousands, a segment few of them.
        places = np.full(len(self._topics) + 1, -1, dtype=np.int32)
        places[ids] = 0  # -1, "no topic", marks the last place, which stays without a word
        used = np.flatnonzero(places[:-1] == 0)
        places[used] = np.arange(len(used))
        places[-1] = -1
        return words([self._topics[number] for number in used.tolist()], places[ids])


def _taken_out(chunks: list[Chunk], give_back: Callable[[Chunk], None]) -> npt.NDArray[Any]:
    """A copy of the chunks' rows; each chunk goes back once, whatever comes of the copy and of writing it."""
    try:
        return np.concatenate([chunk.rows[: chunk.used] for chunk in chunks])
    finally:
        for chunk in chunks:
            give_back(chunk)


def _constant(word: str, count: int) -> pa.Array:
    return words([word], np.zeros(count, dtype=np.int32))
