"""Those that run beside a contender: a shipped contender, or a program in a few words. Used by `lifecycle`."""

from __future__ import annotations

from battlebrokers.contenders.running import RunningContender
from battlebrokers.contenders.spec import Companion, Contender


def companion_contender(name: str, companion: Companion) -> Contender:
    """The companion as a contender of its own; a program is one that nobody speaks to, with one port."""
    if companion.contender is not None:
        return Contender.find(companion.contender)
    return Contender.model_validate(
        {
            "name": name,
            "about": f"{companion.executable}, beside another.",
            "needs": {name: {"executable": companion.executable, "also_in": companion.also_in}},
            "ports": [name],
            "endpoints": {"tcp": f"mqtt://${{host}}:${{port.{name}}}"},
            "run": {"command": companion.command},
            "ready": {"by": "tcp"},
        }
    )


def companion_ports(name: str, companion: Companion, running: RunningContender) -> dict[str, str]:
    """What templates call its ports: `${mosquitto.mqtt}` of a contender, `${port.redis}` of a program."""
    ports = {key.removeprefix("port."): value for key, value in running.known.items() if key.startswith("port.")}
    if companion.contender is None:
        return {f"port.{name}": ports[name]}
    return {f"{name}.{port}": number for port, number in ports.items()}
