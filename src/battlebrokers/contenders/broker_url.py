"""The URL of a broker: its parts, with credentials kept apart. Used for brokers somebody else runs."""

from __future__ import annotations

from dataclasses import dataclass
from urllib.parse import unquote, urlsplit

from battlebrokers.contenders.spec import Transport
from battlebrokers.errors import UsageError

_TRANSPORTS: dict[str, Transport] = {
    "mqtt": "tcp",
    "tcp": "tcp",
    "mqtts": "tls",
    "ssl": "tls",
    "ws": "ws",
    "wss": "wss",
}
_SCHEMES: dict[Transport, str] = {"tcp": "mqtt", "tls": "mqtts", "ws": "ws", "wss": "wss"}
_PORTS: dict[Transport, int] = {"tcp": 1883, "tls": 8883, "ws": 80, "wss": 443}


@dataclass(frozen=True, slots=True)
class BrokerUrl:
    """Where a broker listens; credentials are kept apart, so that they are never recorded with the address."""

    transport: Transport
    host: str
    port: int
    path: str
    username: str | None = None
    password: str | None = None

    @property
    def place(self) -> str:
        """host:port, as it is written in a URL."""
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"

    @property
    def url(self) -> str:
        """The URL without credentials."""
        return f"{_SCHEMES[self.transport]}://{self.place}{self.path}"


def is_url(name: str) -> bool:
    """Whether a contender is given by its URL instead of its name."""
    return "://" in name


def parse_broker_url(text: str) -> BrokerUrl:
    """The parts of `mqtt://`, `mqtts://`, `ws://` or `wss://` host[:port][/path]; anything else is a UsageError."""
    scheme = text.partition("://")[0].lower()
    transport = _TRANSPORTS.get(scheme)
    if transport is None:
        raise _refused(text, f"it cannot start with {scheme}://")
    try:
        parts = urlsplit(text)
        host, port = parts.hostname, parts.port
    except ValueError as error:
        raise _refused(text, str(error)) from None
    if not host:
        raise _refused(text, "it names no host")
    if port == 0:
        raise _refused(text, "port 0 is nowhere")
    path = ""
    if transport in ("ws", "wss"):
        path = (parts.path or "/mqtt") + (f"?{parts.query}" if parts.query else "")
    elif parts.path not in ("", "/") or parts.query:
        raise _refused(text, "only ws:// and wss:// have a path")
    return BrokerUrl(
        transport=transport,
        host=host,
        port=port or _PORTS[transport],
        path=path,
        username=unquote(parts.username) if parts.username is not None else None,
        password=unquote(parts.password) if parts.password is not None else None,
    )


def _refused(text: str, why: str) -> UsageError:
    return UsageError(
        f"{text!r} is not a broker's URL: {why}",
        hint="For example mqtt://broker.example:1883, mqtts://host, ws://host:9001/mqtt or wss://host/mqtt.",
    )
