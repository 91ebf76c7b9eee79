"""Installs contenders: Node and Python programs into the user's cache, system packages as root; or tells what to type.

Called by `bb brokers install` and, as a module with names, by the set-up script. Never starts a broker, and keeps
packages from starting theirs.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from battlebrokers.contenders.availability import (
    Available,
    availability,
    install_hint,
    installation_of,
    own_environment,
)
from battlebrokers.contenders.spec import Contender
from battlebrokers.errors import BattleError, EnvironmentNotReady
from battlebrokers.output import echo

_POLICY = Path("/usr/sbin/policy-rc.d")


def install(contender: Contender) -> Available:
    """Install a contender if it is not here yet; raises EnvironmentNotReady with what to type when we cannot."""
    here = availability(contender)
    if isinstance(here, Available):
        return here
    for companion in contender.beside.values():
        if companion.contender is not None:
            install(Contender.find(companion.contender))
    commands = _own_commands(contender)
    if not commands:
        raise EnvironmentNotReady(
            f"{contender.name} must be installed by you: {here.what} is missing",
            hint=install_hint(contender) or "See its website.",
        )
    if "npm" in contender.install:
        _make_room_for_modules(contender)
    from_apt = commands[0][0] == "apt-get"
    env = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"} if from_apt else None
    with _services_kept_from_starting() if from_apt else contextlib.nullcontext():
        for command in commands:
            _run(command, contender, env)
    here = availability(contender)
    if isinstance(here, Available):
        return here
    raise EnvironmentNotReady(f"{contender.name} is still missing {here.what}", hint=here.hint)


def install_commands(contender: Contender) -> list[list[str]]:
    """What installing it runs, those beside it first; empty when we cannot install it."""
    beside = [Contender.find(each.contender) for each in contender.beside.values() if each.contender is not None]
    return [command for each in beside for command in install_commands(each)] + _own_commands(contender)


def _own_commands(contender: Contender) -> list[list[str]]:
    wanted = contender.install
    if "npm" in wanted:
        quiet = ["--no-audit", "--no-fund", "--no-package-lock", "--ignore-scripts", "--omit=dev", "--legacy-peer-deps"]
        npm = shutil.which("npm") or "npm"
        return [[npm, "install", "--prefix", str(installation_of(contender)), *quiet, *wanted["npm"]]]
    if "pip-own" in wanted:
        # A virtual environment in the user's cache: what the program pins must not change what we run with.
        folder = own_environment(contender)
        python = str(folder / "bin" / "python")
        return [
            [sys.executable, "-m", "venv", "--clear", str(folder)],
            [python, "-m", "pip", "install", "--quiet", *wanted["pip-own"]],
        ]
    if "pip" in wanted:
        return [[sys.executable, "-m", "pip", "install", *wanted["pip"]]]
    if "apt" in wanted and shutil.which("apt-get") and os.geteuid() == 0:
        options = ["-o", "DPkg::Lock::Timeout=300", "install", "-y", "--no-install-recommends"]
        return [["apt-get", *options, *wanted["apt"]]]
    return []


def _make_room_for_modules(contender: Contender) -> None:
    if shutil.which("npm") is None:
        raise EnvironmentNotReady(
            f"{contender.name} needs npm", hint="Install Node.js 20 or newer with npm, then try again."
        )
    folder = installation_of(contender)
    folder.mkdir(parents=True, exist_ok=True)
    if overrides := contender.install.get("npm-overrides", []):
        # npm reads what its packages' own dependencies are pinned to from here, and from nowhere else.
        pins = dict(package.rsplit("@", 1) for package in overrides)
        facts = {"name": f"{contender.name}-here", "private": True, "overrides": pins}
        (folder / "package.json").write_text(json.dumps(facts), encoding="utf-8")


@contextlib.contextmanager
def _services_kept_from_starting() -> Iterator[None]:
    """Debian asks policy-rc.d whether a new package may start its service: say no, unless somebody else answers."""
    ours = not _POLICY.exists()
    if ours:
        _POLICY.write_text("#!/bin/sh\nexit 101\n")
        _POLICY.chmod(0o755)
    try:
        yield
    finally:
        if ours:
            _POLICY.unlink(missing_ok=True)


def _run(command: Sequence[str], contender: Contender, env: Mapping[str, str] | None = None) -> None:
    """Run an installer with its talk on our stderr, so that our stdout stays clean."""
    try:
        status = subprocess.run(command, stdin=subprocess.DEVNULL, stdout=sys.stderr, env=env, check=False).returncode
    except OSError as error:
        raise EnvironmentNotReady(f"{command[0]} cannot be run: {error.strerror}") from error
    if status != 0:
        raise EnvironmentNotReady(
            f"installing {contender.name} failed: {command[0]} ended with status {status}",
            hint=f"Try it yourself: {' '.join(command)}",
        )


def main(names: Sequence[str]) -> int:
    """Install the named contenders; the exit code of the first that could not be."""
    code = 0
    for name in names:
        try:
            install(Contender.find(name))
        except BattleError as error:
            echo(f"{name}: {error.message}\n  {error.hint}", err=True)
            code = code or int(error.exit_code)
    return code


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
