"""How many examples a property is tried with: all of them, or the share of them a fast run has time for."""

from __future__ import annotations

from typing import Any

from hypothesis import settings

# What hypothesis tries when a test asks for nothing; a profile that tries fewer lowers every test's count alike.
USUAL = 100


def examples(count: int, **options: Any) -> settings:
    """A decorator: `count` examples, or in a profile that tries fewer, the same share of them."""
    share = settings().max_examples / USUAL
    return settings(max_examples=max(1, round(count * share)), deadline=None, **options)
