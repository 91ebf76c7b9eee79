"""Floods from hosts of a real network: the switches hold them back, and the controller goes on answering."""

from __future__ import annotations

import threading
import time
from pathlib import Path

import pytest

from battlebrokers.sdn.core.broker import LINK_LIFE_MS
from battlebrokers.sdn.core.rules import QUESTIONS, burst_of
from battlebrokers.sdn.lab.open_vswitch import what_is_missing
from support.datagrams import arp_frame, udp_frame
from support.stage import PORT, Stage, stage
from support.waiting import until

_MISSING = what_is_missing()
pytestmark = [
    pytest.mark.root,
    pytest.mark.slow,
    pytest.mark.skipif(_MISSING is not None, reason=f"{_MISSING.message}: {_MISSING.hint}" if _MISSING else ""),
]
PER_S = 200
FLOOD = 15_000


def flood(network: Stage, resource: str) -> list[threading.Thread]:
    """h1 publishes as fast as it can; at the port of h3 somebody nobody knows asks for addresses as fast."""
    sender = network.hosts["h1"]
    message = udp_frame(sender.mac, sender.ipv4, resource, b"flood", ports=(PORT, PORT))

    def publish() -> None:
        with network.lab.frame_socket("h1") as door:
            for _ in range(FLOOD):
                door.send(message)

    def ask() -> None:
        with network.lab.frame_socket("h3") as door:
            for number in range(FLOOD):
                # From nobody, as hosts ask that have no address yet: nothing is learned of whoever asks.
                door.send(arp_frame(f"02:00:00:00:{number >> 8:02x}:{number & 255:02x}", "0.0.0.0", resource))

    return [threading.Thread(target=work) for work in (publish, ask)]


@pytest.mark.parametrize("mode", ["reactive", "direct"])
def test_floods_are_held_back_in_the_switch_and_rest_goes_on(tmp_path: Path, mode: str) -> None:
    with stage(tmp_path, "chain:1x3", options=("--reactive-limit", str(PER_S))) as flooded:
        resource = flooded.create(mode, subscribers=("h2",))
        other = flooded.create(mode, subscribers=("h2",))
        flooded.ask("DELETE", f"/api/v1/hosts/{flooded.hosts['h3'].mac}")
        asked = flooded.ask("GET", "/api/v1/statistics")["packet_ins"]
        began = time.monotonic()
        threads = flood(flooded, resource)
        for thread in threads:
            thread.start()
        changes = 0
        while any(thread.is_alive() for thread in threads):
            flooded.unsubscribe(flooded.create(subscribers=("h2",)), "h2")
            changes += 1
        for thread in threads:
            thread.join()
        assert changes > 0
        told = flooded.ask("GET", "/api/v1/statistics")
        took_s = time.monotonic() - began
        # Beacons, and messages of the rounds that wait in the switch.
        allowed = burst_of(PER_S) + QUESTIONS.burst_packets + (PER_S + QUESTIONS.packets_per_s + 100) * (took_s + 0.5)
        assert told["packet_ins"] - asked <= allowed
        held = until(lambda: flooded.ask("GET", f"/api/v1/resources/{resource}")["dropped"], what="what was held back")
        assert held > 0
        assert flooded.ask("GET", "/api/v1/statistics")["drops"]["over the limit"] >= held
        flooded.publish("h1", other, b"on another")
        came = until(lambda: [one for one, _ in flooded._drained("h2") if one == b"on another"], what="a message")
        assert came == [b"on another"]
        assert flooded.errors() == 0


def test_a_flood_between_switches_costs_no_link_and_nobody_elses_messages(tmp_path: Path) -> None:
    """Every switch asks about every copy, far more than the controller can answer."""
    with stage(tmp_path, "chain:4x2") as flooded:
        resource = flooded.create("reactive", subscribers=("h4", "h6", "h7", "h8"))
        other = flooded.create("reactive", subscribers=("h8",))
        publisher, guest = flooded.hosts["h1"], flooded.hosts["h5"]
        message = udp_frame(publisher.mac, publisher.ipv4, resource, b"flood", ports=(PORT, PORT))
        ended = threading.Event()

        def publish() -> None:
            with flooded.lab.frame_socket("h1") as door:
                while not ended.is_set():
                    door.send(message)

        links = [one["ends"] for one in flooded.ask("GET", "/api/v1/topology")["links"]]
        thread = threading.Thread(target=publish)
        thread.start()
        try:
            # Longer than a link lives without beacons.
            last = time.monotonic() + LINK_LIFE_MS / 1000 + 2
            sent = heard = 0
            while time.monotonic() < last:
                sent += 1
                flooded.publish("h3", other, b"not the flood")
                time.sleep(0.2)
                heard += sum(one == b"not the flood" for one, _ in flooded._drained("h8"))
                assert [one["ends"] for one in flooded.ask("GET", "/api/v1/topology")["links"]] == links
            # Who it is that speaks is asked as well, at a switch that copies pass.
            flooded.ask("DELETE", f"/api/v1/hosts/{guest.mac}")
            with flooded.lab.frame_socket("h5") as door:
                until(lambda: door.send(arp_frame(guest.mac, guest.ipv4, resource)) and _knows(flooded, guest.mac))
        finally:
            ended.set()
            thread.join()
        # Where all switches are one process, frames are lost before any rule as well.
        assert heard > sent / 4, (heard, sent)
        assert flooded.ask("GET", f"/api/v1/resources/{resource}")["dropped"] > 0
        assert flooded.errors() == 0


def _knows(network: Stage, mac: str) -> bool:
    return any(one["mac"] == mac for one in network.ask("GET", "/api/v1/hosts"))
