"""A contender's configuration, filled in: which files to write, what to start, where it will listen. Pure.

Called by `lifecycle`. The hash leaves ports and folders as names, so that equal configurations have equal hashes.
"""

from __future__ import annotations

import hashlib
import json
import shlex
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from battlebrokers.contenders.spec import Contender, Profile
from battlebrokers.contenders.template import names_in, render, symbolic
from battlebrokers.errors import UsageError


@dataclass(frozen=True, slots=True)
class TlsServerFiles:
    """What a broker needs to speak TLS; with `client_ca` it demands certificates signed by it (mTLS)."""

    certificate: Path
    key: Path
    client_ca: Path | None = None

    def values(self) -> dict[str, str]:
        """The names templates use for these files."""
        files = {"tls.certificate": self.certificate, "tls.key": self.key, "tls.client_ca": self.client_ca}
        return {name: str(path.resolve()) for name, path in files.items() if path is not None}


@dataclass(frozen=True, slots=True)
class Configuration:
    """Everything needed to start the process."""

    files: Mapping[str, str]
    command: tuple[str, ...]
    env: Mapping[str, str]
    endpoints: Mapping[str, str]
    sha256: str
    namespace: str = ""
    """The network namespace it runs in, by its name."""
    account: str = ""
    """The name of the account it runs under, when that is not ours."""

    @property
    def text(self) -> str:
        """All of it in one readable text, for the evidence."""
        where = [f"in the network namespace {self.namespace}"] if self.namespace else []
        who = [f"as {self.account}"] if self.account else []
        parts = ["# " + ", ".join([*where, *who])] if where or who else []
        parts.append("$ " + shlex.join(self.command))
        parts += [f"{name}={value}" for name, value in sorted(self.env.items())]
        parts += [f"--- {name}\n{content.rstrip()}" for name, content in sorted(self.files.items())]
        return "\n".join(parts) + "\n"


@dataclass(frozen=True, slots=True)
class Templates:
    """The parts of a contender file that one profile, with or without TLS, puts together."""

    files: Mapping[str, str]
    command: tuple[str, ...]
    env: Mapping[str, str]
    endpoints: Mapping[str, str]
    ports: tuple[str, ...]

    def filled(self, values: Mapping[str, str]) -> Configuration:
        """The configuration with every name replaced by its value."""
        return Configuration(
            files={name: render(text, values) for name, text in self.files.items()},
            command=tuple(render(word, values) for word in self.command),
            env={name: render(text, values) for name, text in self.env.items()},
            endpoints={transport: render(text, values) for transport, text in self.endpoints.items()},
            sha256=self._sha256(),
        )

    def _sha256(self) -> str:
        everything: dict[str, Any] = {"files": dict(self.files), "command": self.command, "env": dict(self.env)}
        template = json.dumps(everything, sort_keys=True)
        return hashlib.sha256(render(template, symbolic(names_in(template))).encode()).hexdigest()


def put_together(contender: Contender, profile: Profile, tls: TlsServerFiles | None) -> Templates:
    """The templates of one profile, TLS included when files for it are given."""
    if profile not in contender.profiles:
        raise UsageError(f"no profile is called {profile!r}", hint=f"Known: {', '.join(contender.profiles)}.")
    chosen = contender.profiles[profile]
    files = {**contender.files, **chosen.files}
    for name, text in chosen.append.items():
        files[name] += text
    env = {**contender.run.env, **chosen.env}
    endpoints: dict[str, str] = {key: url for key, url in contender.endpoints.items()}  # noqa: C416 - the type widens
    ports = list(contender.ports)
    if tls is not None:
        if contender.tls is None:
            raise UsageError(
                f"{contender.name} has no TLS set-up here",
                hint="Use mosquitto, or a broker of your own by mqtts:// URL.",
            )
        additions = [contender.tls.append]
        env |= contender.tls.env
        if tls.client_ca is not None:
            additions.append(contender.tls.append_with_client_ca)
            env |= contender.tls.env_with_client_ca
        for addition in additions:
            for name, text in addition.items():
                if name in files:
                    files[name] += text
        endpoints.update((key, url) for key, url in contender.tls.endpoints.items())
        ports += contender.tls.ports
    return Templates(files, tuple(contender.run.command), env, endpoints, tuple(ports))
