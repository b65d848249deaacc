"""`regent pipeline`: exit status as a gate, a summary for programs, sentences for people."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from typer.testing import CliRunner, Result

from cli.exit_codes import Exit
from cli.main import app
from tests.pipeline.logs import Log, change, sound, without, write

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.fixture(autouse=True)
def _one_spark(spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> None:
    """The commands take the tests' Spark and leave it running."""
    monkeypatch.setattr("pipeline.session.start", lambda *_: spark)
    monkeypatch.setattr(spark, "stop", lambda: None)


def regent(*arguments: str | Path, code: Exit = Exit.DONE) -> Result:
    result = CliRunner().invoke(app, ["pipeline", *map(str, arguments)], prog_name="regent")
    assert result.exit_code == code, result.output
    return result


def ingested(folder: Path, log: Log) -> Path:
    regent("ingest", *write(folder / "journals", [log]), "--into", folder / "bronze")
    return folder / "bronze"


def test_a_clean_journal(tmp_path: Path) -> None:
    bronze = ingested(tmp_path, sound("7"))
    said = regent("audit", bronze, "--strict", "--racks")
    assert said.stdout == ""
    assert f"{len(sound('7'))} rows, 0 violations, 0 gaps, 0 lines in quarantine" in said.stderr
    [summary] = json.loads(regent("audit", bronze, "-o", "json").stdout)["items"]
    assert summary == json.loads((bronze / "audit.json").read_text())
    assert summary["clean"]


def test_a_broken_one(tmp_path: Path) -> None:
    bronze = ingested(tmp_path, change((5, 9), isr0=[1, 3])(sound("c")))
    said = regent("audit", bronze, code=Exit.REFUSED)
    assert said.stdout.splitlines() == [
        "A10: orders-0 at epoch 5, row 9: leader 2 was not in the ISR [1, 3] and it is not marked as unclean"
    ]
    assert "1 violations" in said.stderr


def test_gaps_count_only_where_that_is_asked_for(tmp_path: Path) -> None:
    bronze = ingested(tmp_path, without((6, 8))(sound("c")))
    regent("audit", bronze)
    regent("audit", bronze, "--strict", code=Exit.REFUSED)


def test_nothing_to_read(tmp_path: Path) -> None:
    said = regent("ingest", tmp_path / "nowhere", "--into", tmp_path / "bronze", code=Exit.FAILED)
    assert f"there is no journal in {tmp_path / 'nowhere'}" in said.stderr.replace("\n", "")
    said = regent("audit", tmp_path, code=Exit.FAILED)
    assert "was not made by 'regent pipeline ingest'" in said.stderr.replace("\n", " ")
