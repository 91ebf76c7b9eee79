"""A page in a real browser: what it draws, what it complains about, and what a script added to it found out."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import pytest

Test = TypeVar("Test", bound=Callable[..., None])

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
_OPTIONS = (
    "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-sync",
    "--disable-background-networking", "--disable-component-update", "--virtual-time-budget=5000",
    "--window-size=1300,2000", "--enable-logging=stderr", "--dump-dom",
)  # fmt: skip


def in_a_browser(test: Test) -> Test:
    """A decorator for tests with a browser: skipped where there is none, and none of them is fast."""
    needs = pytest.mark.skipif(CHROMIUM is None, reason="no Chromium here to render the report in")
    return needs(pytest.mark.slow(test))


@dataclass(frozen=True)
class Shown:
    """A page after five seconds in the browser, its scripts run."""

    page: str
    log: str

    @property
    def opening(self) -> str:
        """The page's first tag, where its scripts leave what became of them."""
        found = re.search(r"<html[^>]*>", self.page)
        assert found is not None, self.log[-2000:]
        return found[0]

    @property
    def complaints(self) -> list[str]:
        return [line for line in self.log.splitlines() if "CONSOLE" in line]

    @property
    def said(self) -> dict[str, Any]:
        """What a script of the test put into the body's `data-said`."""
        found = re.search(r'data-said="([^"]*)"', self.page)
        assert found is not None, self.log[-2000:]
        said: dict[str, Any] = json.loads(found[1].replace("&quot;", '"'))
        return said


def show(html: str, folder: Path, script: str = "") -> Shown:
    """Open a page in its dark dress, perhaps with a script of the test at its end."""
    before, body, after = html.rpartition("</body>")
    path = folder / "report.html"
    path.write_text(before + script + body + after)
    command = [str(CHROMIUM), *_OPTIONS, f"--user-data-dir={folder / 'profile'}", f"file://{path}?theme=dark"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    return Shown(done.stdout, done.stderr)
