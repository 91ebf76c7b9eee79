"""`bb sdn ladder` on real switches: the exact hops of one message in every mode, captured on every cable."""

from __future__ import annotations

import json
import shutil
from collections import Counter
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

import pytest

from battlebrokers.errors import EnvironmentNotReady, InputError
from battlebrokers.record.capture_tool import CaptureTool
from battlebrokers.sdn.core.addresses import VIRTUAL_MAC
from battlebrokers.sdn.lab.commands import Names
from battlebrokers.sdn.lab.open_vswitch import what_is_missing
from battlebrokers.sdn.ladder import taking
from battlebrokers.sdn.ladder.sightings import read_captures
from battlebrokers.sdn.ladder.steps import Ladder, build
from battlebrokers.sdn.ladder.taking import Wanted, take
from support.apart import WHAT_IS_LEFT, script_apart
from support.browser import in_a_browser, show
from support.runs import bb
from support.stage import Stage, stage
from support.wiretap import needs

_MISSING = what_is_missing()
pytestmark = [
    pytest.mark.root,
    pytest.mark.slow,
    pytest.mark.skipif(_MISSING is not None, reason=f"{_MISSING.message}: {_MISSING.hint}" if _MISSING else ""),
    needs("dumpcap"),
]
SUBSCRIBERS = ("h2", "h5", "h7", "h8")
ADDRESS = {f"h{number}": f"10.0.0.{number}" for number in range(1, 9)}
WAYS = {
    "h2": ("s1", "h2"), "h5": ("s1", "s2", "s3", "h5"), "h7": ("s1", "s2", "s3", "s4", "h7"),
    "h8": ("s1", "s2", "s3", "s4", "h8"),
}  # fmt: skip
Hop = tuple[str, str, str]


@pytest.fixture(scope="module")
def paper(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stage]:
    with stage(tmp_path_factory.mktemp("paper"), "paper") as made:
        yield made


def taken(paper: Stage, folder: Path, mode: str, source: str = "publisher", *, arp: bool = False) -> Ladder:
    resource = paper.create(mode, source, SUBSCRIBERS)
    known = paper.ask("GET", f"/api/v1/resources/{resource}")
    # The test listens on the usual port as every host already, and frames are looked at instead.
    facts = take(paper.lab, Names("bbt"), Wanted(known, "h1", timeout_s=20, forget_address=arp), folder)
    return build(facts, read_captures(folder, facts))


def hops(ladder: Ladder, kind: str = "udp") -> Counter[Hop]:
    return Counter((step.sender, step.receiver, step.what) for step in ladder.steps if step.kind == kind)


def udp(ladder: Ladder, source: str, *ways: tuple[str, str, str]) -> Counter[Hop]:
    return Counter((one, other, f"UDP {source} → {to}") for one, other, to in ways)


def forget_all(paper: Stage) -> None:
    """Switches that know subscribers by a resource of group mode do not ask about copies for them."""
    for one in paper.ask("GET", "/api/v1/resources"):
        paper.ask("DELETE", f"/api/v1/resources/{one['address']}")


def places(ladder: Ladder, way: tuple[str, ...]) -> list[int]:
    """Where in the ladder the copy for the last one of a way takes each of its legs."""
    return [
        next(number for number, step in enumerate(ladder.steps)
             if (step.sender, step.receiver) == leg and step.what.endswith(ADDRESS[way[-1]]))
        for leg in pairwise(way)
    ]  # fmt: skip


def asked_before_sent(ladder: Ladder, way: tuple[str, ...]) -> bool:
    """Between each two legs the switch asks, and is answered."""
    at = places(ladder, way)
    between = [ladder.steps[one + 1 : other] for one, other in pairwise(at)]
    return at == sorted(at) and all(
        any(step.sender == switch and step.kind == "packet_in" for step in steps)
        and any(step.receiver == switch and step.kind == "packet_out" for step in steps)
        for switch, steps in zip(way[1:], between, strict=False)
    )


