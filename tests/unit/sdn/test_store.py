"""The broker's memory on disk: what is kept comes back, what is broken is told, what cannot be kept is refused."""

from __future__ import annotations

import json
import stat
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from battlebrokers.errors import EnvironmentNotReady, InputError
from battlebrokers.sdn.controller import Controller
from battlebrokers.sdn.core.network import Host, Network, Port
from battlebrokers.sdn.core.resources import Directory, Mode, Source
from battlebrokers.sdn.store import Store, remembered
from support.datagrams import arp_frame
from support.examples import examples
from support.hostile_switch import HostileSwitch, calling, packet_in
from support.waiting import eventually

MAC = "00:00:00:00:00:01"


@given(st.lists(st.tuples(st.sampled_from(Mode), st.sampled_from(Source), st.integers(0, 5)), max_size=8))
@examples(30)
def test_what_is_kept_comes_back(
    tmp_path_factory: pytest.TempPathFactory, wanted: list[tuple[Mode, Source, int]]
) -> None:
    directory = Directory()
    for number, (mode, source, subscribers) in enumerate(wanted):
        directory, resource = directory.created(mode, source, f"ü/{number}")
        for who in range(1, subscribers + 1):
            directory = directory.subscribed(resource.address, f"00:00:00:00:00:0{who}", f"10.0.0.{who}")
    one, other = Port(1, 2), Port(2**64 - 1, 7)
    network = Network(
        {1: frozenset({1, 2}), 2**64 - 1: frozenset({7})},
        {one: other, other: one},
        {MAC: Host(MAC, "10.0.0.1", Port(1, 1))},
    )
    path = tmp_path_factory.mktemp("state") / "state.json"
    Store(path).save(remembered(b"secret", directory, network))
    memory = Store(path).load()
    assert (memory.secret, memory.directory, memory.network) == (b"secret", directory, network)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


def kept(folder: Path) -> tuple[Path, dict[str, Any]]:
    directory, resource = Directory().created()
    directory = directory.subscribed(resource.address, MAC, "10.0.0.1")
    path = folder / "state.json"
    Store(path).save(remembered(b"s", directory, Network(hosts={MAC: Host(MAC, "10.0.0.1", Port(1, 1))})))
    return path, json.loads(path.read_bytes())


@pytest.mark.parametrize(
    ("place", "value"),
    [
        (("secret",), 7),
        (("resources", 0, "mode"), "wild"),
        (("resources", 0, "address"), "nonsense"),
        (("resources", 0, "address"), "10.0.0.1"),
        (("resources", 0, "subscribers"), {"nonsense": "10.0.0.1"}),
        (("resources", 0, "subscribers"), {MAC: "1.1.1.1"}),
        (("hosts", 0, "mac"), "nonsense"),
        (("hosts", 0, "port"), 1),
        (("ports",), {"x": [1]}),
        (("links",), [[1, 2]]),
    ],
)
def test_a_broken_state_is_told_and_not_touched(tmp_path: Path, place: tuple[str | int, ...], value: object) -> None:
    path, said = kept(tmp_path)
    inside: Any = said
    for step in place[:-1]:
        inside = inside[step]
    inside[place[-1]] = value
    path.write_text(json.dumps(said))
    with pytest.raises(InputError) as told:
        Store(path).load()
    assert str(path) in told.value.message
    assert "move the file away" in told.value.hint
    assert json.loads(path.read_bytes()) == said


@pytest.mark.parametrize("share", [0.0, 0.3, 0.99])
def test_half_a_state_is_told(tmp_path: Path, share: float) -> None:
    path, _ = kept(tmp_path)
    whole = path.read_bytes()
    path.write_bytes(whole[: int(len(whole) * share)])
    with pytest.raises(InputError, match="cannot be read"):
        Store(path).load()


def test_a_folder_where_the_state_should_be_is_told(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="cannot be read"):
        Store(tmp_path).load()


def test_a_full_disk_leaves_what_was_kept(tmp_path: Path) -> None:
    path, said = kept(tmp_path)
    path.with_suffix(".new").symlink_to("/dev/full")
    with pytest.raises(EnvironmentNotReady) as told:
        Store(path).save(remembered(b"other", Directory(), Network()))
    assert "No space left" in told.value.message
    assert json.loads(path.read_bytes()) == said


def test_a_place_that_cannot_be_written_is_told(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(EnvironmentNotReady) as told:
        Store(tmp_path / "file" / "state.json").save(remembered(b"s", Directory(), Network()))
    assert "--state" in told.value.hint


async def test_a_change_that_cannot_be_kept_does_not_happen(tmp_path: Path) -> None:
    controller = Controller(Store(tmp_path / "state.json"))
    await controller.start(port=0)
    try:
        first = await controller.create()
        (tmp_path / "state.new").symlink_to("/dev/full")
        with pytest.raises(EnvironmentNotReady):
            await controller.create()
        assert list(controller.state.directory.resources) == [first.address]
        (tmp_path / "state.new").unlink()
        assert (await controller.create()).address == "1.1.1.2"
    finally:
        await controller.stop()


async def test_switches_and_hosts_are_served_though_nothing_can_be_kept(tmp_path: Path) -> None:
    (tmp_path / "state.new").symlink_to("/dev/full")
    controller = Controller(Store(tmp_path / "state.json"))
    address = await controller.start(port=0)
    try:
        switch = HostileSwitch(1)
        async with calling(address, switch):
            await eventually(lambda: 1 in controller.channels)
            switch.say(packet_in(1, arp_frame(MAC, "10.0.0.1", "10.0.0.1")))
            await eventually(lambda: MAC in controller.state.network.hosts)
            assert not switch.is_closed.is_set()
    finally:
        await controller.stop()
