"""Missing requirements of Spark: one sentence names each, before any file is read."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from cli.exit_codes import Exit
from pipeline.session import CannotStart, need_java, start
from tests.kit.command import regent


def java(folder: Path, version: str) -> str:
    """Makes a JAVA_HOME whose java only prints its version, on standard error as the real one does."""
    path = folder / "bin" / "java"
    path.parent.mkdir()
    path.write_text(f"#!/bin/sh\necho 'openjdk version \"{version}\" 2024-01-01' >&2\n")
    path.chmod(0o755)
    return str(folder)


@pytest.mark.parametrize("version", ["17.0.15", "21", "25.0.2"])
def test_a_recent_java_is_accepted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, version: str) -> None:
    monkeypatch.setenv("JAVA_HOME", java(tmp_path, version))
    need_java()


@pytest.mark.parametrize(("version", "found"), [("11.0.2", "is Java 11"), ("1.8.0_392", "is Java 1"), ("x", "version")])
def test_an_old_java_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, version: str, found: str) -> None:
    monkeypatch.setenv("JAVA_HOME", java(tmp_path, version))
    with pytest.raises(CannotStart, match=f"needs Java 17 or newer, but .*{found}"):
        need_java()


def test_a_missing_java_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(CannotStart, match="there is no java"):
        need_java()
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    with pytest.raises(CannotStart, match="does not start"):
        need_java()


@pytest.mark.parametrize(("module", "name"), [("pyspark.sql", "PySpark"), ("pyarrow", "PyArrow")])
def test_a_missing_library_is_refused(monkeypatch: pytest.MonkeyPatch, module: str, name: str) -> None:
    monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(CannotStart, match=rf"{name} is not installed: .*pip install '\.\[pipeline\]'"):
        start("local[1]")


@pytest.mark.parametrize("command", [["audit", "bronze"], ["ingest", "journal", "--into", "bronze"]])
def test_a_command_without_pyspark_prints_one_line(monkeypatch: pytest.MonkeyPatch, command: list[str]) -> None:
    monkeypatch.setitem(sys.modules, "pyspark.sql", None)
    result = regent("pipeline", *command, code=Exit.FAILED)
    assert result.stdout == ""
    assert result.stderr.splitlines() == [
        "PySpark is not installed: install regent with its extra, in its sources: .venv/bin/pip install '.[pipeline]'"
    ]


def test_a_setting_without_a_value_is_wrong_usage() -> None:
    result = regent("pipeline", "audit", "bronze", "--conf", "spark.x", code=Exit.USAGE)
    assert "--conf spark.x is no setting" in result.stderr