def in_causal_order(ladder: Ladder) -> bool:
    """Nobody hands on what it has not got; times never run backwards."""
    reached = {ladder.facts.publisher}
    times = [step.time_ns for step in ladder.steps]
    for step in ladder.steps:
        if step.sender not in reached:
            return False
        reached.add(step.receiver)
    return times == sorted(times) and times[0] == 0


@pytest.mark.parametrize("source", ["publisher", "resource"])
def test_a_tree_sends_one_copy_over_each_link_and_rewrites_at_the_edge(
    paper: Stage, tmp_path: Path, source: str
) -> None:
    ladder = taken(paper, tmp_path, "tree", source, arp=True)
    resource = ladder.facts.resource
    sender = ADDRESS["h1"] if source == "publisher" else resource
    links = [("h1", "s1"), ("s1", "s2"), ("s2", "s3"), ("s3", "s4")]
    edges = [("s1", "h2"), ("s3", "h5"), ("s4", "h7"), ("s4", "h8")]
    assert hops(ladder) == (
        udp(ladder, ADDRESS["h1"], *((one, other, resource) for one, other in links))
        + udp(ladder, sender, *((one, other, ADDRESS[other]) for one, other in edges))
    )
    assert {(step.sender, step.receiver) for step in ladder.steps if step.note} == set(edges)
    assert [(step.sender, step.receiver, step.what) for step in ladder.steps[:3]] == [
        ("h1", "s1", f"ARP who has {resource}?"),
        ("s1", "h1", f"ARP {resource} is at {VIRTUAL_MAC}"),
        ("h1", "s1", f"UDP {ADDRESS['h1']} → {resource}"),
    ]
    assert in_causal_order(ladder)
    assert "controller" not in {line.name for line in ladder.lifelines}
    assert (ladder.missing, bool(ladder.unread)) == ((), False)


@pytest.mark.parametrize("source", ["publisher", "resource"])
def test_a_group_sends_a_copy_per_subscriber_over_each_link(paper: Stage, tmp_path: Path, source: str) -> None:
    ladder = taken(paper, tmp_path, "group", source)
    resource = ladder.facts.resource
    sender = ADDRESS["h1"] if source == "publisher" else resource
    copied = [(one, other, ADDRESS[name]) for name, way in WAYS.items() for one, other in pairwise(way)]
    assert hops(ladder) == (udp(ladder, ADDRESS["h1"], ("h1", "s1", resource)) + udp(ladder, sender, *copied))
    assert {step.sender for step in ladder.steps if step.note} == {"s1"}
    for way in WAYS.values():
        at = places(ladder, way)
        assert at == sorted(at)
    assert in_causal_order(ladder)
    assert not ladder.missing


@pytest.mark.parametrize("source", ["publisher", "resource"])
def test_about_a_reactive_message_every_switch_asks_and_the_first_makes_the_copies(
    paper: Stage, tmp_path: Path, source: str
) -> None:
    forget_all(paper)
    ladder = taken(paper, tmp_path, "reactive", source)
    resource = ladder.facts.resource
    sender = ADDRESS["h1"] if source == "publisher" else resource
    copied = [(one, other, ADDRESS[name]) for name, way in WAYS.items() for one, other in pairwise(way)]
    assert hops(ladder) == (udp(ladder, ADDRESS["h1"], ("h1", "s1", resource)) + udp(ladder, sender, *copied))
    assert {step.sender for step in ladder.steps if step.note and step.kind == "udp"} == {"s1"}
    asking = {"s1": 1, "s2": 3, "s3": 3, "s4": 2}
    asked = Counter(step.sender for step in ladder.steps if step.kind == "packet_in")
    answered = Counter(step.receiver for step in ladder.steps if step.kind == "packet_out")
    assert asked == asking
    # One for each subscriber at the first, one for each question at all others; each sends one copy.
    assert answered == asking | {"s1": len(SUBSCRIBERS)}
    rewriting = [step for step in ladder.steps if step.kind == "packet_out" and step.note]
    assert [(step.receiver, step.note.split()[-1]) for step in rewriting] == [
        ("s1", ADDRESS[name]) for name in SUBSCRIBERS
    ]
    size = 14 + 20 + 8 + len(f"{ladder.facts.mark} hello")
    assert {what for *_, what in hops(ladder, "packet_out")} == {f"PACKET_OUT 1 output, {size} B"}
    assert in_causal_order(ladder)
    for way in WAYS.values():
        assert asked_before_sent(ladder, way)
    assert [line.name for line in ladder.lifelines] == ["h1", "s1", "controller", "s2", "s3", "s4", *SUBSCRIBERS]
    assert not ladder.missing


