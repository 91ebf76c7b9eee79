"""The URL of a broker: its parts, with credentials kept apart. Used for brokers somebody else runs."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal
from urllib.parse import unquote, urlsplit

from battlebrokers.errors import UsageError
from battlebrokers.secrets import Secret, masked_url, remember, url_secrets

Transport = Literal["tcp", "tls", "ws", "wss", "udp", "memory"]

LOOPBACK = "loopback"
"""The protocol of no broker at all: messages go from link to link in the memory of one process."""


@dataclass(frozen=True, slots=True)
class _Scheme:
    """What the beginning of a URL stands for; `path` is the one it has when none is written, None: it may have none."""

    protocol: str
    transport: Transport
    port: int
    path: str | None = None


_SCHEMES: dict[str, _Scheme] = {
    "mqtt": _Scheme("mqtt", "tcp", 1883),
    "mqtts": _Scheme("mqtt", "tls", 8883),
    "ws": _Scheme("mqtt", "ws", 80, "/mqtt"),
    "wss": _Scheme("mqtt", "wss", 443, "/mqtt"),
    "http": _Scheme("http", "tcp", 80, ""),
    "https": _Scheme("http", "tls", 443, ""),
    "coap": _Scheme("coap", "udp", 5683, ""),
    "amqp": _Scheme("amqp", "tcp", 5672, ""),
    "amqps": _Scheme("amqp", "tls", 5671, ""),
    "udp": _Scheme("udp", "udp", 0),
    LOOPBACK: _Scheme(LOOPBACK, "memory", 1),
}
_ALIASES = {"tcp": "mqtt", "ssl": "mqtts"}


@dataclass(frozen=True, slots=True)
class BrokerUrl:
    """Where a broker listens; credentials are kept apart, so that they are never recorded with the address."""

    transport: Transport
    host: str
    port: int
    path: str
    username: str | None = None
    password: Secret | None = None
    protocol: str = "mqtt"
    """What is spoken there; a WebSocket carries MQTT unless a contender's file calls the endpoint `websocket`."""

    @property
    def key(self) -> str:
        """Its name among a contender's endpoints: the transport of MQTT, else the protocol."""
        return self.transport if self.protocol == "mqtt" else self.protocol

    @property
    def connects(self) -> bool:
        """Whether somebody accepts connections there; datagrams and memory have none."""
        return self.transport not in ("udp", "memory")

    @property
    def place(self) -> str:
        """host:port, as it is written in a URL."""
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"

    @property
    def url(self) -> str:
        """The URL without credentials, and with its query: to connect with, not to show."""
        if self.transport == "memory":
            return f"{self.protocol}://"
        # A WebSocket looks the same, whatever it carries.
        spoken = "mqtt" if self.protocol == "websocket" else self.protocol, self.transport
        scheme = next(name for name, each in _SCHEMES.items() if (each.protocol, each.transport) == spoken)
        return f"{scheme}://{self.place}{self.path}"

    @property
    def shown(self) -> str:
        """The URL as it is printed and recorded."""
        return masked_url(self.url)


def is_url(name: str) -> bool:
    """Whether a contender is given by its URL instead of its name."""
    return "://" in name


def parse_broker_url(text: str, *, key: str = "") -> BrokerUrl:
    """The parts of `mqtt(s)://`, `ws(s)://`, `http(s)://`, `coap://`, `amqp(s)://` or `udp://` host[:port][/path].

    `loopback://` has no more to it. Anything else is a UsageError. `key` is its name among a contender's endpoints:
    `websocket` does not carry MQTT. What is secret in it is masked in all texts of this process from now on.
    """
    remember(*url_secrets(text))
    name = text.partition("://")[0].lower()
    scheme = _SCHEMES.get(_ALIASES.get(name, name))
    if scheme is None:
        raise _refused(text, f"it cannot start with {name}://")
    if scheme.transport == "memory":
        if text.partition("://")[2]:
            raise _refused(text, f"{name}:// is in our memory, nothing follows it")
        return BrokerUrl(scheme.transport, name, scheme.port, "", protocol=scheme.protocol)
    if key == "websocket" and name in ("ws", "wss"):
        scheme = replace(scheme, protocol=key, path="/")
    try:
        parts = urlsplit(text)
        host = parts.hostname
    except ValueError as error:
        raise _refused(text, str(error)) from None
    try:
        port = parts.port
    except ValueError:
        # The words of the library would quote what it takes for the port: a part of the password, perhaps.
        raise _refused(text, "what follows the last colon is no port (1 to 65535)") from None
    if not host:
        raise _refused(text, "it names no host")
    if port == 0:
        raise _refused(text, "port 0 is nowhere")
    if port is None and not scheme.port:
        raise _refused(text, "it names no port")
    path = ""
    if scheme.path is not None:
        path = (parts.path or scheme.path) + (f"?{parts.query}" if parts.query else "")
        # The prefix of paths that all begin with a slash.
        path = path.rstrip("/") if scheme.protocol in ("http", "coap") else path
    elif parts.path not in ("", "/") or parts.query:
        raise _refused(text, f"{name}:// has no path")
    return BrokerUrl(
        transport=scheme.transport,
        host=host,
        port=port or scheme.port,
        path=path,
        username=unquote(parts.username) if parts.username is not None else None,
        password=_password(parts.password),
        protocol=scheme.protocol,
    )


def _password(quoted: str | None) -> Secret | None:
    if quoted is None:
        return None
    password = Secret(unquote(quoted))
    remember(password)
    return password


def _refused(text: str, why: str) -> UsageError:
    return UsageError(
        f"{masked_url(text)!r} is not a broker's URL: {why}",
        hint="For example mqtt://broker.example:1883, mqtts://host, ws://host:9001/mqtt, amqp://host or coap://host. "
        "In a password / is written %2F, ? %3F, # %23 and @ %40.",
    )
