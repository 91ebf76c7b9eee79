"""The Java machine under Spark: found, checked, and started directly, without Spark's two shell scripts and first JVM.

Called by `session`. Starts one process and ends it; knows nothing of tables or runs.
"""

from __future__ import annotations

import contextlib
import hashlib
import importlib.util
import os
import re
import shlex
import shutil
import signal
import struct
import subprocess
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from battlebrokers.errors import AnalysisStopped, EnvironmentNotReady

_OLDEST_JAVA = 17
_START_TIMEOUT_S = 180.0
_INSTALL = (
    "Install it (Debian/Ubuntu: `sudo apt install openjdk-17-jre-headless`, Fedora: `sudo dnf install "
    "java-17-openjdk-headless`, macOS: `brew install openjdk@17`) or point JAVA_HOME to it."
)
_TIE = (
    "import ctypes, os, sys; ctypes.CDLL(None).prctl(1, 9, 0, 0, 0); "
    "os.getppid() == int(sys.argv[1]) and os.execv(sys.argv[2], sys.argv[2:])"
)
_DIES_WITH_US = (sys.executable, "-I", "-S", "-c", _TIE) if sys.platform.startswith("linux") else ()
"""PR_SET_PDEATHSIG: a stopped or hanging JVM does not notice that its standard input was closed."""
# What Spark's own launcher opens for it; without these the session does not start on Java 17.
_OPENED = (
    "java.base/java.lang", "java.base/java.lang.invoke", "java.base/java.lang.reflect", "java.base/java.io",
    "java.base/java.net", "java.base/java.nio", "java.base/java.util", "java.base/java.util.concurrent",
    "java.base/java.util.concurrent.atomic", "java.base/jdk.internal.ref", "java.base/sun.nio.ch",
    "java.base/sun.nio.cs", "java.base/sun.security.action", "java.base/sun.util.calendar",
    "java.security.jgss/sun.security.krb5",
)  # fmt: skip
_QUIET_LOG = """\
rootLogger.level = error
rootLogger.appenderRef.stderr.ref = stderr
appender.stderr.type = Console
appender.stderr.name = stderr
appender.stderr.target = SYSTEM_ERR
appender.stderr.layout.type = PatternLayout
appender.stderr.layout.pattern = %d{HH:mm:ss} %p %c{1}: %m%n
# Named, or Spark resets the level and prints how to change it.
logger.gateway.name = org.apache.spark.api.python.PythonGatewayServer
logger.gateway.level = error
"""


@dataclass(frozen=True, slots=True)
class Java:
    """A Java that is good enough."""

    path: str
    version: str


def find_java() -> Java:
    """The Java to use: JAVA_HOME's, else the one on PATH; an error with the exact fix if there is none."""
    home = os.environ.get("JAVA_HOME")
    path = str(Path(home) / "bin" / "java") if home else shutil.which("java")
    if path is None or not Path(path).exists():
        where = f"JAVA_HOME is {home}, but there is no bin/java" if home else "there is no `java` on PATH"
        raise EnvironmentNotReady(f"the analysis needs Java {_OLDEST_JAVA} or newer: {where}", hint=_INSTALL)
    try:
        told = subprocess.run([path, "-version"], capture_output=True, text=True, timeout=60, check=False).stderr
    except (OSError, subprocess.TimeoutExpired) as error:
        raise EnvironmentNotReady(f"{path} does not run: {error}", hint=_INSTALL) from error
    found = re.search(r'version "(?:1\.)?(\d+)[^"]*"', told)
    if found is None or int(found[1]) < _OLDEST_JAVA:
        what = found[0].removeprefix("version ") if found else "unknown"
        raise EnvironmentNotReady(f"the analysis needs Java {_OLDEST_JAVA} or newer; {path} is {what}", hint=_INSTALL)
    return Java(path, told.strip())


@dataclass(slots=True)
class Jvm:
    """A running JVM with a gateway to it."""

    process: subprocess.Popen[bytes]
    port: int
    secret: str
    archive_draft: Path | None
    archive: Path | None

    def close(self) -> None:
        """End it; it ends by itself once its standard input closes."""
        if self.process.stdin is not None:
            with contextlib.suppress(OSError):
                self.process.stdin.close()
        with contextlib.suppress(OSError):
            self.process.send_signal(signal.SIGCONT)
        try:
            # Time enough to write the class archive, which happens once per machine.
            self.process.wait(120 if self.archive_draft else 20)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        if self.archive_draft is not None and self.archive is not None and self.archive_draft.exists():
            self.archive_draft.replace(self.archive)


