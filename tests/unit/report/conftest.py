"""Made-up runs for every test here, and templates that are compiled once for all of them."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache

import pytest

from battlebrokers.report import captures_page, html
from support.made_up_runs import make_run

__all__ = ["make_run"]


@pytest.fixture(scope="session", autouse=True)
def templates_are_compiled_once() -> Iterator[None]:
    """A command renders a page or two; these tests render dozens, and compiling is two thirds of the work."""
    compiled = cache(html.page_environment)
    with pytest.MonkeyPatch.context() as patch:
        for module in (html, captures_page):
            patch.setattr(module, "page_environment", compiled)
        yield
