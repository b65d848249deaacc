"""Tests leave the journals of the last run for the pipeline's tests, each in a folder of its own."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.kit import left_journals

FILE = "0000000002-000000000001.jsonl"


@pytest.fixture
def journal(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Makes a daemon's journal; copies go below ``tmp_path``."""
    monkeypatch.setattr(left_journals, "LEFT", tmp_path / "left")
    monkeypatch.setenv("PYTEST_XDIST_TESTRUNUID", "this-run")
    left_journals._emptied.cache_clear()
    folder = tmp_path / "events"
    folder.mkdir()
    (folder / FILE).write_text("{}\n")
    (folder / "notes").write_text("none of the journal's")
    yield folder
    left_journals._emptied.cache_clear()


def test_a_journal_is_left_under_its_tests_and_an_earlier_run_is_forgotten(
    journal: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYTEST_CURRENT_TEST", "tests/real/cluster/test_role.py::test_it (teardown)")
    (tmp_path / "left" / "cluster" / "run-before" / "test_old-c-1").mkdir(parents=True)
    left_journals.leave(journal, "c-1")
    left_journals._emptied.cache_clear()  # as in another process of the same run
    left_journals.leave(journal, "c-2")
    folders = [str(tmp_path / "left" / "cluster" / "this-run" / f"test_role-c-{number}") for number in (1, 2)]
    assert left_journals.left() == {"cluster": folders}
    assert [file.name for file in Path(folders[0]).iterdir()] == [FILE]


def test_nothing_is_left_of_no_journal_of_a_large_one_and_outside_of_tests(
    journal: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    left_journals.leave(tmp_path / "nowhere", "c-1")
    monkeypatch.setattr(left_journals, "BYTES_MAX", 1)
    left_journals.leave(journal, "c-2")
    monkeypatch.setattr(left_journals, "BYTES_MAX", 1_000)
    monkeypatch.delenv("PYTEST_CURRENT_TEST")
    left_journals.leave(journal, "c-3")
    assert left_journals.left() == {}
