"""Which requests may pass: Host, origin, token and content type, by their headers alone. Pure; used by `guard`.

A page of another site can make a browser send requests to a loopback address, under a name of its own (DNS
rebinding) or across origins; neither reaches a route.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from ipaddress import ip_address
from typing import Final

from battlebrokers.sdn.token import is_bearer

LARGEST_BODY_BYTES: Final = 64 << 10
OPEN_PATHS: Final = frozenset({"/", "/docs"})
"""Pages without data; they ask for the token themselves."""
_HOST: Final = re.compile(r"(?P<name>\[[0-9a-fA-F:.]+\]|[A-Za-z0-9._-]+)(?::[0-9]{1,5})?")
_JSON: Final = re.compile(r"application/(?:[a-z0-9.!#$&^_-]+\+)?json", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Denial:
    """Why a request does not pass."""

    status: int
    message: str
    hint: str


@dataclass(frozen=True, slots=True)
class Admission:
    """What a service lets in: names it answers to, and the token it wants (None: none)."""

    names: frozenset[str] = frozenset()
    """Besides localhost and loopback addresses; small letters."""
    any_address: bool = False
    """Any IP address as Host: names can be rebound, addresses cannot."""
    token: str | None = None

    def denied(self, scheme: str, method: str, path: str, headers: Mapping[str, list[str]]) -> Denial | None:
        """Why not, or None; `headers` are by small letters, in the order they came."""
        return self._host(headers) or _origin(scheme, method, path, headers) or self._token(path, headers)

    def _host(self, headers: Mapping[str, list[str]]) -> Denial | None:
        hosts = headers.get("host", [])
        if len(hosts) != 1 or (name := host_name(hosts[0])) is None:
            return Denial(400, "the request has no valid Host header", "send one, such as Host: 127.0.0.1:8080")
        if self._is_ours(name):
            return None
        return Denial(
            421, f"this service is not called '{name}'", "use its address, or start it with --allow-host and that name"
        )

    def _is_ours(self, name: str) -> bool:
        if name == "localhost" or name in self.names:
            return True
        try:
            address = ip_address(name)
        except ValueError:
            return False
        return self.any_address or address.is_loopback

    def _token(self, path: str, headers: Mapping[str, list[str]]) -> Denial | None:
        if self.token is None or path in OPEN_PATHS:
            return None
        sent = headers.get("authorization", [])
        if len(sent) == 1 and is_bearer(sent[0], self.token):
            return None
        wrong = "the token is wrong" if sent else "this service asks for a token"
        return Denial(
            401, wrong, "send Authorization: Bearer TOKEN; bb sdn takes it from BB_SDN_TOKEN or --token-file FILE"
        )


def host_name(header: str) -> str | None:
    """The name or address of a Host header, in small letters; None when it is not one."""
    found = _HOST.fullmatch(header.strip())
    if found is None:
        return None
    return found["name"].strip("[]").lower().removesuffix(".") or None


def not_json(headers: Mapping[str, list[str]], *, has_body: bool) -> Denial | None:
    """Why a body cannot be taken; None for JSON, and where there is no body and none is declared."""
    kinds = headers.get("content-type", [])
    if not kinds and not has_body:
        return None
    if len(kinds) == 1 and _JSON.fullmatch(kinds[0].partition(";")[0].strip()):
        return None
    sent = f"the body is declared as {kinds[0].partition(';')[0].strip()[:80]}" if kinds else "the body has no type"
    return Denial(415, f"{sent}, not as JSON", "say that it is JSON: curl -H 'Content-Type: application/json' -d …")


def too_large() -> Denial:
    """For a body beyond the limit."""
    return Denial(413, f"the body has more than {LARGEST_BODY_BYTES} bytes", "nothing asked for here needs as many")


def _origin(scheme: str, method: str, path: str, headers: Mapping[str, list[str]]) -> Denial | None:
    own = _normal(f"{scheme}://{headers['host'][0].strip()}")
    if any(_normal(origin.strip()) != own for origin in headers.get("origin", [])):
        return Denial(403, "the request comes from a page of another origin", "open the page of this service itself")
    sites = {site.strip().lower() for site in headers.get("sec-fetch-site", [])}
    if sites <= {"same-origin", "none"} or _is_visit(method, path, headers):
        return None
    return Denial(403, "the request comes from a page of another site", "open the page of this service itself")


def _is_visit(method: str, path: str, headers: Mapping[str, list[str]]) -> bool:
    """Whether somebody follows a link to one of the pages, which then is a page of its own and in no frame."""
    return (
        method == "GET"
        and path in OPEN_PATHS
        and headers.get("sec-fetch-mode") == ["navigate"]
        and headers.get("sec-fetch-dest") == ["document"]
    )


def _normal(origin: str) -> str:
    scheme, _, place = origin.lower().partition("://")
    default = {"http": ":80", "https": ":443"}.get(scheme, "")
    return f"{scheme}://{place.removesuffix(default) if default else place}"
