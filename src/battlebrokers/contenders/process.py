"""Our end of a kept process: start it through its keeper, ask about it, end it and all its descendants.

Used by `lifecycle`. May be used from any thread; the process does not depend on the thread that started it.
"""

from __future__ import annotations

import contextlib
import json
import os
import select
import subprocess
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

import psutil

from battlebrokers import leftovers
from battlebrokers.errors import ContenderError

_KEEPER = Path(__file__).with_name("keeper.py")
_KEEPER_MARGIN_S = 15.0
"""How long the keeper may take on top of the broker's own grace before we stop believing in it."""

_LOOK_S = 0.01


class KeptProcess:
    """One broker process with everything it starts; ends with us even if we are killed.

    With an `account` (user and group by number, given by root) it runs under that one and can reach the paths `needed`
    and `named` in folders the account may not enter; where those needed cannot be had it stays what we are.
    `namespace` is the file of a network namespace. Once it has ended, what lies in `cwd` is moved to `bring_to`.
    """

    def __init__(
        self,
        command: Sequence[str],
        *,
        env: Mapping[str, str],
        cwd: Path,
        output: Path,
        stop_signal: int,
        stop_within_s: float,
        account: tuple[int, int] | None = None,
        needed: Sequence[str] = (),
        named: Sequence[str] = (),
        namespace: str = "",
        bring_to: Path | None = None,
    ) -> None:
        order = {
            "command": list(command),
            "env": dict(env),
            "cwd": str(cwd),
            "output": str(output),
            "stop_signal": stop_signal,
            "stop_within_s": stop_within_s,
            "parent": os.getpid(),
            "account": account,
            "needed": list(needed),
            "named": list(named),
            "namespace": namespace,
            "bring_to": "" if bring_to is None else str(bring_to),
        }
        self.pid = 0
        self.exit_status: int | None = None
        self.as_root = ""
        """Why it runs as root although an account was given; empty when it does not."""
        self._stop_within_s = stop_within_s
        self._lock = threading.Lock()
        self._unread = b""
        self._keeper = subprocess.Popen(
            [sys.executable, "-I", "-S", str(_KEEPER)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            start_new_session=True,
            bufsize=0,
        )
        self._forget = leftovers.register(leftovers.Order.PROCESSES, self._hurry)
        with contextlib.suppress(OSError):  # if it is gone already, waiting for its answer tells
            self._say(json.dumps(order).encode() + b"\n")
        error = self._wait_for_pid()
        if error:
            self.stop()
            raise ContenderError(f"{command[0]} cannot be started: {error}")

    def poll(self) -> int | None:
        """The broker's exit status once it has ended (negative: by that signal), else None."""
        with self._lock:
            if self.exit_status is None:
                keeper_gone = self._keeper.poll() is not None
                self._listen(0.0)
                if self.exit_status is None and keeper_gone:
                    self.exit_status = -9  # tied to its keeper, it went the same way
        return self.exit_status

    def stop(self) -> None:
        """End it gracefully, then firmly; returns when it and all its descendants are gone. May be called twice."""
        self._end(b"stop\n")

    def give_up(self, within_s: float) -> None:
        """Ask it to end, and end it at once when it takes longer than this, whatever its file allows it."""
        with contextlib.suppress(OSError):
            self._say(b"stop\n")
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._keeper.wait(within_s)
        self.kill()

    def kill(self) -> None:
        """End it at once (SIGKILL); returns when it and all its descendants are gone."""
        self._end(b"kill\n")

    def _hurry(self, within_s: float) -> None:
        """Our own process ends at once: the keeper allows the broker a moment, then nothing of it is left."""
        with contextlib.suppress(OSError, ValueError):
            self._say(b"hurry\n")
        until = time.monotonic() + within_s
        # Another thread may be waiting for the keeper, and collect it before us.
        while time.monotonic() < until and psutil.pid_exists(self._keeper.pid) and self._keeper.poll() is None:
            time.sleep(_LOOK_S)

    def pids(self) -> list[int]:
        """The broker's process and all its descendants, daemons included."""
        found: list[int] = []
        ahead = _children_of(self._keeper.pid) if self._keeper.poll() is None else []
        while ahead:
            pid = ahead.pop(0)
            found.append(pid)
            ahead += _children_of(pid)
        return found

    def _wait_for_pid(self) -> str:
        until = time.monotonic() + _KEEPER_MARGIN_S
        while not self.pid and time.monotonic() < until:
            if error := self._listen(1.0):
                return error
            if not self.pid and self._keeper.poll() is not None:
                return f"its keeper ended with status {self._keeper.returncode}"
        return "" if self.pid else "its keeper does not answer"

    def _listen(self, timeout_s: float) -> str:
        """Read what the keeper has said so far; an error it reports is returned."""
        assert self._keeper.stdout is not None
        error = ""
        stream = self._keeper.stdout
        while not stream.closed and select.select([stream], [], [], timeout_s)[0]:
            said = os.read(stream.fileno(), 4096)
            if not said:
                break
            *lines, self._unread = (self._unread + said).split(b"\n")
            for line in lines:
                facts = json.loads(line)
                self.pid = facts.get("pid", self.pid)
                self.exit_status = facts.get("exit", self.exit_status)
                self.as_root = facts.get("as_root", self.as_root)
                error = facts.get("error", error)
            timeout_s = 0.0
        return error

    def _say(self, order: bytes) -> None:
        assert self._keeper.stdin is not None
        while order:
            order = order[os.write(self._keeper.stdin.fileno(), order) :]

    def _end(self, order: bytes) -> None:
        assert self._keeper.stdin is not None
        assert self._keeper.stdout is not None
        if not self._keeper.stdin.closed:
            with contextlib.suppress(OSError):
                self._say(order)
        try:
            self._keeper.wait(self._stop_within_s + _KEEPER_MARGIN_S)
        except subprocess.TimeoutExpired:
            self._keeper.kill()  # takes the broker with it
            self._keeper.wait()
        self._forget()
        self.poll()
        with contextlib.suppress(OSError):
            self._keeper.stdin.close()
        self._keeper.stdout.close()


def _children_of(pid: int) -> list[int]:
    with contextlib.suppress(OSError):
        return [
            int(child)
            for task in Path(f"/proc/{pid}/task").iterdir()
            for child in (task / "children").read_text().split()
        ]
    with contextlib.suppress(psutil.Error):
        return [child.pid for child in psutil.Process(pid).children()]
    return []
