"""Hides pandas from this process: PySpark and pyarrow import it when they see it, and it takes a second.

Nothing of ours uses it. Called first thing by the analyst and by the parent of Spark's Python workers.
"""

from __future__ import annotations

import importlib.abc
import sys
from collections.abc import Sequence
from importlib.machinery import ModuleSpec
from types import ModuleType


class _WithoutPandas(importlib.abc.MetaPathFinder):
    """Refuses pandas, knows nothing else."""

    def find_spec(
        self,
        fullname: str,
        path: Sequence[str] | None,  # noqa: ARG002
        target: ModuleType | None = None,  # noqa: ARG002
    ) -> ModuleSpec | None:
        """As if it were not installed."""
        if fullname == "pandas":
            raise ModuleNotFoundError(fullname, name=fullname)
        return None


def hide_pandas() -> None:
    """From now on nobody here can import it."""
    sys.meta_path.insert(0, _WithoutPandas())