@pytest.mark.parametrize("source", ["publisher", "resource"])
def test_a_direct_message_goes_through_the_controller_and_crosses_no_link(
    paper: Stage, tmp_path: Path, source: str
) -> None:
    ladder = taken(paper, tmp_path, "direct", source)
    resource = ladder.facts.resource
    sender = ADDRESS["h1"] if source == "publisher" else resource
    edges = [("s1", "h2"), ("s3", "h5"), ("s4", "h7"), ("s4", "h8")]
    assert hops(ladder) == (
        udp(ladder, ADDRESS["h1"], ("h1", "s1", resource))
        + udp(ladder, sender, *((one, other, ADDRESS[other]) for one, other in edges))
    )
    size = 14 + 20 + 8 + len(f"{ladder.facts.mark} hello")
    assert hops(ladder, "packet_in") == Counter([("s1", "controller", f"PACKET_IN port 1, no buffer, {size} B")])
    assert hops(ladder, "packet_out") == Counter(
        [("controller", "s1", f"PACKET_OUT 1 output, {size} B"), ("controller", "s3", f"PACKET_OUT 1 output, {size} B"),
         ("controller", "s4", f"PACKET_OUT 2 outputs, {size} B")]
    )  # fmt: skip
    assert in_causal_order(ladder)
    assert [line.name for line in ladder.lifelines] == ["h1", "s1", "controller", "s3", "s4", *SUBSCRIBERS]


