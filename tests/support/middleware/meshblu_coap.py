"""The CoAP side of the contract server for Meshblu: uuid and token travel in options 98 and 99.

A contract server for tests, not Meshblu. The codes of `/status` (2.00, which CoAP does not have) and `POST /devices`
(2.01) are as recorded; the others (2.05) are what its CoAP library says when nobody says anything else. Long
notifications go in blocks, as RFC 7959 wants; the product was never seen with one.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import json
from collections.abc import Awaitable, Callable, Hashable
from typing import Any

import aiocoap
from aiocoap import Code, Context, Message, resource
from aiocoap.blockwise import Block2Cache
from aiocoap.pipe import Pipe

from support.middleware.meshblu_devices import Device, Devices, FailedError

UUID_OPTION, TOKEN_OPTION = 98, 99
OK = Code(64)
FETCHED_WITHIN_S = 5.0
CODES = {400: Code.BAD_REQUEST, 401: Code.UNAUTHORIZED, 404: Code.NOT_FOUND, 500: Code.INTERNAL_SERVER_ERROR}


class CoapSide(resource.Resource):
    """All paths in one resource."""

    def __init__(self, devices: Devices) -> None:
        super().__init__()
        self.devices = devices
        self._told = Block2Cache()
        """The last notification of each observer, whose further blocks it asks for (RFC 7959, 2.6)."""
        self._fetched: dict[Hashable, asyncio.Event] = {}

    async def start(self, port: int) -> Callable[[], Awaitable[None]]:
        context = await Context.create_server_context(self, bind=("127.0.0.1", port), transports=["udp6"])
        return context.shutdown

    async def needs_blockwise_assembly(self, request: Message) -> bool:
        return "subscribe" not in request.opt.uri_path

    async def render_to_pipe(self, pipe: Pipe) -> None:
        request = pipe.request
        if request.opt.uri_path[:1] == ("subscribe",) and request.opt.observe == 0:
            try:
                await self._stream(pipe, request)
            except FailedError as failed:
                pipe.add_response(_answer(CODES[failed.code], {"error": failed.message}), is_last=True)
            return
        if request.opt.uri_path[:1] == ("subscribe",) and request.opt.block2 and request.opt.block2.block_number:
            part = await self._told.extract_or_insert(request, self._nothing)
            pipe.add_response(part, is_last=True)
            if not part.opt.block2.more and (waiting := self._fetched.get(self._observer(request))):
                waiting.set()
            return
        await super().render_to_pipe(pipe)

    async def render(self, request: Message) -> Message:
        try:
            return await self._act(request, request.opt.uri_path)
        except FailedError as failed:
            return _answer(CODES[failed.code], {"error": failed.message})

    async def _act(self, request: Message, path: tuple[str, ...]) -> Message:
        match request.code, path:
            case Code.GET, ("status",):
                return _answer(OK, {"meshblu": "online"})
            case Code.POST, ("devices",):
                device = self.devices.register(_document(request), "127.0.0.1")
                return _answer(Code.CREATED, device.told(with_token=True))
            case Code.GET, ("devices", identity):
                found = self.devices.seen_by(self._asker(request), identity)
                return _answer(Code.CONTENT, {"devices": [found.told()]})
            case Code.PUT, ("devices", identity):
                return _answer(
                    Code.CONTENT, self.devices.update(self._asker(request), identity, _document(request)).told()
                )
            case Code.DELETE, ("devices", identity):
                self.devices.unregister(self._asker(request), identity)
                return _answer(Code.CONTENT, {"uuid": identity})
            case Code.POST, ("messages",):
                asker, given = self._asker(request), _document(request)
                await self.devices.send(asker, given)
                return _answer(Code.CONTENT, {name: given.get(name) for name in ("devices", "payload")})
        return _answer(Code.NOT_FOUND, {"error": "not found"})

    async def _stream(self, pipe: Pipe, request: Message) -> None:
        asker = self._asker(request)
        target = request.opt.uri_path[1] if len(request.opt.uri_path) > 1 else asker.uuid
        self.devices.seen_by(asker, target)
        waiting: asyncio.Queue[dict[str, Any]] = asyncio.Queue()
        number = 0
        # Nothing is said before the first message, but for the empty acknowledgement of the request.
        with self.devices.listening(target, waiting.put, own=target == asker.uuid):
            while True:
                message = await waiting.get()
                number += 1
                answer = _answer(Code.CONTENT, message)
                answer.opt.observe = number
                # By its tag an observer knows blocks of this message from those of the next.
                answer.opt.etag = hashlib.sha256(answer.payload).digest()[:8]

                async def told(whole: Message = answer) -> Message:
                    return whole

                first = await self._told.extract_or_insert(request, told)
                pipe.add_response(first, is_last=False)
                if first.opt.block2 is not None:
                    # The next message would take the place of this one before it was fetched whole.
                    fetched = self._fetched[self._observer(request)] = asyncio.Event()
                    with contextlib.suppress(TimeoutError):
                        await asyncio.wait_for(fetched.wait(), FETCHED_WITHIN_S)

    @staticmethod
    def _observer(request: Message) -> Hashable:
        return request.remote.blockwise_key, request.opt.uri_path

    @staticmethod
    async def _nothing() -> Message:
        raise AssertionError("a further block is never made anew")

    def _asker(self, request: Message) -> Device:
        options = request.opt.option_list()
        given = {int(option.number): option.encode().decode() for option in options if option.number in (98, 99)}
        return self.devices.authenticated(given.get(UUID_OPTION, ""), given.get(TOKEN_OPTION, ""))


def _answer(code: aiocoap.Code, body: Any) -> Message:
    return Message(code=code, payload=json.dumps(body, separators=(",", ":")).encode(), content_format=50)


def _document(request: Message) -> dict[str, Any]:
    try:
        given = json.loads(request.payload)
    except ValueError:
        raise FailedError(400, "invalid JSON") from None
    if not isinstance(given, dict):
        raise FailedError(400, "invalid JSON")
    return given
