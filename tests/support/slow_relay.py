"""A TCP relay in front of a broker that passes on at most so many bytes a second, and loses none.

It runs in a thread with its own loop. What the broker sends is read at once and queued without limit, so behind it a
real broker looks like one that is slower than its load.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading

_TURN_S = 0.02


class SlowRelay:
    """Listens on `port`, speaks to `broker_port`; both on loopback. `bytes_per_s` holds per connection."""

    def __init__(self, broker_port: int, bytes_per_s: int) -> None:
        self._broker_port = broker_port
        self._bytes_per_turn = max(1, int(bytes_per_s * _TURN_S))
        self._loop = asyncio.new_event_loop()
        self._ready = threading.Event()
        self._thread = threading.Thread(target=self._serve, daemon=True)
        self.port = 0

    def __enter__(self) -> SlowRelay:
        self._thread.start()
        assert self._ready.wait(60)
        return self

    def __exit__(self, *_: object) -> None:
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(60)

    def _serve(self) -> None:
        asyncio.set_event_loop(self._loop)
        server = self._loop.run_until_complete(asyncio.start_server(self._accept, "127.0.0.1", 0))
        self.port = server.sockets[0].getsockname()[1]
        self._ready.set()
        self._loop.run_forever()
        server.close()
        tasks = asyncio.all_tasks(self._loop)
        for task in tasks:
            task.cancel()
        self._loop.run_until_complete(asyncio.gather(*tasks, return_exceptions=True))
        self._loop.close()

    async def _accept(self, from_client: asyncio.StreamReader, to_client: asyncio.StreamWriter) -> None:
        from_broker, to_broker = await asyncio.open_connection("127.0.0.1", self._broker_port)
        queue = bytearray()
        directions = [
            asyncio.create_task(_pass_on(from_client, to_broker)),
            asyncio.create_task(_fill(from_broker, queue)),
            asyncio.create_task(self._trickle(queue, to_client)),
        ]
        _, others = await asyncio.wait(directions, return_when=asyncio.FIRST_COMPLETED)
        for task in others:
            task.cancel()
        for writer in (to_client, to_broker):
            writer.close()

    async def _trickle(self, queue: bytearray, writer: asyncio.StreamWriter) -> None:
        loop = asyncio.get_running_loop()
        due = loop.time()
        with contextlib.suppress(ConnectionError):
            while True:
                # By the clock, not by the sleep: a busy machine wakes us late, and the rate must hold all the same.
                due = max(due + _TURN_S, loop.time() - 1.0)
                await asyncio.sleep(due - loop.time())
                if queue:
                    writer.write(bytes(queue[: self._bytes_per_turn]))
                    del queue[: self._bytes_per_turn]
                    await writer.drain()


async def _pass_on(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with contextlib.suppress(ConnectionError):
        while data := await reader.read(65536):
            writer.write(data)
            await writer.drain()


async def _fill(reader: asyncio.StreamReader, queue: bytearray) -> None:
    with contextlib.suppress(ConnectionError):
        while data := await reader.read(65536):
            queue += data
