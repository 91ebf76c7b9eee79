"""A live page in a real browser, used as a person does: by mouse and keyboard, over Chromium's own protocol."""

from __future__ import annotations

import base64
import json
import re
import shutil
import subprocess
import tempfile
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from websockets.sync.client import ClientConnection, connect

from support.browser import CHROMIUM
from support.waiting import until

_OPTIONS = (
    "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-sync",
    "--disable-background-networking", "--disable-component-update", "--remote-debugging-port=0",
    "--window-size=1400,1000", "--hide-scrollbars",
)  # fmt: skip
_KEYS = {"Tab": 9, "Enter": 13, " ": 32}


class LiveBrowser:
    """One tab."""

    def __init__(self, connection: ClientConnection) -> None:
        self._connection = connection
        self._number = 0
        self.complaints: list[str] = []
        """What the page wrote to its console as errors, and what it threw."""
        self.addresses: set[str] = set()
        """Everything it asked for."""
        for domain in ("Page", "Runtime", "Network", "Log"):
            self.order(f"{domain}.enable")

    def order(self, method: str, **parameters: Any) -> Any:
        self._number += 1
        self._connection.send(json.dumps({"id": self._number, "method": method, "params": parameters}))
        deadline = time.monotonic() + 60
        while True:
            told = json.loads(self._connection.recv(timeout=max(0.1, deadline - time.monotonic())))
            if told.get("id") == self._number:
                assert "error" not in told, told
                return told["result"]
            self._note(told)

    def _note(self, told: dict[str, Any]) -> None:
        method, said = told.get("method"), told.get("params", {})
        if method == "Network.requestWillBeSent":
            self.addresses.add(said["request"]["url"])
        elif method == "Runtime.exceptionThrown":
            self.complaints.append(json.dumps(said["exceptionDetails"])[:2000])
        elif method == "Runtime.consoleAPICalled" and said["type"] in ("error", "warning", "assert"):
            self.complaints.append(json.dumps(said["args"])[:2000])

    def open(self, address: str) -> None:
        self.order("Page.navigate", url=address)
        self.until("document.readyState === 'complete'")

    def value(self, expression: str) -> Any:
        """What an expression is in the page; a promise is awaited."""
        told = self.order("Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True)
        assert "exceptionDetails" not in told, told["exceptionDetails"]
        return told["result"].get("value")

    def until(self, expression: str, seconds: float = 30) -> Any:
        return until(lambda: self.value(expression), seconds, expression)

    def text(self, selector: str) -> str:
        said: str = self.value(f"document.querySelector({json.dumps(selector)})?.textContent ?? ''")
        return said

    def click(self, selector: str) -> None:
        """With the mouse, in the middle of what is there, when that is what lies on top."""
        until(lambda: self._hit(selector), 30, f"a click on {selector}")

    def _hit(self, selector: str) -> bool:
        """Whether the click reached it: a page that lives may move what was just looked at."""
        wanted = json.dumps(selector)
        place = self.until(
            f"""(() => {{ const node = document.querySelector({wanted}); if (!node) return null;
            node.scrollIntoView({{block: "center"}}); const box = node.getBoundingClientRect();
            const x = box.x + box.width / 2, y = box.y + (node.matches(".host") ? 8 : box.height / 2);
            const hit = document.elementFromPoint(x, y);
            window.wasHit = false;
            document.addEventListener("click", event => {{ window.wasHit = !!event.target.closest({wanted}); }},
                {{once: true, capture: true}});
            return hit && (node === hit || node.contains(hit)) ? [x, y] : null; }})()"""
        )
        for kind in ("mousePressed", "mouseReleased"):
            self.order("Input.dispatchMouseEvent", type=kind, x=place[0], y=place[1], button="left", clickCount=1)
        # A page that was left for another one remembers nothing.
        return self.value("window.wasHit") is not False

    def press(self, key: str) -> None:
        text = {"Enter": "\r", " ": " "}.get(key)
        named = {"key": key, "code": "Space" if key == " " else key, "windowsVirtualKeyCode": _KEYS[key]}
        self.order("Input.dispatchKeyEvent", type="keyDown", **named, **({"text": text} if text else {}))
        self.order("Input.dispatchKeyEvent", type="keyUp", **named)

    def write(self, selector: str, text: str) -> None:
        """Into a field, in place of what is in it."""
        self.click(selector)
        self.value(f"document.querySelector({json.dumps(selector)}).select()")
        self.order("Input.insertText", text=text)

    def choose(self, selector: str, value: str) -> None:
        """In a list; its menu is the system's and not the page's, so the choice is made from inside."""
        self.value(
            f"""(() => {{ const node = document.querySelector({json.dumps(selector)}); node.focus();
            node.value = {json.dumps(value)}; node.dispatchEvent(new Event("change", {{bubbles: true}})); }})()"""
        )

    def dressed(self, scheme: str) -> None:
        """`light` or `dark`."""
        self.order("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": scheme}])

    def picture(self, path: Path) -> None:
        told = self.order("Page.captureScreenshot", format="png", captureBeyondViewport=False)
        path.write_bytes(base64.b64decode(told["data"]))


class BrowserProcess:
    """A running Chromium, in which every test has a tab of its own."""

    def __init__(self, address: str) -> None:
        self._address = address

    @contextmanager
    def tab(self) -> Iterator[LiveBrowser]:
        """Open an empty tab; it is closed afterwards, so that its page sends nothing into the next test's records."""
        new = self._request("PUT", "/json/new?about:blank")
        url = f"ws://{self._address}/devtools/page/{new['id']}"
        try:
            with connect(url, max_size=None, max_queue=None, ping_interval=None) as connection:
                yield LiveBrowser(connection)
        finally:
            self._request("GET", f"/json/close/{new['id']}")

    def _request(self, method: str, path: str) -> Any:
        request = urllib.request.Request(f"http://{self._address}{path}", method=method)
        with urllib.request.urlopen(request, timeout=60) as response:
            body = response.read()
        return json.loads(body) if body.startswith(b"{") else None


@contextmanager
def live_browser() -> Iterator[BrowserProcess]:
    """Start a browser, and end it afterwards."""
    folder = Path(tempfile.mkdtemp(prefix="bb-browser-"))
    log = folder / "log"
    with log.open("wb") as output:
        command = [str(CHROMIUM), *_OPTIONS, f"--user-data-dir={folder / 'profile'}", "about:blank"]
        process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=output, stderr=output)
    try:
        listening = r"DevTools listening on ws://([^/\s]+)/"
        address = until(lambda: re.search(listening, log.read_text(errors="replace")), what="the browser")[1]
        yield BrowserProcess(address)
    finally:
        process.terminate()
        try:
            process.wait(20)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        shutil.rmtree(folder, ignore_errors=True)
