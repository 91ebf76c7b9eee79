"""The two sides of `links.loopback`: acknowledged messages in our own memory, and through an MQTT broker."""

from __future__ import annotations

import uvloop

from battlebrokers.protocols.base import Endpoint, Link, LinkOptions, Outgoing
from battlebrokers.protocols.registry import make_link
from benchmarks.http_pair import Refill
from benchmarks.rates import rate_after_start

DEVICES = 8
WINDOW = 8
_PAYLOAD = bytes(64)
_TOPIC = b"bench/0"


class Acknowledged(Refill):
    """Hands over QoS 1, so that both sides are answered."""

    def send(self, link: Link, count: int) -> None:
        link.publish(Outgoing(_TOPIC, [_PAYLOAD] * count, 1, retain=False, first_token=self.acked))


def run_loopback(seconds: float) -> float:
    """Messages a second in memory, each acknowledged before its successor is sent."""
    return uvloop.run(_rate("loopback", Endpoint("memory", "bench", 1), seconds))


def run_mqtt(host: str, port: int, seconds: float) -> float:
    """The same through a broker."""
    return uvloop.run(_rate("mqtt", Endpoint("tcp", host, port), seconds))


async def _rate(protocol: str, endpoint: Endpoint, seconds: float) -> float:
    refill = Acknowledged()
    links = [make_link(protocol, endpoint, LinkOptions(f"d{n}"), refill) for n in range(DEVICES)]
    for link in links:
        await link.open()
        refill.send(link, WINDOW)
    rate = await rate_after_start(lambda: refill.acked, seconds)
    refill.over = True
    for link in links:
        await link.close()
    if refill.failed:
        raise RuntimeError(f"{refill.failed} messages failed")
    return rate
