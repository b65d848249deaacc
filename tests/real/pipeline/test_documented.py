"""Commands of the docs, run as they stand there on journals of two daemons."""

from __future__ import annotations

import re
import shlex
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from pipeline.__main__ import main
from pipeline.verbs import VERBS
from pipeline.verbs.options import parser
from tests.kit.command import regent
from tests.real.pipeline.logs import sound, write

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

HOW_TO = Path(__file__).parents[3] / "docs" / "how-to"
PAGE = HOW_TO / "read-the-journal.md"
VERB_FUNCTIONS = [verb for verb, _ in VERBS]


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


def test_the_documented_verbs_succeed_by_python(spark: SparkSession, tmp_path: Path) -> None:
    """On the session that runs; the master of the page would begin another one."""
    text = (HOW_TO / "run-the-pipeline.md").read_text(encoding="utf-8")
    documented = re.findall(r"(?m)^python -m pipeline (.*)$", text)
    write(tmp_path, [sound("c")])
    assert [command.split()[0] for command in documented] == ["ingest", "audit"]
    for command in documented:
        assert main(shlex.split(command.replace("/journals", str(tmp_path)))) == 0
    assert (tmp_path / "merged" / "audit.json").exists()


def test_every_documented_verb_and_option_exists() -> None:
    text = (HOW_TO / "run-the-pipeline.md").read_text(encoding="utf-8")
    submitted = re.findall(r"(?m)(?:__main__|run_pipeline)\.py ((?:ingest|audit|report|loads) .*)$", text)
    assert len(submitted) >= 4
    for command in submitted:
        parser(VERB_FUNCTIONS).parse_args(shlex.split(command))
