"""How a container or a compose file is run as one process that ends when it is told to. Pure: builds commands only.

Used by `lifecycle`. The engine's own client stays in the foreground and hands our signals on.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from battlebrokers.secrets import masked_document

_COMPOSE = (
    # Compose leaves containers, networks and volumes behind when it is told to end: they are taken down afterwards.
    'engine=$1; project=$2; file=$3; "$engine" compose -p "$project" -f "$file" up --abort-on-container-exit & up=$!; '
    'trap "kill -TERM $up" TERM INT; wait $up; status=$?; trap "" TERM INT; wait $up 2>/dev/null; '
    '"$engine" compose -p "$project" -f "$file" down --volumes --remove-orphans; exit $status'
)


def container_command(
    engine: str,
    name: str,
    image: str,
    arguments: Sequence[str],
    *,
    host: str,
    published: Mapping[int, int],
    env: Mapping[str, str],
    mounts: Mapping[str, str],
) -> list[str]:
    """`docker run` in the foreground; `published` are port here → port inside, for streams and datagrams alike."""
    command = [engine, "run", "--rm", "--init", "--name", name]
    for here, inside in published.items():
        for kind in ("tcp", "udp"):
            command += ["--publish", f"{host}:{here}:{inside}/{kind}"]
    for inside_path, path in mounts.items():
        command += ["--volume", f"{path}:{inside_path}"]
    hidden = secret_environment(env)
    for key, value in env.items():
        command += ["--env", key if key in hidden else f"{key}={value}"]
    return [*command, image, *arguments]


def secret_environment(env: Mapping[str, str]) -> dict[str, str]:
    """Variables whose values must not be arguments, which everybody here can read: the client gets them in its own."""
    return {key: value for key, value in env.items() if masked_document(text := f"{key}={value}") != text}


def compose_command(engine: str, name: str, file: str) -> list[str]:
    """`docker compose up` in the foreground, and `down` when it has ended."""
    return ["/bin/sh", "-c", _COMPOSE, "sh", engine, name, file]
