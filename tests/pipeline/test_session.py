"""Java is found, checked, and complained about with the exact fix; a session leaves nothing behind."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from battlebrokers.errors import EnvironmentNotReady, ExitCode
from battlebrokers.pipeline import jvm
from battlebrokers.pipeline.jvm import find_java, start_jvm


def _fake_java(folder: Path, script: str) -> None:
    path = folder / "bin" / "java"
    path.parent.mkdir(parents=True)
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o755)


def test_missing_java_is_explained(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(EnvironmentNotReady, match="no `java` on PATH") as caught:
        find_java()
    assert "openjdk-17" in caught.value.hint
    assert caught.value.exit_code == ExitCode.ENVIRONMENT


def test_an_empty_java_home_is_explained(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    with pytest.raises(EnvironmentNotReady, match="JAVA_HOME is"):
        find_java()


@pytest.mark.parametrize("version", ["11.0.22", "1.8.0_392"])
def test_old_java_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, version: str) -> None:
    _fake_java(tmp_path, f"""echo 'openjdk version "{version}" 2024-01-16' >&2""")
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    with pytest.raises(EnvironmentNotReady, match="needs Java 17") as caught:
        find_java()
    assert version in caught.value.message


@pytest.mark.parametrize("version", ["17.0.15", "21", "25-ea"])
def test_new_java_is_good(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, version: str) -> None:
    _fake_java(tmp_path, f"""echo 'openjdk version "{version}" 2025-04-15' >&2""")
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    assert find_java().path == str(tmp_path / "bin" / "java")


def test_a_java_that_does_not_start_spark_says_why(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    stripped = "Error occurred during boot layer: Module jdk.incubator.vector not found"
    _fake_java(
        tmp_path, f"""[ "$1" = -version ] && echo 'openjdk version "17"' >&2 && exit; echo '{stripped}' >&2; exit 1"""
    )
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    with pytest.raises(EnvironmentNotReady, match="did not start Spark") as caught:
        start_jvm(find_java(), scratch, [], {})
    assert "stripped" in caught.value.hint


def test_the_class_archive_belongs_to_one_java_and_one_spark(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.delenv("BB_CLASS_ARCHIVE", raising=False)
    home = jvm._spark_home()
    one, other = (jvm._archive_place(jvm.Java("java", version), home) for version in ("17.0.1", "17.0.2"))
    assert one is not None
    assert one != other
    assert one.parent == tmp_path / "battlebrokers"


def test_drafts_of_killed_processes_are_removed_and_others_stay(tmp_path: Path) -> None:
    ended = subprocess.Popen(["true"])
    ended.wait()
    abandoned, under_way = tmp_path / f"spark-a.{ended.pid}.tmp", tmp_path / f"spark-a.{os.getpid()}.tmp"
    finished = tmp_path / "spark-a.jsa"
    for path in (abandoned, under_way, finished):
        path.write_bytes(b"x")
    jvm._remove_abandoned_drafts(tmp_path)
    assert sorted(tmp_path.iterdir()) == sorted([under_way, finished])


def test_without_a_place_to_keep_it_there_is_no_class_archive(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    assert jvm._archive_place(jvm.Java("java", "17"), jvm._spark_home()) is None
