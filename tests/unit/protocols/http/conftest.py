from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from support.web import Web


@pytest.fixture
async def web() -> AsyncIterator[Web]:
    async with Web().serving() as serving:
        yield serving
