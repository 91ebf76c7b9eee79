from __future__ import annotations

from battlebrokers.tables import ALL_TABLES
from battlebrokers.tables.reference import tables_reference


def test_the_reference_names_every_table_and_column_with_its_sentence() -> None:
    page = tables_reference()
    for table in ALL_TABLES:
        section = page.split(f"### {table.name}\n")[1].split("\n#")[0]
        assert table.about in section
        for column in table.columns:
            assert any(f"`{column.name}`" in line and column.about in line for line in section.splitlines())


def test_each_layer_has_one_section() -> None:
    headings = [line for line in tables_reference().splitlines() if line.startswith("## ")]
    assert len(headings) == len(set(headings)) == len({table.layer for table in ALL_TABLES})
