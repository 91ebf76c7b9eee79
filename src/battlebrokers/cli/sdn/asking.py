"""Questions to a controller over REST, for the commands of `bb sdn`; its refusals become errors for people."""

from __future__ import annotations

import json
import urllib.error
import urllib.request
from typing import Annotated, Any

import typer

from battlebrokers.errors import ContenderError, EnvironmentNotReady, InputError, UsageError

Url = Annotated[str, typer.Option("--url", envvar="BB_SDN", help="Where the controller's REST is.")]
URL = "http://127.0.0.1:8080"


def asked(url: str, method: str, path: str, body: dict[str, Any] | None = None) -> Any:
    """What the controller answers; raises what to tell people otherwise."""
    data = json.dumps(body).encode() if body is not None else None
    if not url.startswith(("http://", "https://")):
        raise UsageError(f"'{url}' is no URL of a controller", hint="for example http://127.0.0.1:8080")
    request = urllib.request.Request(  # noqa: S310 (http or https, see above)
        url.rstrip("/") + path, data, {"Content-Type": "application/json"}, method=method
    )
    try:
        with urllib.request.urlopen(request, timeout=30) as answer:  # noqa: S310
            told = answer.read()
    except urllib.error.HTTPError as fault:
        raise _refusal(fault) from fault
    except OSError as fault:
        reason = getattr(fault, "reason", fault)
        raise EnvironmentNotReady(f"no controller at {url}: {reason}", hint="start one: bb sdn controller") from fault
    return json.loads(told) if told else None


def _refusal(fault: urllib.error.HTTPError) -> Exception:
    try:
        told = json.loads(fault.read())
    except ValueError:
        return ContenderError(f"the controller answered {fault.code}")
    if "message" in told:
        return InputError(str(told["message"]), hint=str(told.get("hint", "")))
    mistakes = [f"{'.'.join(map(str, one['loc'][1:]))}: {one['msg']}" for one in told.get("detail", [])]
    return InputError("; ".join(mistakes) or f"the controller answered {fault.code}")
