"""The table of what publishing costs, read from a battle's page."""

from __future__ import annotations

import re
from pathlib import Path


def cost_table(page: Path) -> list[dict[str, str]]:
    """Its rows, by the words of its heading."""
    [section] = re.findall(r'<section id="cost">.*?</section>', page.read_text(encoding="utf-8"), re.DOTALL)
    [table] = re.findall(r"<table>.*?</table>", section, re.DOTALL)
    heading, *rows = re.findall(r"<tr.*?</tr>", table, re.DOTALL)

    def texts(row: str) -> list[str]:
        cells = re.findall(r"<t[hd][ >].*?</t[hd]>|<t[hd]>.*?</t[hd]>", row, re.DOTALL)
        return [re.sub(r"<[^>]*>", "", cell).strip() for cell in cells]

    return [dict(zip(texts(heading), texts(row), strict=True)) for row in rows]
