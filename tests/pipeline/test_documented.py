"""The commands of docs/how-to/read-the-journal.md, run as they stand there on journals of two daemons."""

from __future__ import annotations

import re
import shlex
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.core.cli_kit import regent
from tests.pipeline.logs import sound, write

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

PAGE = Path(__file__).parents[2] / "docs" / "how-to" / "read-the-journal.md"


def commands() -> list[str]:
    """Returns the lines ``regent pipeline ...`` of the page, without the ``regent``."""
    return re.findall(r"(?m)^regent (pipeline .*)$", PAGE.read_text(encoding="utf-8"))


def test_the_documented_commands_succeed(spark: SparkSession, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr("pipeline.session.start", lambda *_: spark)
    monkeypatch.setattr(spark, "stop", lambda: None)
    write(tmp_path, [sound("c")])
    documented = commands()
    assert [command.split()[1] for command in documented] == ["ingest", "audit"]
    for command in documented:
        regent(*shlex.split(command.replace("/journals", str(tmp_path))))
    assert (tmp_path / "merged" / "audit.json").exists()