def start_jvm(java: Java, scratch: Path, flags: list[str], conf: Mapping[str, str]) -> Jvm:
    """Start Spark's gateway JVM; `scratch` is a private folder that outlives it."""
    home = _spark_home()
    told_at = scratch / "gateway"
    log_settings = scratch / "log4j2.properties"
    log_settings.write_text(_QUIET_LOG)
    hadoop_conf = [os.environ[name] for name in ("HADOOP_CONF_DIR", "YARN_CONF_DIR") if name in os.environ]
    archive = None if hadoop_conf else _archive_place(java, home)
    draft = None
    sharing: list[str] = []
    if archive is not None and archive.exists():
        sharing = [f"-XX:SharedArchiveFile={archive}", "-Xshare:auto", "-Xlog:cds=off", "-Xlog:cds+dynamic=off"]
    elif archive is not None:
        _remove_abandoned_drafts(archive.parent)
        draft = archive.with_suffix(f".{os.getpid()}.tmp")
        sharing = [f"-XX:ArchiveClassesAtExit={draft}", "-Xlog:cds=off", "-Xlog:cds+dynamic=off"]
    submit = [arg for name, value in conf.items() for arg in ("--conf", f"{name}={value}")]
    command = [
        *([*_DIES_WITH_US, str(os.getpid())] if _DIES_WITH_US else []),
        java.path,
        "-cp", os.pathsep.join([*hadoop_conf, f"{home}/jars/*"]),
        *sharing,
        *flags,
        f"-Dlog4j2.configurationFile={log_settings.as_uri()}",
        f"-Djava.io.tmpdir={scratch}",
        "-Djava.net.preferIPv6Addresses=false",
        "-XX:+IgnoreUnrecognizedVMOptions",
        "--add-modules=jdk.incubator.vector",
        *[f"--add-opens={package}=ALL-UNNAMED" for package in _OPENED],
        "-Djdk.reflect.useDirectMethodHandle=false",
        "-Dio.netty.tryReflectionSetAccessible=true",
        "org.apache.spark.deploy.SparkSubmit",
        *submit,
        *shlex.split(os.environ.get("PYSPARK_SUBMIT_ARGS", "pyspark-shell")),
    ]  # fmt: skip
    env = {
        **os.environ,
        "_PYSPARK_DRIVER_CONN_INFO_PATH": str(told_at),
        "SPARK_CONNECT_MODE": "0",
        "SPARK_HOME": str(home),
    }  # fmt: skip
    complaints = scratch / "jvm.log"
    with complaints.open("wb") as sink:
        process = subprocess.Popen(
            command, env=env, stdin=subprocess.PIPE, stdout=sink, stderr=sink, start_new_session=True
        )
    port, secret = _wait_for_gateway(process, told_at, complaints)
    return Jvm(process, port, secret, draft, archive)


def _wait_for_gateway(process: subprocess.Popen[bytes], told_at: Path, complaints: Path) -> tuple[int, str]:
    deadline = time.monotonic() + _START_TIMEOUT_S
    while time.monotonic() < deadline:
        # The file appears whole, by rename.
        if told_at.exists():
            raw = told_at.read_bytes()
            port, length = struct.unpack(">ii", raw[:8])
            return port, raw[8 : 8 + length].decode()
        if process.poll() is not None:
            break
        time.sleep(0.01)
    process.kill()
    process.wait()
    said = complaints.read_text(errors="replace").strip()[-1500:]
    hint = "BB_DEBUG=1 shows more."
    if "jdk.incubator.vector" in said and "not found" in said:
        hint = f"This Java is stripped: it lacks the module jdk.incubator.vector. {_INSTALL}"
    raise EnvironmentNotReady(f"Java did not start Spark:\n{said}", hint=hint)


def _spark_home() -> Path:
    spec = importlib.util.find_spec("pyspark")
    if spec is None or spec.origin is None:
        raise EnvironmentNotReady("pyspark is not installed", hint="`pip install 'pyspark>=4.3,<4.4'`")
    return Path(spec.origin).parent


def _archive_place(java: Java, home: Path) -> Path | None:
    """Where the archive of Spark's loaded classes is kept, which saves most of a start's CPU time; None if nowhere."""
    if os.environ.get("BB_CLASS_ARCHIVE") == "no":
        return None
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "battlebrokers"
    jars = home / "jars"
    try:
        facts = f"{java.path}\n{java.version}\n{jars}\n{jars.stat().st_mtime_ns}"
        cache.mkdir(parents=True, exist_ok=True)
    except OSError:
        return None
    if not os.access(cache, os.W_OK):
        return None
    return cache / f"spark-{hashlib.sha256(facts.encode()).hexdigest()[:16]}.jsa"


def _remove_abandoned_drafts(cache: Path) -> None:
    """Drafts of archives whose process was killed while it wrote them; each may have 200 MB."""
    for draft in cache.glob("spark-*.tmp"):
        pid = draft.name.split(".")[-2]
        if pid.isdecimal() and not Path("/proc", pid).exists():
            with contextlib.suppress(OSError):
                draft.unlink()


def java_is_gone(error: Exception) -> AnalysisStopped | None:
    """What to tell when nobody is left to talk to: the machine under Spark was killed, or fell."""
    if not isinstance(error, ConnectionError) and type(error).__name__ != "Py4JNetworkError":
        return None
    return AnalysisStopped(
        "the analysis failed: Spark's Java process is gone",
        hint="The kernel kills like that when memory runs out; `dmesg` says so.",
    )
