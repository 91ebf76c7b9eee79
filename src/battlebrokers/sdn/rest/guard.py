"""ASGI middleware before every route: refuses by `admission`, and reads bodies within bounds of size and time.

Put around the application; routes get the whole body at once, or never hear of the request.
"""

from __future__ import annotations

import asyncio
import re
from collections import defaultdict
from http import HTTPStatus
from typing import Final

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from battlebrokers.sdn.rest.admission import LARGEST_BODY_BYTES, Admission, Denial, not_json, too_large
from battlebrokers.sdn.rest.refusals import refusal

BODY_WITHIN_S: Final = 20.0
_POLICY_VIOLATION: Final = 1008
_ADDED: Final = (
    (b"x-content-type-options", b"nosniff"), (b"x-frame-options", b"DENY"), (b"referrer-policy", b"no-referrer"),
    (b"content-security-policy", b"frame-ancestors 'none'"),
)  # fmt: skip
"""Pages are in nobody's frame, and their address with what follows it goes nowhere."""


class _GoneError(Exception):
    """The client hung up while it sent its body."""


class Guard:
    """Lets through what may pass."""

    def __init__(self, app: ASGIApp, admission: Admission, body_within_s: float = BODY_WITHIN_S) -> None:
        self._app = app
        self._admission = admission
        self._body_within_s = body_within_s

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """One request, or one WebSocket that wants to be opened."""
        if scope["type"] not in ("http", "websocket"):
            return await self._app(scope, receive, send)
        headers = _headers(scope)
        scheme = {"ws": "http", "wss": "https"}.get(scope["scheme"], str(scope["scheme"]))
        denial = self._admission.denied(scheme, scope.get("method", "GET"), scope["path"], headers)
        if scope["type"] == "websocket":
            if denial is None:
                return await self._app(scope, receive, send)
            return await send({"type": "websocket.close", "code": _POLICY_VIOLATION, "reason": denial.message})
        body = b""
        if denial is None and _declared_bytes(headers) > LARGEST_BODY_BYTES:
            denial = too_large()
        if denial is None:
            try:
                taken = await asyncio.wait_for(_body(receive), self._body_within_s)
            except TimeoutError:
                taken = Denial(408, f"the body did not come within {self._body_within_s:g} s", "send it at once")
            except _GoneError:
                return None
            if isinstance(taken, Denial):
                denial = taken
            else:
                body = taken
                denial = not_json(headers, has_body=bool(body))
        if denial is not None:
            return await _deny(denial, scope, receive, send)
        await self._app(scope, _again(body, receive), _with_headers(send))
        return None


async def _body(receive: Receive) -> bytes | Denial:
    """The whole body, or why not; nothing is asked for beyond the limit."""
    body = bytearray()
    while True:
        message = await receive()
        if message["type"] == "http.disconnect":
            raise _GoneError
        body += message.get("body", b"")
        if len(body) > LARGEST_BODY_BYTES:
            return too_large()
        if not message.get("more_body", False):
            return bytes(body)


def _again(body: bytes, receive: Receive) -> Receive:
    given = False

    async def taken() -> Message:
        nonlocal given
        if given:
            return await receive()
        given = True
        return {"type": "http.request", "body": body, "more_body": False}

    return taken


def _with_headers(send: Send) -> Send:
    async def adding(message: Message) -> None:
        if message["type"] == "http.response.start":
            message = {**message, "headers": [*message.get("headers", ()), *_ADDED]}
        await send(message)

    return adding


async def _deny(denial: Denial, scope: Scope, receive: Receive, send: Send) -> None:
    answer = refusal(denial.status, denial.message, denial.hint)
    # What is left of a body would have to be read before the connection could be used again.
    answer.headers["Connection"] = "close"
    if denial.status == HTTPStatus.UNAUTHORIZED:
        answer.headers["WWW-Authenticate"] = 'Bearer realm="bb sdn"'
    await answer(scope, receive, _with_headers(send))


def _headers(scope: Scope) -> dict[str, list[str]]:
    found: defaultdict[str, list[str]] = defaultdict(list)
    for name, value in scope["headers"]:
        found[name.decode("latin-1").lower()].append(value.decode("latin-1"))
    return dict(found)


def _declared_bytes(headers: dict[str, list[str]]) -> int:
    """By Content-Length, which the server has checked; 0 when there is none."""
    said = headers.get("content-length", ["0"])[0]
    return int(said) if re.fullmatch("[0-9]{1,20}", said) else 0