@needs("tcpdump")
def test_tcpdump_shows_the_same(paper: Stage, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = shutil.which("tcpdump") or ""
    monkeypatch.setattr(taking, "find_tool", lambda: CaptureTool("tcpdump", path, 1.5))
    ladder = taken(paper, tmp_path, "tree")
    assert len(hops(ladder)) == 8
    assert not ladder.missing
    assert in_causal_order(ladder)


def test_a_subscriber_that_publishes_on_its_own_resource_gets_no_further_than_its_switch(
    paper: Stage, tmp_path: Path
) -> None:
    resource = paper.create("tree", subscribers=("h1", "h8"))
    known = paper.ask("GET", f"/api/v1/resources/{resource}")
    facts = take(paper.lab, Names("bbt"), Wanted(known, "h1", timeout_s=1), tmp_path)
    ladder = build(facts, read_captures(tmp_path, facts))
    assert set(hops(ladder)) == {("h1", "s1", f"UDP {ADDRESS['h1']} → {resource}")}


def test_without_a_capture_program_or_a_host_it_says_so(
    paper: Stage, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    known = {"address": "1.1.1.1", "mode": "tree", "source": "publisher", "subscribers": []}
    with pytest.raises(InputError, match="no host 'h99'"):
        take(paper.lab, Names("bbt"), Wanted(known, "h99"), tmp_path)
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(EnvironmentNotReady, match="neither dumpcap nor tcpdump is installed"):
        take(paper.lab, Names("bbt"), Wanted(known, "h1"), tmp_path)


@in_a_browser
def test_captures_taken_before_become_text_json_and_pictures(paper: Stage, tmp_path: Path) -> None:
    taken(paper, tmp_path / "kept", "reactive")
    done = bb("sdn", "ladder", "--from", "kept", "--svg", "way.svg", "--html", "way.html", cwd=tmp_path)
    assert done.code == 0, done.err
    assert "4 of 4 copies arrived" in done.out
    assert "PACKET_IN" in done.out
    told = bb("sdn", "ladder", "--from", "kept", "--json", cwd=tmp_path).json()
    assert (told["publisher"], told["missing"], told["unread"]["damages"]) == ("h1", [], 0)
    assert (tmp_path / "way.svg").read_text().startswith("<svg ")
    script = """<script>
    const texts = [...document.querySelectorAll("svg text.what")];
    document.body.dataset.said = JSON.stringify({
      steps: texts.length, rows: document.querySelectorAll("tbody tr").length,
      outside: texts.filter(one => { const box = one.getBBox(), all = one.ownerSVGElement.viewBox.baseVal;
        return box.x < 0 || box.x + box.width > all.width; }).length });
    </script>"""
    shown = show((tmp_path / "way.html").read_text(), tmp_path, script)
    assert shown.said == {"steps": len(told["steps"]), "rows": len(told["steps"]), "outside": 0}
    assert not shown.complaints


def test_wrong_ways_to_ask_are_explained(tmp_path: Path) -> None:
    assert bb("sdn", "ladder", cwd=tmp_path).code == 2
    assert "--as is missing" in bb("sdn", "ladder", "--resource", "1.1.1.1", cwd=tmp_path).err
    gone = bb("sdn", "ladder", "--from", "nowhere", cwd=tmp_path)
    assert gone.code == 3
    assert "ladder.json" in gone.err
    alone = bb("sdn", "ladder", "--resource", "1.1.1.1", "--as", "h1", "--url", "http://127.0.0.1:9", cwd=tmp_path)
    assert alone.code == 4
    assert "no controller" in alone.err


BY_HAND = f"""
bb sdn lab up paper > lab.txt 2> lab.err || exit 90
bb sdn controller --state state.json > controller.log 2>&1 &
controller=$!
for _ in $(seq 300); do bb sdn lab status | grep -c "controller answers" | grep -q 4 && break; sleep 0.1; done
bb sdn create > resource.txt || exit 91
bb sdn subscribe 1.1.1.1 h5 && bb sdn subscribe 1.1.1.1 h8 || exit 92
bb sdn ladder --resource 1.1.1.1 --as h1 --arp --out kept --svg way.svg --html way.html; echo code $?
bb sdn ladder --resource 1.1.1.1 --as h1 --json > way.json; echo code $?
bb sdn ladder --resource 1.1.1.1 --as h5; echo code $?
bb sdn ladder --resource 1.1.1.9 --as h1; echo code $?
bb sdn lab status | head -1
kill $(cat /run/battlebrokers-lab/ovs/ovs-vswitchd.pid)
while [ -e /run/battlebrokers-lab/ovs/ovs-vswitchd.pid ]; do sleep 0.05; done
bb sdn lab status
kill $controller; wait $controller; echo code $?
bb sdn lab down; {WHAT_IS_LEFT}
"""


def test_from_the_command_line_with_a_controller_that_came_after_the_lab(tmp_path: Path) -> None:
    """As somebody types it: nobody has spoken in this network before the ladder's own message."""
    done = script_apart(BY_HAND, tmp_path)
    assert (tmp_path / "resource.txt").read_text() == "1.1.1.1\n", done.out + done.err
    assert "start one with `bb sdn controller`" in (tmp_path / "lab.err").read_text()
    assert [line.split()[1] for line in done.out.splitlines() if line.startswith("code ")] == ["0", "0", "0", "3", "0"]
    assert "one message from h1 on 1.1.1.1, mode tree" in done.out
    assert "2 of 2 copies arrived" in done.out
    assert "ARP who has 1.1.1.1?" in done.out
    assert "h5 subscribes to 1.1.1.1 itself" in done.out
    assert "there is no resource 1.1.1.9" in done.err
    assert "ovs-vswitchd does not run" in done.out
    assert done.out.splitlines()[-1].split() == ["left:"]
    told = json.loads((tmp_path / "way.json").read_text())
    assert (told["publisher"], told["missing"]) == ("h1", [])
    assert (tmp_path / "way.svg").read_text().startswith("<svg ")
    assert "<svg " in (tmp_path / "way.html").read_text()
    assert {"ladder.json", "network.pcapng"} <= {path.name for path in (tmp_path / "kept").iterdir()}
