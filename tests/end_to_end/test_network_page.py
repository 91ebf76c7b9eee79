"""The page of the network broker in a real browser, on real switches: everything by mouse and keyboard, and live."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from battlebrokers.sdn.lab.open_vswitch import what_is_missing
from support.browser import in_a_browser
from support.live_browser import BrowserProcess, LiveBrowser, live_browser
from support.stage import Stage, stage
from support.waiting import until

_MISSING = what_is_missing()
pytestmark = [
    pytest.mark.root,
    pytest.mark.skipif(_MISSING is not None, reason=f"{_MISSING.message}: {_MISSING.hint}" if _MISSING else ""),
]


@pytest.fixture(scope="module")
def paper(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stage]:
    with stage(tmp_path_factory.mktemp("paper"), "paper") as made:
        yield made


@pytest.fixture(scope="module")
def browser_process() -> Iterator[BrowserProcess]:
    with live_browser() as started:
        yield started


@pytest.fixture
def browser(browser_process: BrowserProcess) -> Iterator[LiveBrowser]:
    """A tab of its own for every test: pages of other tests are closed, and their requests are not in its records."""
    with browser_process.tab() as tab:
        yield tab


@pytest.fixture
def page(paper: Stage, browser: LiveBrowser) -> Iterator[LiveBrowser]:
    """The page of a network without resources, which never complains and loads nothing from elsewhere."""
    for address in paper.ask("GET", "/db/resources/json"):
        paper.ask("DELETE", f"/api/v1/resources/{address}")
    browser.open(f"http://127.0.0.1:{paper.http_port}/")
    browser.until("document.querySelectorAll('.host').length === 8")
    yield browser
    assert browser.complaints == []
    assert {
        one for one in browser.addresses if not one.startswith((f"http://127.0.0.1:{paper.http_port}/", "data:"))
    } == set()


def host(paper: Stage, name: str) -> str:
    return f'[data-mac="{paper.hosts[name].mac}"]'


def arrived(paper: Stage, name: str) -> bytes:
    """The next message of a host, if there is one."""
    try:
        return paper.sockets[name].recv(2000)
    except BlockingIOError:
        return b""


def said(page: LiveBrowser, words: str, *, bad: bool = False) -> None:
    page.until(f"document.querySelector('#said').textContent.includes({json.dumps(words)})")
    assert page.value("document.querySelector('#said').getAttribute('role')") == ("alert" if bad else "status")


def created(page: LiveBrowser, name: str = "") -> str:
    if name:
        page.write("#create [name=name]", name)
    page.click("#create button")
    said(page, "is created")
    return page.text("#said").split()[0]


@in_a_browser
def test_everything_is_done_by_clicking(paper: Stage, page: LiveBrowser) -> None:
    assert page.value("document.querySelectorAll('.switch').length") == 4
    assert page.value("document.querySelectorAll('[data-link]').length") == 3
    assert page.text("#state") == "4 switches, 3 links, 8 hosts, 0 resources"
    assert not page.value("document.querySelector('#none').hidden")

    resource = created(page, "town/air <b>")
    card = f'.card[data-key="{resource}"]'
    page.until(f"document.querySelector('{card} .name')?.textContent === 'town/air <b>'")
    known = paper.ask("GET", f"/api/v1/resources/{resource}")
    assert (known["name"], known["mode"]) == ("town/air <b>", "tree")

    for name in ("h3", "h8"):
        page.click(host(paper, name))
        said(page, f"{paper.hosts[name].ipv4} receives {resource}")
        page.until(f"document.querySelector('{host(paper, name)}').getAttribute('aria-pressed') === 'true'")
    assert len(paper.ask("GET", f"/api/v1/resources/{resource}")["subscribers"]) == 2

    page.write("#publish [name=text]", "from the page")
    page.click("#send")
    said(page, f"published on {resource}")
    page.until(f"""document.querySelector('{card} .numbers').textContent.startsWith("1 published2 delivered")""")
    for name in ("h3", "h8"):
        assert until(lambda name=name: arrived(paper, name), what="the message") == b"from the page"
    for number in range(200):
        paper.publish("h1", resource, b"quick %d" % number)
    page.until(f"""/ delivered(?!0\\/s).*\\/s/.test(document.querySelector('{card} .numbers').textContent)""")
    page.until(f"""document.querySelector('{card} .numbers').textContent.startsWith("201 published402 delivered")""")

    page.choose(f"{card} [data-patch=mode]", "reactive")
    said(page, f"{resource}: mode reactive")
    assert paper.ask("GET", f"/api/v1/resources/{resource}")["mode"] == "reactive"
    page.click("#send")
    page.until(f"""document.querySelector('{card} .numbers').textContent.startsWith("202 published404 delivered")""")

    page.click(f'{card} [data-leave="{paper.hosts["h3"].mac}"]')
    said(page, f"{paper.hosts['h3'].ipv4} no longer receives {resource}")
    page.until(f"document.querySelector('{host(paper, 'h3')}').getAttribute('aria-pressed') === 'false'")
    page.click(host(paper, "h8"))
    said(page, f"{paper.hosts['h8'].ipv4} no longer receives {resource}")
    assert paper.ask("GET", f"/api/v1/resources/{resource}")["subscribers"] == []

    page.click(f'[data-delete="{resource}"]')
    said(page, f"{resource} is deleted")
    page.until("!document.querySelector('.card') && !document.querySelector('#none').hidden")
    assert paper.ask("GET", "/db/resources/json") == {}


@in_a_browser
def test_errors_are_shown_in_words(paper: Stage, page: LiveBrowser) -> None:
    page.click(host(paper, "h2"))
    said(page, "Create a resource first.", bad=True)
    page.click("#send")
    said(page, "Create a resource first.", bad=True)
    resource = created(page, "taken")
    page.write("#create [name=name]", "taken")
    page.click("#create button")
    said(page, f"resource {resource} is called 'taken' already – choose another name", bad=True)
    page.write("#publish [name=text]", "ü" * 1400)
    page.click("#send")
    said(page, "2800 bytes do not fit into one packet", bad=True)
    paper.subscribe(resource, "h2")
    paper.ask("DELETE", f"/api/v1/resources/{resource}")
    page.value(f"ask('PATCH', '/resources/{resource}', {{mode: 'tree'}}).catch(fault => say(fault.message, true))")
    said(page, f"there is no resource {resource}", bad=True)


@in_a_browser
def test_the_keyboard_is_enough_and_everything_has_a_name(paper: Stage, page: LiveBrowser) -> None:
    resource = created(page)
    page.until(f"document.querySelector('{host(paper, 'h1')}').getAttribute('aria-label').includes('{resource}')")
    page.value("document.activeElement.blur(); getSelection().removeAllRanges()")
    page.value("document.querySelector('header a').focus()")
    for _ in range(30):
        page.press("Tab")
        if page.value("document.activeElement.dataset.mac") == paper.hosts["h5"].mac:
            break
    assert page.value("document.activeElement.dataset.mac") == paper.hosts["h5"].mac
    page.press("Enter")
    said(page, f"{paper.hosts['h5'].ipv4} receives {resource}")
    # The page is drawn anew every second, and the focus stays.
    at = page.value("last.at")
    page.until(f"last.at > {at} + 1500")
    assert page.value("document.activeElement.dataset.mac") == paper.hosts["h5"].mac
    page.press(" ")
    said(page, f"{paper.hosts['h5'].ipv4} no longer receives {resource}")

    page.click('[data-switch="1"]')
    page.until("!document.querySelector('#inside').hidden")
    nodes = page.order("Accessibility.getFullAXTree")["nodes"]
    roles = {"button", "link", "combobox", "textbox", "radio", "group"}
    nameless = [
        one for one in nodes
        if not one["ignored"] and one["role"]["value"] in roles and not one.get("name", {}).get("value")
    ]  # fmt: skip
    assert nameless == []
    names = {one["name"]["value"] for one in nodes if one.get("name", {}).get("value")}
    assert {f"delete {resource}", f"mode of {resource}", "Name", "Test message", "Close"} <= names
    assert f"host 10.0.0.1, does not receive {resource}" in names


@in_a_browser
def test_a_switch_shows_its_rules_in_words(paper: Stage, page: LiveBrowser) -> None:
    resource = paper.create("tree", subscribers=("h2", "h8"))
    page.click('[data-switch="1"]')
    page.until(f"document.querySelector('#rules').textContent.includes('copies for {resource}')")
    shown = page.text("#rules")
    for words in (
        f"Copies for {resource}", "to 10.0.0.2, out at port 2", "dropped: spoofed source",
        f"answered: {resource} is at 00:00:00:00:00:fe", "go on to: publishing",
    ):  # fmt: skip
        assert words in shown
    for number in range(5):
        paper.publish("h1", resource, b"%d" % number)
    page.until("document.querySelector('#rules').textContent.includes('to 10.0.0.2, out at port 2 (5)')")
    told = paper.ask("GET", "/api/v1/switches/1")
    assert page.value("document.querySelectorAll('#rules tbody tr').length") == len(told["rules"])
    page.click("#close")
    page.until("document.querySelector('#inside').hidden")


@in_a_browser
def test_a_cut_cable_is_seen_and_seen_again_when_it_is_back(paper: Stage, page: LiveBrowser) -> None:
    paper.lab.cut(2)
    try:
        page.until("document.querySelectorAll('.wire.cut').length === 1")
        assert page.text("#state").startswith("4 switches, 2 links")
        assert "s2" in page.value("document.querySelector('.wire.cut').textContent")
    finally:
        paper.lab.cut(2, restore=True)
    page.until("document.querySelectorAll('.wire.cut').length === 0")
    page.until("document.querySelector('#state').textContent.startsWith('4 switches, 3 links')")


@in_a_browser
def test_the_controller_goes_away_and_comes_back(paper: Stage, page: LiveBrowser) -> None:
    resource = paper.create("tree", subscribers=("h8",))
    page.until("document.querySelectorAll('.card').length === 1")
    paper.kill_controller()
    page.until("!document.querySelector('#away').hidden")
    assert page.text("#away").startswith("The controller does not answer.")
    assert page.value("document.querySelectorAll('.host').length") == 8
    page.click("#send")
    said(page, "the controller does not answer", bad=True)
    paper.start_controller()
    page.until("document.querySelector('#away').hidden", 60)
    page.until("document.querySelector('#state').textContent.startsWith('4 switches, 3 links, 8 hosts')", 60)
    page.until("[...document.querySelectorAll('.switch')].every(one => !one.classList.contains('off'))")
    page.click("#send")
    said(page, f"published on {resource}")


@in_a_browser
def test_without_a_network_it_says_how_to_build_one(tmp_path: Path, browser: LiveBrowser) -> None:
    alone = Stage(tmp_path, "paper")
    alone.start_controller()
    try:
        browser.open(f"http://127.0.0.1:{alone.http_port}/")
        browser.until("document.querySelector('#state').textContent === '0 switches, 0 links, 0 hosts, 0 resources'")
        assert "bb sdn lab up paper" in browser.text("#hint")
        created(browser)
        browser.click("#send")
        said(browser, "no switch is connected – bb sdn lab up paper", bad=True)
        assert browser.complaints == []
    finally:
        alone.kill_controller()


@in_a_browser
def test_the_description_of_rest_is_shown_without_loading_anything(paper: Stage, page: LiveBrowser) -> None:
    page.click("header a")
    page.until("document.querySelectorAll('details').length >= 19")
    assert "/api/v1/switches/{number}" in page.text("main")
    page.click("summary")
    assert page.value("document.querySelector('details').open")


@in_a_browser
def test_sixty_four_hosts_have_a_place_each(tmp_path: Path, paper: Stage, browser: LiveBrowser) -> None:
    """Drawn from what REST would tell: building so many takes longer than looking at them."""
    browser.open(f"http://127.0.0.1:{paper.http_port}/")
    browser.until("document.querySelectorAll('.host').length === 8")
    browser.value("""(() => { const blank = last.topology.switches[0];
      const topology = { switches: [1, 2, 3, 4].map(number => ({ ...blank, number })),
        links: [2, 3, 4].map(other => ({ ends: [[1, other + 20], [other, 20]], packets: 0 })),
        hosts: Array.from({ length: 64 }, (_, n) => ({ mac: `00:00:00:00:01:${n.toString(16).padStart(2, "0")}`,
          ipv4: `10.0.0.${n + 1}`, switch: n % 4 + 1, port: n + 1 })) };
      known.links.clear(); asking = true; last.topology = topology; draw(topology, {}, 0); })()""")
    places = browser.value("""[...document.querySelectorAll(".host circle, .switch rect")].map(one => {
      const box = one.getBoundingClientRect(); return [box.x + box.width / 2, box.y + box.height / 2, box.width]; })""")
    assert len(places) == 68
    frame = browser.value(
        "(() => { const box = $('net').getBoundingClientRect(); return [box.left, box.top, box.right, box.bottom]; })()"
    )
    for at, (x, y, wide) in enumerate(places):
        assert frame[0] <= x <= frame[2]
        assert frame[1] <= y <= frame[3]
        for other_x, other_y, other_wide in places[:at]:
            assert abs(x - other_x) + abs(y - other_y) > (wide + other_wide) / 2
    assert until(lambda: browser.value("document.querySelectorAll('.host').length"), what="hosts") == 64
