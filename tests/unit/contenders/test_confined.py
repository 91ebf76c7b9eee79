from __future__ import annotations

import os
from pathlib import Path

import pytest

from battlebrokers.contenders.confined import end_of_file, files_inside, remove_inside, write_inside


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    inside = tmp_path / "run"
    inside.mkdir()
    return inside


@pytest.fixture
def precious(tmp_path: Path) -> Path:
    """A folder beside it, with a file nobody may touch."""
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "precious.log").write_text("precious")
    return outside / "precious.log"


@pytest.mark.parametrize("pattern", ["../outside/*.log", "links/*.log", "*.log", "{outside}/*.log", "**x", ""])
def test_files_outside_are_never_found(folder: Path, precious: Path, pattern: str) -> None:
    (folder / "links").symlink_to(precious.parent)
    (folder / "link.log").symlink_to(precious)
    os.mkfifo(folder / "pipe.log")
    assert files_inside(folder, [pattern.format(outside=precious.parent)]) == []


def test_files_inside_are_found_once_also_through_links(folder: Path) -> None:
    (folder / "logs").mkdir()
    (folder / "logs" / "a.log").write_text("a")
    (folder / "now.log").symlink_to(folder / "logs" / "a.log")
    assert files_inside(folder, ["logs/*.log", "**/*.log"]) == [folder / "logs" / "a.log", folder / "now.log"]
    assert end_of_file(folder, folder / "now.log", 100) == b"a"


def test_a_link_is_removed_and_what_it_points_to_stays(folder: Path, precious: Path) -> None:
    (folder / "link.log").symlink_to(precious)
    (folder / "links").symlink_to(precious.parent)
    remove_inside(folder, folder / "link.log")
    remove_inside(folder, folder / "links" / "precious.log")
    remove_inside(folder, folder / ".." / "outside" / "precious.log")
    remove_inside(folder, folder / "none.log")
    assert not (folder / "link.log").is_symlink()
    assert precious.read_text() == "precious"


def test_writing_replaces_a_link_and_enters_no_linked_folder(folder: Path, precious: Path) -> None:
    (folder / "server.conf").symlink_to(precious)
    (folder / "conf").symlink_to(precious.parent)
    write_inside(folder, "server.conf", "new")
    write_inside(folder, "a/b/server.conf", "deep")
    for name in ("conf/precious.log", "../outside/precious.log"):
        with pytest.raises(OSError, match=r"."):
            write_inside(folder, name, "lost")
    assert (folder / "server.conf").read_text() == "new"
    assert not (folder / "server.conf").is_symlink()
    assert (folder / "a" / "b" / "server.conf").read_text() == "deep"
    assert precious.read_text() == "precious"
    assert sorted(path.name for path in folder.iterdir()) == ["a", "conf", "server.conf"]


def test_only_the_end_of_a_regular_file_is_read(folder: Path, precious: Path) -> None:
    (folder / "long.log").write_text("0123456789")
    assert end_of_file(folder, folder / "long.log", 3) == b"789"
    (folder / "link.log").symlink_to(precious)
    os.mkfifo(folder / "pipe.log")
    for name in ("link.log", "pipe.log", "none.log"):
        with pytest.raises((OSError, ValueError)):
            end_of_file(folder, folder / name, 3)
