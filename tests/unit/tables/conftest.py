"""Made-up runs for every test here."""

from __future__ import annotations

from support.made_up_runs import make_run

__all__ = ["make_run"]
