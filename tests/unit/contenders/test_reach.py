from __future__ import annotations

import sys
from pathlib import Path

from battlebrokers.contenders.configuration import Configuration
from battlebrokers.contenders.reach import paths_named, paths_needed
from battlebrokers.contenders.reader import SPECS, find_contender


def named(*command: str, **files: str) -> list[str]:
    return paths_named(Configuration(files=files, command=command, env={}, endpoints={}, sha256=""))


def test_what_its_words_and_files_name_is_reached_if_it_is_there(tmp_path: Path) -> None:
    key, data = tmp_path / "key.pem", tmp_path / "data"
    key.write_text("")
    data.mkdir()
    found = named(
        "/bin/x", f"-Dbase={data}", "plain", "\0", "/" + "x" * 5000, conf=f"keyfile = {key};\nca = {key}.none"
    )
    assert found == [str(data), str(key)]


def test_a_script_is_reached_with_what_it_is_interpreted_by_and_what_it_names(tmp_path: Path) -> None:
    server = tmp_path / "server.py"
    server.write_text("")
    script = tmp_path / "script"
    script.write_text(f"#!{sys.executable}\n# then {server}\n")
    found = named(str(script))
    assert found[:3] == [str(script), sys.executable, str(server)]
    assert {sys.prefix, sys.base_prefix} <= set(found)


def test_a_python_brings_its_environment_and_what_that_was_made_from(tmp_path: Path) -> None:
    base, environment = tmp_path / "python3", tmp_path / "env"
    for folder in (base / "bin", environment / "bin"):
        folder.mkdir(parents=True)
    (base / "bin" / "python").write_text("")
    (environment / "bin" / "python").symlink_to(base / "bin" / "python")
    (environment / "pyvenv.cfg").write_text(f"home = {base}/bin\nversion = 3\n")
    contender = find_contender("mosquitto")
    python = str(environment / "bin" / "python")
    assert paths_needed(contender, {"python": python, "root": "root"}) == [
        python, str(SPECS), str(environment), str(base)
    ]  # fmt: skip


def test_what_we_installed_for_it_is_needed(tmp_path: Path) -> None:
    assert str(SPECS) in paths_needed(find_contender("aedes"), {})
