"""The commands of docs/how-to/what-a-restart-cost.md, run as they stand there on journals of two daemons."""

from __future__ import annotations

import re
import shlex
import shutil
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec
import pytest

from pipeline.report.result import Result
from state_machines.planning.plan import Move, Plan, Summary
from state_machines.planning.plan_file import encode_plan
from tests.kit.cli_kit import regent
from tests.real.pipeline.logs import write
from tests.real.pipeline.report.kit import Term
from tests.real.pipeline.report.test_figures import stopped
from tests.real.pipeline.report.test_files import snapshot

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

DOCS = Path(__file__).parents[4] / "docs"
PAGE = DOCS / "how-to" / "what-a-restart-cost.md"


def test_the_documented_commands_succeed(spark: SparkSession, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr("pipeline.session.start", lambda *_: spark)
    monkeypatch.setattr(spark, "stop", lambda: None)
    now_s = datetime.now(UTC).timestamp()
    second = Term(2, 2, now_s - 100).begin(60, 2, 3).add(90, "CTL_RESIGNED")
    first = [line | {"ts_us": line["mono_us"] + int((now_s - 9 * 86_400) * 1e6)} for line in stopped().lines]
    write(tmp_path, [first + second.lines])
    (tmp_path / "snapshots").mkdir()
    snapshot(tmp_path / "snapshots", "1.jsonl", int(now_s * 1e6), orders=2)
    (tmp_path / "loads.csv").write_text("topic,partition,size_bytes\norders,0,1000\n")
    move = Move("orders", 0, (1, 2, 3), (4, 2, 3), 1_000)
    (tmp_path / "plan.json").write_bytes(encode_plan(Plan("c", "balance", (move,), (), Summary(0, 0, (), 0, 0))))
    commands = re.findall(r"(?m)^regent (pipeline .*)$", PAGE.read_text(encoding="utf-8"))
    assert [command.split()[1] for command in commands] == ["ingest", *["report"] * 5]
    for command in commands:
        if "before-the-upgrade" in command:
            shutil.copytree(tmp_path / "merged", tmp_path / "merged-before-the-upgrade")
        regent(*shlex.split(command.replace("/journals", str(tmp_path))))
        if "--against-plan" in command:
            found = msgspec.json.decode((tmp_path / "merged" / "report" / "report.json").read_bytes(), type=Result)
            assert found.predicted is not None
            assert (found.predicted.not_begun, found.predicted.predicted_bytes) == (1, 1_000)
            assert found.now is not None
    assert (tmp_path / "merged" / "report" / "report.html").exists()


def test_the_reference_has_every_field_of_the_result() -> None:
    text = (DOCS / "reference" / "journal.md").read_text(encoding="utf-8").partition("## The report")[2]
    for name in Result.__struct_encode_fields__:
        assert f"`{name}`" in text, name
