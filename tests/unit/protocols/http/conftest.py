from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest

from support.web import Web


@pytest.fixture
async def web() -> AsyncIterator[Web]:
    async with Web().serving() as serving:
        yield serving


@pytest.fixture
async def quiet_loop() -> AsyncIterator[None]:
    """Nothing may be raised into the event loop."""
    raised: list[object] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: raised.append(context))
    yield
    assert raised == []
