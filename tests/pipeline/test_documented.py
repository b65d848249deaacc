"""The commands of the README and of docs/operations.md are typed as they stand there, on journals of two daemons."""

from __future__ import annotations

import re
import shlex
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from typer.testing import CliRunner

from cli.exit_codes import Exit
from cli.main import app
from tests.pipeline.logs import sound, write

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ROOT = Path(__file__).parents[2]


def commands(document: str) -> list[str]:
    """Lines ``regent pipeline ...`` of a document, without the ``regent``."""
    return re.findall(r"(?m)^regent (pipeline .*)$", (ROOT / document).read_text(encoding="utf-8"))


def test_the_commands_do_what_they_are_told_for(
    spark: SparkSession, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr("pipeline.session.start", lambda *_: spark)
    monkeypatch.setattr(spark, "stop", lambda: None)
    write(tmp_path, [sound("c")])
    told = commands("README.md")
    assert told == commands("docs/operations.md")
    assert [command.split()[1] for command in told] == ["ingest", "audit"]
    for command in told:
        result = CliRunner().invoke(app, shlex.split(command.replace("/journals", str(tmp_path))), prog_name="regent")
        assert result.exit_code == Exit.DONE, result.output
    assert (tmp_path / "merged" / "audit.json").exists()
