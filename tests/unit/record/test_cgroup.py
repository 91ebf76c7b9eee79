from __future__ import annotations

from pathlib import Path

import pytest

from battlebrokers.record.cgroup import (
    GroupUse,
    group_name,
    hierarchy,
    named_group,
    network_bytes,
    own_group,
    parse_net_dev,
    read_group,
)
from battlebrokers.record.group_meter import GroupMeter

NET_DEV = """Inter-|   Receive                                                |  Transmit
 face |bytes    packets errs drop fifo frame compressed multicast|bytes    packets errs drop fifo colls carrier
    lo:  999999    1    0    0    0     0          0         0  999999    1    0    0    0     0       0          0
  eth0: 1000      10    0    0    0     0          0         0    2000   20    0    0    0     0       0          0
  eth1:500 5 0 0 0 0 0 0 700 7 0 0 0 0 0 0
  torn: 1
"""


class System:
    """A /sys/fs/cgroup and a /proc of our own making."""

    def __init__(self, folder: Path) -> None:
        self.root, self.proc = folder / "cgroup", folder / "proc"
        self.root.mkdir()
        (self.root / "cgroup.controllers").write_text("cpu memory io pids\n")
        self.process("self", "/user.slice")

    def process(self, pid: int | str, group: str, network: str = "net:[1]") -> None:
        place = self.proc / str(pid)
        (place / "ns").mkdir(parents=True)
        (place / "net").mkdir()
        (place / "cgroup").write_text(f"1:name=systemd:/old\n0::{group}\n")
        (place / "ns" / "net").symlink_to(network)
        (place / "net" / "dev").write_text(NET_DEV)

    def group(self, name: str, **files: str) -> Path:
        folder = self.root / name
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "cgroup.procs").write_text("12\n13\n")
        for file, text in files.items():
            (folder / file.replace("_", ".")).write_text(text)
        return folder


@pytest.fixture
def system(tmp_path: Path) -> System:
    return System(tmp_path)


FULL = {
    "cpu_stat": "usage_usec 2500000\nuser_usec 2000000\nsystem_usec 500000\n",
    "memory_stat": "anon 1000\nfile 5000\nfile_mapped 200\n",
    "io_stat": "8:0 rbytes=10 wbytes=20 rios=1 wios=2\n8:16 rbytes=1 wbytes=2 rios=1 wios=1\n",
    "pids_current": "7\n",
}


def test_a_group_is_read(system: System) -> None:
    assert read_group(system.group("a", **FULL)) == GroupUse(2.5, 1200, 11, 22, 7, (12, 13))


def test_a_controller_that_is_off_leaves_its_figure_unknown(system: System) -> None:
    assert read_group(system.group("a", cpu_stat=FULL["cpu_stat"])) == GroupUse(2.5, None, None, None, None, (12, 13))


@pytest.mark.parametrize("rubbish", ["", "\0\xff", "usage_usec\n", "usage_usec x\nanon -1\n8:0 rbytes=x\n"])
def test_rubbish_is_survived(system: System, rubbish: str) -> None:
    use = read_group(system.group("a", **dict.fromkeys(FULL, rubbish)))
    assert use is not None
    assert use.cpu_seconds is None


def test_a_group_that_is_gone_is_none(system: System) -> None:
    assert read_group(system.root / "nobody") is None


def test_a_service_has_a_group_of_its_own_if_it_is_not_ours(system: System) -> None:
    folder = system.group("system.slice/redis.service")
    system.process(12, "/system.slice/redis.service")
    assert own_group(12, system.root, system.proc) == folder
    assert group_name(12, system.proc) == "/system.slice/redis.service"


@pytest.mark.parametrize("shared", ["/", "/user.slice", "/gone", "/../../etc"])
def test_a_group_that_says_nothing_of_the_service_is_not_taken(system: System, shared: str) -> None:
    system.group("user.slice")
    system.process(12, shared)
    assert own_group(12, system.root, system.proc) is None


def test_our_own_parents_group_is_not_the_services(system: System) -> None:
    (system.proc / "self" / "cgroup").write_text("0::/app/bb\n")
    system.group("app")
    system.process(12, "/app")
    assert own_group(12, system.root, system.proc) is None


def test_version_2_may_be_mounted_beside_version_1(tmp_path: Path) -> None:
    (tmp_path / "unified").mkdir()
    (tmp_path / "unified" / "cgroup.controllers").write_text("")
    assert hierarchy(tmp_path) == tmp_path / "unified"
    assert hierarchy(tmp_path / "nowhere") is None
    assert named_group("x", tmp_path / "nowhere") is None


def test_the_bytes_of_a_network_of_its_own_are_counted_without_loopback(system: System) -> None:
    system.process(12, "/a", network="net:[2]")
    system.process(13, "/a")
    assert network_bytes(12, system.proc) == (1500, 2700)
    assert network_bytes(13, system.proc) is None
    assert network_bytes(99, system.proc) is None
    assert parse_net_dev("nothing of the kind") == (0, 0)


def test_a_meter_turns_the_groups_counter_into_a_percentage(system: System) -> None:
    folder = system.group("a.service", **FULL)
    system.process(12, "/a.service", network="net:[2]")
    meter = GroupMeter("", system.root, system.proc)
    assert meter.read([12], 1.0).cpu_percent is None
    (folder / "cpu.stat").write_text("usage_usec 4000000\n")
    share = meter.read([12], 1.0)
    assert share.cpu_percent == pytest.approx(150.0)
    assert share.totals == {
        "rss": 1200, "read": 11, "written": 22, "threads": 7, "received": 1500, "sent": 2700,
    }  # fmt: skip
    assert share.pids == (12, 13)


def test_a_meter_of_a_named_group_needs_no_process(system: System) -> None:
    system.group("machine.slice/box", **FULL)
    system.process(12, "/machine.slice/box")
    assert GroupMeter("machine.slice/box", system.root, system.proc).read([], 1.0).totals["rss"] == 1200


def test_a_meter_without_a_group_changes_nothing(system: System) -> None:
    system.process(12, "/")
    share = GroupMeter("", system.root, system.proc).read([12], 1.0)
    assert (share.cpu_percent, share.totals, share.pids) == (None, {}, ())
