from __future__ import annotations

import subprocess
import sys
import tempfile
import textwrap
from collections.abc import Iterator
from pathlib import Path

import pytest

from battlebrokers.contenders import lifecycle
from battlebrokers.contenders.lifecycle import start_contender
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


def test_a_process_that_ends_at_once_leaves_no_folder_of_a_broker_that_works_elsewhere(tmp_path: Path) -> None:
    script = f"""
        import os
        from pathlib import Path
        from battlebrokers import leftovers
        from battlebrokers.contenders import place
        from battlebrokers.contenders.account import Account
        place.reaches = lambda account, folder: False
        place._open_to = lambda account: {str(tmp_path)!r}
        made = place.Place(Path({str(tmp_path)!r}) / "run", "127.0.0.1", ["mqtt"], [],
            account=Account("me", os.geteuid(), os.getegid()))
        assert made.folder.name.startswith("bb-")
        leftovers.remove_all(1.0)
        os._exit(0)
    """
    subprocess.run([sys.executable, "-c", textwrap.dedent(script)], check=True, timeout=60)
    assert [path.name for path in tmp_path.iterdir()] == ["run"]


def test_a_place_that_cannot_be_made_leaves_nothing_behind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "tmp").mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "tmp"))
    with pytest.raises(OSError):  # 192.0.2.0/24 is nobody's: no port can be held there
        Place(tmp_path / "a run", "192.0.2.1", ["mqtt"], [])
    assert list((tmp_path / "tmp").iterdir()) == []
    assert list((tmp_path / "a run").iterdir()) == []


def test_a_disk_that_is_full_before_the_broker_starts_leaves_nothing_behind(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made: list[Place] = []

    def full(_contender: object, _start: object, _configuration: object, place: Place) -> None:
        made.append(place)
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(lifecycle, "_as_run", full)
    with pytest.raises(OSError, match="No space left"):
        start_contender("amqtt", "stock", tmp_path / "run")
    assert not made[0].data.exists()
    assert made[0].ports._sockets == []
