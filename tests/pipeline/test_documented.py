"""The commands of docs/how-to/read-the-journal.md are typed as they stand there, on journals of two daemons."""

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

PAGE = Path(__file__).parents[2] / "docs" / "how-to" / "read-the-journal.md"


def commands() -> list[str]:
    """Lines ``regent pipeline ...`` of the page, without the ``regent``."""
    return re.findall(r"(?m)^regent (pipeline .*)$", PAGE.read_text(encoding="utf-8"))


def test_the_commands_do_what_they_are_told_for(
    spark: SparkSession, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr("pipeline.session.start", lambda *_: spark)
    monkeypatch.setattr(spark, "stop", lambda: None)
    write(tmp_path, [sound("c")])
    documented = commands()
    assert [command.split()[1] for command in documented] == ["ingest", "audit"]
    for command in documented:
        result = CliRunner().invoke(app, shlex.split(command.replace("/journals", str(tmp_path))), prog_name="regent")
        assert result.exit_code == Exit.DONE, result.output
    assert (tmp_path / "merged" / "audit.json").exists()
