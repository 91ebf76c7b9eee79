"""Requests over HTTP beside another protocol: how links subscribe where nobody answers on their own.

Used by links without connections. Slow to import: only links that need it do. It measures nothing.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import aiohttp
import yarl

from battlebrokers.errors import LinkError
from battlebrokers.protocols.base import Failure
from battlebrokers.protocols.hearing import shown
from battlebrokers.protocols.phrase import MISSING, fits, read_json
from battlebrokers.protocols.script import Known
from battlebrokers.protocols.wrapping import Request, kept


class Asking:
    """A connection to an HTTP endpoint, for as long as there is something to ask."""

    def __init__(self, base: str, session: aiohttp.ClientSession) -> None:
        self._base = base
        self._session = session

    async def ask(self, request: Request, number: str) -> Known:
        """What an answer gives to remember; LinkError with its status when it is a refusal, or when none came."""
        say = request.say
        target, body, headers = request.render({"id": number})
        sent = {name: value.decode("latin-1") for name, value in headers}
        if say.json is not None and not any(name.lower() == "content-type" for name in sent):
            sent["Content-Type"] = "application/json"
        what = f"{say.verb.upper()} {target.decode('latin-1')}"
        try:
            url = yarl.URL(self._base + target.decode("latin-1"), encoded=True)
            async with self._session.request(
                say.verb, url, headers=sent, data=body or None, allow_redirects=False
            ) as response:
                status, answer = response.status, await response.read()
                heard = {name.lower(): value for name, value in response.headers.items()}
        except TimeoutError as error:
            raise LinkError(f"timeout: no answer to {what}", code=Failure.TIMEOUT) from error
        except (aiohttp.ClientError, OSError, ValueError) as error:
            kind = Failure.TLS if isinstance(error, aiohttp.ClientSSLError) else Failure.CLOSED
            raise LinkError(f"no proper answer to {what}: {error}", code=kind) from error
        if status not in say.statuses if say.statuses else not 200 <= status < 300:
            raise LinkError(f"it said no to {what}: {status} {shown(answer)}", code=status)
        document = read_json(answer) if say.keep or say.success else MISSING
        if say.success and not fits(document, say.success):
            raise LinkError(f"it said no to {what}: {shown(answer)}", code=Failure.UNEXPECTED)
        found = kept(say, document, heard, status)
        if isinstance(found, str):
            raise LinkError(f"its answer to {what} has no {say.keep[found]} (`keep: {found}`)", code=Failure.UNEXPECTED)
        return found


@asynccontextmanager
async def asking(base: str, within_s: float) -> AsyncIterator[Asking]:
    """Somebody to ask."""
    timeout = aiohttp.ClientTimeout(total=within_s)
    async with aiohttp.ClientSession(timeout=timeout, cookie_jar=aiohttp.DummyCookieJar()) as session:
        yield Asking(base, session)
