from __future__ import annotations

import subprocess
import sys

from benchmarks.capture import _Peak

from support.waiting import until

LARGE = 64 << 20
CHILD = f"import sys; held = b'x' * {LARGE}; sys.stdin.read()"
PARENT = f"import subprocess, sys; subprocess.run([sys.executable, '-c', {CHILD!r}])"


def test_memory_of_everything_below_a_process_counts_and_its_end_does_no_harm():
    with subprocess.Popen([sys.executable, "-c", PARENT], stdin=subprocess.PIPE) as parent, _Peak(parent.pid) as peak:
        until(lambda: peak.bytes > LARGE, what="the child's memory")
        assert parent.stdin is not None
        parent.stdin.close()
        parent.wait(30)
        until(lambda: not peak._thread.is_alive(), what="the end of the watch")
    assert peak.bytes > LARGE
