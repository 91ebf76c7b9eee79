"""What a contender file may name as a path, program, package or container: nothing that leads out of its own folders.

Called by `spec_checks` when a file is read; pure. What a broker makes of its folder later is checked by `confined`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from pathlib import PurePosixPath

from battlebrokers.contenders.dialect_checks import KeyMistake, KeyPath
from battlebrokers.contenders.needs import Need
from battlebrokers.contenders.services import Service
from battlebrokers.contenders.spec import Contender, Run

OUTPUT = "output.log"
"""Where everything a contender prints is kept; no file of its own may have this name."""

_WRITTEN_IN = "files are written in the folder of the run, such as conf/server.conf"
_LOGS_IN = "logs are looked for in the folder of the run, such as logs/*.log"
_IN_FOLDER = "write it with `files` and say ${dir}/NAME, or ${data} for what it keeps"
_OWN_FOLDERS = ("${dir}", "${data}", "${specs}")
_PYTHON_MODULE = re.compile(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)*", re.ASCII)
_NODE_MODULE = re.compile(r"(@[a-z0-9~][\w.~-]*/)?[A-Za-z0-9~][\w.~-]*", re.ASCII)
_NAMESPACE = re.compile(r"[\w.][\w.-]*", re.ASCII)
_FOLDER_VARIABLE = re.compile(r"\$\{([^}]*)\}/(.+)", re.DOTALL)


def path_checks(contender: Contender) -> Iterator[KeyMistake]:
    """Every path, program, package or name in the file that could reach something it must not."""
    yield from _written_files(contender)
    for number, pattern in enumerate(contender.logs):
        if why := _outside(pattern) or _no_pattern(pattern):
            yield ("logs", number), f"{pattern!r} {why}", _LOGS_IN
    yield from _run(contender.run)
    for name, need in contender.needs.items():
        yield from _need(("needs", name), need)
    for name, companion in contender.beside.items():
        if companion.executable is not None:
            yield from _need(("beside", name), Need(executable=companion.executable, also_in=companion.also_in))
    yield from _versions(contender)
    yield from _packages(contender)
    for name, service in contender.services.items():
        yield from _service(("services", name), service)


def _outside(path: str) -> str:
    """Why a relative path does not stay inside its folder; empty when it does."""
    parts = PurePosixPath(path).parts
    if not parts or "\0" in path:
        return "is no path"
    if path.startswith("/"):
        return "is an absolute path"
    return "leads out of the folder" if ".." in parts else ""


def _no_pattern(pattern: str) -> str:
    loose = any("**" in part and part != "**" for part in PurePosixPath(pattern).parts)
    return "is no pattern: ** must stand alone between slashes" if loose else ""


def _written_files(contender: Contender) -> Iterator[KeyMistake]:
    places: list[tuple[KeyPath, str]] = [(("files", name), name) for name in contender.files]
    for profile, spec in contender.profiles.items():
        places += [(("profiles", profile, "files", name), name) for name in spec.files]
    for where, name in places:
        if why := _outside(name):
            yield where, f"{name!r} {why}", _WRITTEN_IN
        elif PurePosixPath(name) == PurePosixPath(OUTPUT):
            yield where, f"{name!r} is where its output is kept", "choose another name"


def _run(run: Run) -> Iterator[KeyMistake]:
    for inside, path in run.mounts.items():
        if not inside.startswith("/") or ":" in inside:
            yield ("run", "mounts", inside), f"{inside!r} is no path inside the container", "it starts with / without :"
        elif why := _not_in_own_folder(path):
            yield ("run", "mounts", inside), f"{path!r} {why}", _IN_FOLDER
    if run.compose and (why := _not_in_own_folder(run.compose)):
        yield ("run", "compose"), f"{run.compose!r} {why}", _IN_FOLDER
    if run.container.startswith("-") or any(letter.isspace() for letter in run.container):
        yield ("run", "container"), f"{run.container!r} is no image", "such as vendor/thing:1.2"
    if run.namespace and not _NAMESPACE.fullmatch(run.namespace):
        yield ("run", "namespace"), f"{run.namespace!r} is no name of a namespace", "as `ip netns` lists them"
    if run.host.startswith("-"):
        yield ("run", "host"), f"{run.host!r} is no host", ""


def _not_in_own_folder(path: str) -> str:
    """Why a template is not a path inside the folders of a run; empty when it is one."""
    own = next((folder for folder in _OWN_FOLDERS if path == folder or path.startswith(f"{folder}/")), None)
    if own is None:
        return "is not in the folder of the run"
    rest = path.removeprefix(own).lstrip("/")
    if ":" in rest or "${" in rest:
        return "is no plain path"
    return _outside(rest) if rest else ""


def _need(where: KeyPath, need: Need) -> Iterator[KeyMistake]:
    program = need.executable
    if program is not None and (program in ("", ".", "..") or ("/" in program and not _absolute(program))):
        hint = "a name to look for on PATH, or an absolute path"
        yield (*where, "executable"), f"{program!r} is no program", hint
    for key, paths in (("also_in", need.also_in), ("file", need.file or [])):
        for number, path in enumerate(paths):
            if not _absolute(path):
                yield (*where, key, number), f"{path!r} is not an absolute path without ..", ""
    if need.python is not None and not _PYTHON_MODULE.fullmatch(need.python):
        yield (*where, "python"), f"{need.python!r} is no name of a Python module", ""
    if need.node is not None and not _NODE_MODULE.fullmatch(need.node):
        yield (*where, "node"), f"{need.node!r} is no name of a Node module", ""


def _absolute(path: str) -> bool:
    return path.startswith("/") and ".." not in PurePosixPath(path).parts and "\0" not in path


def _versions(contender: Contender) -> Iterator[KeyMistake]:
    modules = {f"{name}.folder" for name, need in contender.needs.items() if need.python or need.node}
    modules |= {name for name, need in contender.needs.items() if need.node} | {"specs"}
    for number, source in enumerate(contender.version):
        if source.file is not None:
            match = _FOLDER_VARIABLE.fullmatch(source.file)
            if match is None or match[1] not in modules or _outside(match[2]):
                hint = "such as ${NAME}/package.json of a module it needs; its text is kept with every run"
                yield ("version", number, "file"), f"{source.file!r} is not in the folder of a module", hint
        if source.glob is not None and (".." in PurePosixPath(source.glob).parts or not source.glob.startswith("/")):
            yield ("version", number, "glob"), f"{source.glob!r} is not an absolute path without ..", ""


def _packages(contender: Contender) -> Iterator[KeyMistake]:
    for manager, packages in contender.install.items():
        if manager == "commands":  # told to the user, never run
            continue
        for number, package in enumerate(packages):
            where = ("install", manager, number)
            if not package or package[0] in "-/.~" or "file:" in package or "/../" in package:
                yield where, f"{package!r} is no package of a registry", "options and local paths are not installed"
            elif manager == "npm-overrides" and "@" not in package[1:]:
                yield where, f"{package!r} pins no version", "such as shortid@2.2.4"


def _service(where: KeyPath, service: Service) -> Iterator[KeyMistake]:
    named: Iterable[tuple[str, str]] = (
        ("interface", service.interface), ("filter", service.filter), ("container", service.container)
    )  # fmt: skip
    for key, value in named:
        if value.startswith("-"):
            yield (*where, key), f"{value!r} would be an option", ""
    if service.namespace and not (_NAMESPACE.fullmatch(service.namespace) or _absolute(service.namespace)):
        yield (*where, "namespace"), f"{service.namespace!r} is no namespace", "a name (`ip netns`) or an absolute path"
    if ".." in PurePosixPath(service.cgroup).parts:
        yield (*where, "cgroup"), f"{service.cgroup!r} leads out of /sys/fs/cgroup", ""
