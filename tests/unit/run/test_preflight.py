from __future__ import annotations

from dataclasses import replace

import pytest

from battlebrokers.contenders.availability import Available, Missing
from battlebrokers.errors import EnvironmentNotReady, ExitCode
from battlebrokers.record.capture_tool import CaptureTool, NoCapture
from battlebrokers.run import preflight as p
from battlebrokers.run.machine import Java, Machine, java_major
from battlebrokers.sdn.lab.open_vswitch import Lacks

GIB = 1 << 30
GOOD = Machine(
    open_files_soft=1_048_576,
    open_files_hard=1_048_576,
    local_ports=(32768, 60999),
    somaxconn=4096,
    tcp_congestion_control="cubic",
    cores=8,
    governor="performance",
    clock_source="tsc",
    steal_percent=0.0,
    load_1min=0.1,
    memory_bytes=16 * GIB,
    memory_available_bytes=12 * GIB,
    runs_folder="runs",
    disk_free_bytes=100 * GIB,
    java=Java("/usr/bin/java", 17),
    spark_version="4.3.0",
    brokers={"amqtt": Available("0.12.1", "python", {}), "mosquitto": Available("2.0.11", "/usr/sbin/mosquitto", {})},
    capture=CaptureTool("dumpcap", "/usr/bin/dumpcap", 0.6),
)
SMALL = p.Needs(connections=1000, events=100_000)


def test_a_good_machine_passes_every_check() -> None:
    checks = p.examine(GOOD, SMALL)
    assert [check.name for check in checks if check.state != "ok"] == []
    p.require(checks)


def test_every_check_that_is_not_ok_says_what_to_do() -> None:
    worst = Machine(governor="powersave", somaxconn=128, load_1min=9.0, clock_source="hpet", local_ports=(60000, 60999))
    bad = [check for check in p.examine(worst, p.Needs(connections=50_000)) if check.state != "ok"]
    assert len(bad) >= 9
    assert all(check.fix and check.meaning and check.value for check in bad)


class TestOpenFiles:
    def test_a_soft_limit_that_can_be_raised_is_advice_with_the_exact_command(self) -> None:
        check = p.open_files(replace(GOOD, open_files_soft=1024), SMALL)
        assert check.state == "warn"
        assert check.fix.startswith("ulimit -n 1200 ")

    def test_a_hard_limit_below_the_need_fails_and_says_how_many_are_possible(self) -> None:
        check = p.open_files(replace(GOOD, open_files_soft=1024, open_files_hard=4096), p.Needs(connections=15_000))
        assert check.state == "fail"
        assert "3 896 connections" in check.meaning
        assert "nofile 15200" in check.fix

    def test_no_limit_is_enough(self) -> None:
        assert p.open_files(replace(GOOD, open_files_soft=-1, open_files_hard=-1), SMALL).state == "ok"

    def test_a_broker_elsewhere_leaves_only_an_engines_share(self) -> None:
        needs = p.Needs(connections=100_000, broker_here=False)
        assert p.open_files(replace(GOOD, open_files_soft=20_000, open_files_hard=20_000), needs).state == "ok"
        here = replace(needs, broker_here=True)
        assert p.open_files(replace(GOOD, open_files_soft=20_000, open_files_hard=20_000), here).state == "fail"


class TestLocalPorts:
    def test_more_connections_than_ports_need_more_source_addresses(self) -> None:
        check = p.local_ports(GOOD, p.Needs(connections=60_000))
        assert check.state == "warn"
        assert "3 source addresses (127.0.0.1 to 127.0.0.3" in check.meaning
        assert "ip_local_port_range" in check.fix

    def test_an_unknown_range_is_not_held_against_the_machine(self) -> None:
        assert p.local_ports(replace(GOOD, local_ports=None), p.Needs(connections=60_000)).state == "ok"


class TestCongestionControl:
    PACED = replace(GOOD, tcp_congestion_control="bbr")

    def test_timers_on_loopback_are_advised_against_and_block_nothing(self) -> None:
        check = p.congestion_control(self.PACED, SMALL)
        assert check.state == "warn"
        assert "sysctl -w net.ipv4.tcp_congestion_control=cubic" in check.fix
        p.require(p.preflight(self.PACED, SMALL))

    def test_a_broker_elsewhere_is_no_matter_of_loopback(self) -> None:
        check = p.congestion_control(self.PACED, replace(SMALL, broker_here=False))
        assert check.state == "ok"
        assert "bbr" in check.value

    @pytest.mark.parametrize("control", ["cubic", "reno", ""])
    def test_anything_else_is_fine(self, control: str) -> None:
        assert p.congestion_control(replace(GOOD, tcp_congestion_control=control), SMALL).state == "ok"


class TestDisk:
    def test_a_folder_that_cannot_be_written_fails(self) -> None:
        check = p.disk(replace(GOOD, runs_writable=False), SMALL)
        assert check.state == "fail"
        assert "--runs" in check.fix

    @pytest.mark.parametrize(("free", "state"), [(10 * 2**20, "fail"), (GIB, "warn"), (50 * GIB, "ok")])
    def test_free_space_is_judged_by_the_evidence_to_come(self, free: int, state: str) -> None:
        assert p.disk(replace(GOOD, disk_free_bytes=free), SMALL).state == state

    def test_a_small_disk_that_would_hold_the_evidence_is_told_what_is_wanted(self) -> None:
        assert "no run begins with less than 100 MiB" in p.disk(replace(GOOD, disk_free_bytes=2**20), SMALL).meaning


