"""The end of a demo with ``--report``: what the pipeline's commands print, or why there is no report."""

from __future__ import annotations

import io
from pathlib import Path

import pytest
from rich.console import Console

from cli.demo import run as module
from pipeline.session import CannotStart


async def told(monkeypatch: pytest.MonkeyPatch, folder: Path, failing: str = "") -> tuple[bool, str, list[str]]:
    """Ends a demo; returns the verdict, what was printed, and the commands."""
    ran: list[str] = []

    async def run(*arguments: str) -> tuple[bool, list[str], str]:
        ran.append(arguments[0])
        if "--snapshot" in arguments:
            ran.append(arguments[arguments.index("--snapshot") + 1])
        return arguments[0] != failing, ["a stop"] if arguments[0] == "report" else [], f"end of {arguments[0]}"

    monkeypatch.setattr(module, "_ran", run)
    console = Console(file=io.StringIO(), width=500)
    well = await module.audited(console, folder / "events", folder / "demo")
    assert isinstance(console.file, io.StringIO)
    return well, console.file.getvalue(), ran


@pytest.fixture
def _spark_is_there(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "need_java", lambda: None)
    monkeypatch.setattr(module, "find_spec", lambda _: object())


@pytest.mark.usefixtures("_spark_is_there")
async def test_it_ends_with_the_report(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    well, printed, ran = await told(monkeypatch, tmp_path)
    assert well
    assert ran == ["ingest", "audit", "report"]
    assert printed.splitlines()[-2:] == ["pipeline report: a stop", "pipeline report: end of report"]


@pytest.mark.usefixtures("_spark_is_there")
async def test_the_report_gets_the_snapshots_that_lie_beside_the_journal(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "snapshots").mkdir()
    (tmp_path / "snapshots" / "0000000001-000000000001.jsonl.gz").write_bytes(b"x")
    _, _, ran = await told(monkeypatch, tmp_path)
    assert ran == ["ingest", "audit", "report", str(tmp_path / "snapshots")]


@pytest.mark.usefixtures("_spark_is_there")
async def test_a_broken_journal_fails_the_demo(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    well, printed, ran = await told(monkeypatch, tmp_path, "audit")
    assert not well
    assert ran == ["ingest", "audit"]
    assert "pipeline audit: end of audit" in printed


async def test_where_spark_does_not_start_it_says_why(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def unfit() -> None:
        raise CannotStart("Spark needs Java 17 or newer")

    monkeypatch.setattr(module, "need_java", unfit)
    assert await told(monkeypatch, tmp_path) == (True, "No audit and no report: Spark needs Java 17 or newer\n", [])


@pytest.mark.usefixtures("_spark_is_there")
async def test_without_pyspark_it_names_the_extra(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(module, "find_spec", lambda _: None)
    well, printed, ran = await told(monkeypatch, tmp_path)
    assert (well, ran) == (True, [])
    assert "PySpark is not installed" in printed


@pytest.mark.usefixtures("_spark_is_there")
async def test_a_command_that_takes_too_long_is_ended_with_a_sentence(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(module, "STEP_S_MAX", 0.0)
    console = Console(file=io.StringIO(), width=500)
    assert not await module.audited(console, tmp_path / "events", tmp_path / "demo")
    assert isinstance(console.file, io.StringIO)
    assert "pipeline ingest: it did not end within 0 s" in console.file.getvalue()
