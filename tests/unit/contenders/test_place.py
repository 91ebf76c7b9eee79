from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from battlebrokers.contenders.place import Place
from battlebrokers.errors import ContenderError


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Place]:
    made = Place(tmp_path / "a run", "127.0.0.1", [], ["../*.log", "logs/*.log"])
    yield made
    made.close()


def test_what_a_container_is_given_lies_in_its_folder(place: Place, tmp_path: Path) -> None:
    values = place.values()
    assert place.own(f"{values['dir']}/hub.conf") == f"{values['dir']}/hub.conf"
    assert place.own(values["data"]) == values["data"]
    assert place.own(values["specs"]) == values["specs"]
    (place.folder / "hub.conf").symlink_to("/etc/passwd")
    for path in (f"{values['dir']}/hub.conf", f"{values['dir']}/../x", str(tmp_path)):
        with pytest.raises(ContenderError, match="leads out of the folder of the run"):
            place.own(path)


def test_logs_of_an_earlier_try_are_removed_and_others_stay(tmp_path: Path) -> None:
    """Whatever the globs: a contender that was not read from a file may have any."""
    folder = tmp_path / "run"
    (folder / "logs").mkdir(parents=True)
    (folder / "logs" / "old.log").write_text("old")
    (tmp_path / "precious.log").write_text("precious")
    (folder / "logs" / "link.log").symlink_to(tmp_path / "precious.log")
    made = Place(folder, "127.0.0.1", [], ["../*.log", str(tmp_path / "*.log"), "logs/*.log", "logs/../../*.log"])
    made.close()
    assert (tmp_path / "precious.log").read_text() == "precious"
    assert not (folder / "logs" / "old.log").exists()
