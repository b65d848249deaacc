"""``regent pipeline``: its exit codes, its summary for programs and its sentences for people."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from typer.testing import Result

from cli.exit_codes import Exit
from tests.kit.command import items, regent
from tests.real.pipeline.logs import Log, change, sound, without, write

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.fixture(autouse=True)
def _one_spark(spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> None:
    """Lets the commands use the tests' Spark and leave it running."""
    monkeypatch.setattr("pipeline.session.start", lambda *_: spark)
    monkeypatch.setattr(spark, "stop", lambda: None)


def pipeline(*arguments: str | Path, code: Exit = Exit.DONE) -> Result:
    return regent("pipeline", *arguments, code=code)


def ingested(folder: Path, log: Log) -> Path:
    pipeline("ingest", *write(folder / "journals", [log]), "--into", folder / "bronze")
    return folder / "bronze"


def test_an_audit_of_a_clean_journal_succeeds(tmp_path: Path) -> None:
    bronze = ingested(tmp_path, sound("7"))
    printed = pipeline("audit", bronze, "--strict", "--racks")
    assert printed.stdout == ""
    assert f"{len(sound('7'))} rows, 0 violations, 0 gaps, 0 lines in quarantine" in printed.stderr
    [summary] = items("pipeline", "audit", bronze)
    assert summary == json.loads((bronze / "audit.json").read_text())
    assert summary["clean"]


@pytest.mark.usefixtures("compiling")
def test_an_audit_of_a_broken_journal_is_refused(tmp_path: Path) -> None:
    """With the code that Spark makes for users."""
    bronze = ingested(tmp_path, change((5, 9), isr0=[1, 3])(sound("c")))
    printed = pipeline("audit", bronze, code=Exit.REFUSED)
    assert printed.stdout.splitlines() == [
        "A10: orders-0 at epoch 5, row 9: leader 2 was not in the ISR [1, 3], and the election is not marked as unclean"
    ]
    assert "1 violation," in printed.stderr


def test_gaps_fail_a_strict_audit_alone(tmp_path: Path) -> None:
    bronze = ingested(tmp_path, without((6, 8))(sound("c")))
    pipeline("audit", bronze)
    pipeline("audit", bronze, "--strict", code=Exit.REFUSED)


def test_a_missing_journal_or_table_is_named(tmp_path: Path) -> None:
    printed = pipeline("ingest", tmp_path / "nowhere", "--into", tmp_path / "bronze", code=Exit.FAILED)
    assert f"there is no journal in {tmp_path / 'nowhere'}" in printed.stderr.replace("\n", "")
    printed = pipeline("audit", tmp_path, code=Exit.FAILED)
    assert "was not made by 'regent pipeline ingest'" in printed.stderr.replace("\n", " ")
