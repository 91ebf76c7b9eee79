"""The peer in Python: paho-mqtt 2, a publisher and a subscriber with a network thread each, in one process.

`run_paho` starts it as a process of its own (`python -m benchmarks.paho_pair`) and reads the one line it prints.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import threading
import time

import paho.mqtt.client as mqtt
from paho.mqtt.enums import CallbackAPIVersion

from benchmarks.rates import Sample, steady_rate

TOPIC = "bench/0"
_LOOK_S = 0.05
FASTEST_AHEAD = {0: 1000, 1: 50}
"""QoS → how far the publisher may be ahead where paho is fastest: with more, its own queues slow it down."""


def run_paho(
    host: str, port: int, *, qos: int, payload_bytes: int, seconds: float, ahead: int = 0, subscribe: bool = True
) -> float:
    """Messages per second that arrived; without a subscriber, messages per second written to the socket.

    `ahead` is how many messages may be on their way before the publisher waits; 0: it never does.
    """
    command = [sys.executable, "-m", "benchmarks.paho_pair", host, str(port), str(qos), str(payload_bytes)]
    command += [str(seconds), "--ahead", str(ahead), "--subscribe" if subscribe else "--no-subscribe"]
    done = subprocess.run(command, check=True, capture_output=True, text=True, timeout=seconds + 60)
    return float(json.loads(done.stdout)["per_s"])


def _client(name: str, host: str, port: int) -> mqtt.Client:
    client = mqtt.Client(CallbackAPIVersion.VERSION2, client_id=name)
    client.max_inflight_messages_set(65_535)
    client.max_queued_messages_set(0)
    connected = threading.Event()
    client.on_connect = lambda *_: connected.set()
    client.connect(host, port, keepalive=60)
    client.loop_start()
    if not connected.wait(10):
        raise TimeoutError(f"{host}:{port} did not answer CONNECT")
    return client


class _Count:
    """How many messages have come through; only one thread adds."""

    def __init__(self) -> None:
        self.done = 0

    def one(self, *_: object) -> None:
        self.done += 1


def measure(
    host: str, port: int, qos: int, payload_bytes: int, seconds: float, ahead: int, *, subscribe: bool
) -> float:
    """Publish as fast as it goes for so long; the rate in the middle."""
    count = _Count()
    publisher = _client("paho-publisher", host, port)
    if subscribe:
        subscriber = _client("paho-subscriber", host, port)
        subscribed = threading.Event()
        subscriber.on_subscribe = lambda *_: subscribed.set()
        subscriber.on_message = count.one
        subscriber.subscribe(TOPIC, qos)
        if not subscribed.wait(10):
            raise TimeoutError("no answer to SUBSCRIBE")
    else:
        publisher.on_publish = count.one
    payload = b"x" * payload_bytes
    samples: list[Sample] = [(time.monotonic(), 0.0)]
    sent = 0
    end = time.monotonic() + seconds
    while (now := time.monotonic()) < end:
        if now - samples[-1][0] > _LOOK_S:
            samples.append((now, float(count.done)))
        for _ in range(50):
            publisher.publish(TOPIC, payload, qos)
        sent += 50
        while ahead and sent - count.done > ahead and time.monotonic() < end:
            time.sleep(0.001)
    samples.append((time.monotonic(), float(count.done)))
    publisher.loop_stop()
    if subscribe:
        subscriber.loop_stop()
    return steady_rate(samples)


def main(arguments: list[str]) -> None:
    parser = argparse.ArgumentParser(prog="benchmarks.paho_pair")
    parser.add_argument("host")
    parser.add_argument("port", type=int)
    parser.add_argument("qos", type=int)
    parser.add_argument("payload_bytes", type=int)
    parser.add_argument("seconds", type=float)
    parser.add_argument("--ahead", type=int, default=0)
    parser.add_argument("--subscribe", action=argparse.BooleanOptionalAction, default=True)
    told = parser.parse_args(arguments)
    per_s = measure(
        told.host, told.port, told.qos, told.payload_bytes, told.seconds, told.ahead, subscribe=told.subscribe
    )
    print(json.dumps({"per_s": per_s}))


if __name__ == "__main__":
    main(sys.argv[1:])
