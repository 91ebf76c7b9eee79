from __future__ import annotations

import socket
import sys

import pytest

from battlebrokers.contenders.ports import HeldPorts


def test_every_name_gets_a_port_of_its_own() -> None:
    held = HeldPorts(["mqtt", "ws", "dist"], "127.0.0.1")
    assert len(set(held.numbers.values())) == 3
    held.release()
    held.release()


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="only Linux lets two sockets bind one port")
def test_a_broker_can_listen_on_a_held_port_and_nobody_is_given_it() -> None:
    held = HeldPorts(["mqtt"], "127.0.0.1")
    with socket.socket() as broker:
        broker.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        broker.bind(("127.0.0.1", held.numbers["mqtt"]))
        broker.listen()
        with socket.create_connection(("127.0.0.1", held.numbers["mqtt"])):
            pass
    with socket.socket() as stranger, pytest.raises(OSError, match="in use"):
        stranger.bind(("127.0.0.1", held.numbers["mqtt"]))
    with socket.socket() as elsewhere, pytest.raises(OSError, match="in use"):
        elsewhere.bind(("127.0.0.2", held.numbers["mqtt"]))
    held.release()


def test_an_address_that_is_not_ours_is_an_error() -> None:
    with pytest.raises(OSError):
        HeldPorts(["mqtt"], "203.0.113.1")