class TestCpuAndMemory:
    @pytest.mark.parametrize(("available", "state"), [(GIB // 2, "fail"), (3 * GIB // 2, "warn"), (4 * GIB, "ok")])
    def test_memory(self, available: int, state: str) -> None:
        assert p.memory(replace(GOOD, memory_available_bytes=available)).state == state

    def test_the_limit_of_a_container_counts(self) -> None:
        assert p.memory(replace(GOOD, memory_limit_bytes=GIB // 2)).state == "fail"

    def test_a_governor_that_saves_power_is_advised_against(self) -> None:
        check = p.cpu(replace(GOOD, governor="powersave"))
        assert check.state == "warn"
        assert "performance" in check.fix

    def test_an_unknown_governor_is_not_held_against_the_machine(self) -> None:
        assert p.cpu(replace(GOOD, governor="")).state == "ok"

    def test_quota_single_core_and_steal_are_advised_against(self) -> None:
        assert p.cpu(replace(GOOD, cpu_quota_cores=0.5)).state == "warn"
        assert p.cpu(replace(GOOD, cores=1)).state == "warn"
        assert p.cpu(replace(GOOD, steal_percent=20.0)).state == "warn"

    def test_a_busy_machine_is_told(self) -> None:
        assert p.load(replace(GOOD, load_1min=7.5)).state == "warn"

    def test_a_slow_clock_is_told(self) -> None:
        assert p.clock(replace(GOOD, clock_source="acpi_pm")).state == "warn"


class TestPrograms:
    def test_java_must_be_there_and_new_enough(self) -> None:
        assert p.java(replace(GOOD, java=None)).state == "fail"
        old = p.java(replace(GOOD, java=Java("/opt/java8/bin/java", 8)))
        assert old.state == "fail"
        assert "openjdk-17-jre-headless" in old.fix

    @pytest.mark.parametrize(
        ("told", "major"),
        [
            ('openjdk version "17.0.15" 2025-04-15', 17),
            ('java version "1.8.0_392"', 8),
            ('openjdk version "21" 2023-09-19', 21),
            ('Picked up JAVA_TOOL_OPTIONS: -Xmx1g\nopenjdk version "11.0.2"', 11),
            ("command not found", 0),
        ],
    )
    def test_the_major_version_of_java_is_read(self, told: str, major: int) -> None:
        assert java_major(told) == major

    def test_spark_must_be_installed(self) -> None:
        assert p.spark(replace(GOOD, spark_version="")).state == "fail"

    def test_one_broker_is_enough_and_missing_ones_are_named(self) -> None:
        some: dict[str, Available | Missing] = {
            "amqtt": Available("0.12.1", "python", {}),
            "nats": Missing("the program nats-server", "…"),
        }
        check = p.brokers(replace(GOOD, brokers=some))
        assert check.state == "ok"
        assert check.meaning == "not here: nats"
        assert p.brokers(replace(GOOD, brokers={"nats": some["nats"]})).state == "fail"

    def test_capturing_is_never_required(self) -> None:
        for able in (GOOD.capture, NoCapture("it is not here", "install it"), None):
            assert p.capture(replace(GOOD, capture=able)).state == "ok"

    def test_why_nothing_can_be_captured_comes_with_the_fix(self) -> None:
        check = p.capture(replace(GOOD, capture=NoCapture("dumpcap may not capture as you", "as root: setcap …")))
        assert check.value == "not possible: dumpcap may not capture as you"
        assert check.fix == "as root: setcap …"


def test_what_fails_becomes_one_error_with_all_fixes() -> None:
    bad = replace(GOOD, java=None, spark_version="")
    with pytest.raises(EnvironmentNotReady) as caught:
        p.require(p.examine(bad, SMALL))
    assert caught.value.exit_code is ExitCode.ENVIRONMENT
    assert "Java" in caught.value.message
    assert "Spark" in caught.value.message
    assert "openjdk" in caught.value.hint
    assert "pip install" in caught.value.hint


class TestLab:
    ALL = Lacks()

    def test_a_machine_that_can_have_a_lab_says_so_and_who_switches(self) -> None:
        able = replace(GOOD, lab=self.ALL)
        checks = [p.switches(able), p.lab_tools(able), p.lab_rights(able)]
        assert [check.fix for check in checks] == ["", "", ""]
        assert "daemon switches" in checks[0].value
        assert p.switches(replace(able, kernel_switches=True)).value == "the kernel switches"

    def test_each_thing_that_is_missing_stands_in_its_line_with_its_fix(self) -> None:
        bare = replace(GOOD, lab=Lacks(("ovs-vswitchd", "ovs-vsctl", "ip"), root_rights=True, tun="No such file"))
        switches, tools, rights = p.switches(bare), p.lab_tools(bare), p.lab_rights(bare)
        assert (switches.value, tools.value, rights.value) == (
            "not here: ovs-vswitchd, ovs-vsctl", "not here: ip", "not root",
        )  # fmt: skip
        assert "openvswitch-switch" in switches.fix
        assert "iproute2" in tools.fix
        assert "sudo" in rights.fix

    def test_root_without_the_device_is_told_how_to_get_it(self) -> None:
        check = p.lab_rights(replace(GOOD, lab=Lacks(tun="No such file or directory")))
        assert check.value == "/dev/net/tun: No such file or directory"
        assert "--device /dev/net/tun" in check.fix

    def test_other_runs_are_ready_without_it_and_names_leave_room_for_values(self) -> None:
        for lab in (None, self.ALL, Lacks(("ovs-vsctl", "ip"), root_rights=True, tun="Permission denied")):
            checks = [check(replace(GOOD, lab=lab)) for check in (p.switches, p.lab_tools, p.lab_rights)]
            assert {check.state for check in checks} == {"ok"}
            assert all(len(check.name) < 14 for check in checks)
