"""Questions to a controller over REST, for the commands of `bb sdn`; its refusals become errors for people."""

from __future__ import annotations

import http.client
import json
import urllib.error
import urllib.parse
import urllib.request
from dataclasses import dataclass
from ipaddress import IPv4Address
from pathlib import Path
from typing import Annotated, Any

import typer

from battlebrokers.errors import BattleError, ContenderError, EnvironmentNotReady, InputError, UsageError
from battlebrokers.sdn.token import given_token

Url = Annotated[str, typer.Option("--url", envvar="BB_SDN", help="Where the controller's REST is.")]
URL = "http://127.0.0.1:8080"


def resource_path(resource: str) -> str:
    """Where a resource is told of, by the address people typed."""
    try:
        address = IPv4Address(resource.strip())
    except ValueError:
        raise InputError(
            f"'{resource}' is not the address of a resource", hint="such as 1.1.1.1: bb sdn resources lists them"
        ) from None
    return f"/api/v1/resources/{address}"


class TokenRefusedError(InputError):
    """A controller that wants a token did not get the right one."""


@dataclass(frozen=True, slots=True)
class Rest:
    """Where a controller's REST is, and the token for it (None: none)."""

    url: str
    token: str | None = None


def rest_at(url: str, token_file: Path | None) -> Rest:
    """By what people gave: an URL, and perhaps a file with the token, or the environment."""
    return Rest(url, given_token(token_file))


def asked(rest: Rest, method: str, path: str, body: dict[str, Any] | None = None) -> Any:
    """What the controller answers; raises what to tell people otherwise."""
    url = rest.url
    data = json.dumps(body).encode() if body is not None else None
    if not _is_url(url):
        raise UsageError(f"'{url}' is no URL of a controller", hint=f"for example {URL}")
    # What people type for a resource may hold anything.
    request = urllib.request.Request(  # noqa: S310 (http or https, see above)
        url.rstrip("/") + urllib.parse.quote(path, safe="/:?=&%"),
        data,
        {"Content-Type": "application/json"},
        method=method,
    )
    if rest.token is not None:
        # Not sent on to where an answer redirects to.
        request.add_unredirected_header("Authorization", f"Bearer {rest.token}")
    try:
        with urllib.request.urlopen(request, timeout=30) as answer:  # noqa: S310
            told = answer.read()
    except urllib.error.HTTPError as fault:
        raise _refusal(fault) from fault
    except OSError as fault:
        reason = getattr(fault, "reason", fault)
        raise EnvironmentNotReady(f"no controller at {url}: {reason}", hint="start one: bb sdn controller") from fault
    except http.client.HTTPException as fault:
        raise _no_controller(url) from fault
    try:
        return json.loads(told) if told else None
    except ValueError as fault:
        raise _no_controller(url) from fault


def _is_url(url: str) -> bool:
    try:
        parts = urllib.parse.urlsplit(url)
        return parts.scheme in ("http", "https") and bool(parts.hostname) and (parts.port or 1) > 0
    except ValueError:
        return False


def _no_controller(url: str) -> ContenderError:
    return ContenderError(f"what answers at {url} is no controller", hint="give its URL with --url or BB_SDN")


def _refusal(fault: urllib.error.HTTPError) -> Exception:
    try:
        told = json.loads(fault.read())
    except ValueError:
        told = None
    if not isinstance(told, dict):
        return ContenderError(f"the controller answered {fault.code}", hint="is it a controller? see --url")
    if "message" in told:
        kinds: dict[int, type[BattleError]] = {
            http.HTTPStatus.SERVICE_UNAVAILABLE: EnvironmentNotReady,
            http.HTTPStatus.UNAUTHORIZED: TokenRefusedError,
        }
        kind = kinds.get(fault.code, InputError)
        return kind(str(told["message"]), hint=str(told.get("hint", "")))
    detail = told.get("detail")
    if not isinstance(detail, list):
        return ContenderError(f"the controller answered {fault.code}: {detail}", hint="is it a controller? see --url")
    return InputError("; ".join(f"{'.'.join(map(str, one['loc'][1:]))}: {one['msg']}" for one in detail))
