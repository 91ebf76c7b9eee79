"""Where the vendors' own clients live: a private venv and a private node_modules, beside the project's environment.

Made once by pip and npm with pinned versions and kept in a cache folder; `python -m support.oracles.place` makes both
ahead of the tests. The project's own environment never sees them, because their pins clash with it.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

HERE = Path(__file__).parent
PYTHON_CLIENTS = ("filip==0.8.1", "devicehive==2.1.6")
NODE_CLIENTS = ("meshblu-http@10.2.0", "meshblu-websocket@2.3.8", "meshblu-mqtt@3.1.3")
WITHIN_S = 280


class NoOracle(Exception):  # noqa: N818 — read as a sentence in `except NoOracle`
    """It could not be installed here; the reason is the message."""


def cache_folder() -> Path:
    """`BB_TEST_ORACLES`, or a folder of the user's cache."""
    given = os.environ.get("BB_TEST_ORACLES")
    return Path(given) if given else Path.home() / ".cache" / "battlebrokers-test-oracles"


def python_with_clients() -> Path:
    """A Python that can import filip and devicehive."""
    return _made("python", PYTHON_CLIENTS, _make_venv) / "bin" / "python"


def node_with_clients() -> Path:
    """A folder with node_modules that has the Meshblu clients."""
    return _made("node", NODE_CLIENTS, _make_node_modules)


def _made(kind: str, pins: tuple[str, ...], make: Callable[[Path], None]) -> Path:
    mark = hashlib.sha256("\n".join((sys.version.split()[0], *pins)).encode()).hexdigest()[:12]
    folder = cache_folder() / f"{kind}-{mark}"
    folder.parent.mkdir(parents=True, exist_ok=True)
    # Several test workers ask at once: one makes it, the others wait. A half made one has no stamp and is made anew.
    with (folder.parent / f"{kind}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        stamp = folder / "complete"
        if not stamp.exists():
            shutil.rmtree(folder, ignore_errors=True)
            folder.mkdir()
            make(folder)
            stamp.touch()
    return folder


def _make_venv(folder: Path) -> None:
    _run([sys.executable, "-m", "venv", str(folder)])
    _run([str(folder / "bin" / "python"), "-m", "pip", "install", "-q", "--disable-pip-version-check", *PYTHON_CLIENTS])


def _make_node_modules(folder: Path) -> None:
    npm = shutil.which("npm")
    if npm is None:
        raise NoOracle("npm is not installed")
    (folder / "package.json").write_text('{"name": "battlebrokers-test-oracles", "private": true}')
    _run([npm, "install", "--prefix", str(folder), "--ignore-scripts", "--no-audit", "--no-fund", *NODE_CLIENTS])


def _run(command: list[str]) -> None:
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=WITHIN_S, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise NoOracle(f"{command[0]} failed: {error}") from None
    if done.returncode:
        said = (done.stderr or done.stdout).strip().splitlines() or ["no word"]
        raise NoOracle(f"{Path(command[0]).name} could not install the vendors' clients: {said[-1]}")


if __name__ == "__main__":
    for what, make in (("filip and devicehive", python_with_clients), ("the Meshblu clients", node_with_clients)):
        try:
            print(f"{what}: {make()}")
        except NoOracle as reason:
            print(f"{what}: not here, {reason}")
