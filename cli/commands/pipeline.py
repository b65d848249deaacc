"""Adds regent pipeline, which runs jobs on Spark over the journals of all daemons; no daemon needs to be alive."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from cli.commands import pipeline_plan, pipeline_report, pipeline_what_if
from cli.commands.spark import LOCAL, Conf, Master, Quiet, running
from cli.exit_codes import Exit, Failure
from cli.help import Panel
from cli.session import Session, command, group


def register(app: typer.Typer) -> None:
    """Adds the commands."""
    named = group(
        app, "pipeline", "Merge and judge the journals of all daemons, report from them, plan moves.", Panel.PIPELINE
    )
    command(named, examples=("regent pipeline ingest /journals/daemon-1 /journals/daemon-2 --into /journals/merged",))(
        ingest
    )
    command(
        named, examples=("regent pipeline audit /journals/merged", "regent pipeline audit --strict /journals/merged")
    )(audit)
    command(named, examples=pipeline_plan.EXAMPLES)(pipeline_plan.plan)
    command(named, examples=pipeline_what_if.EXAMPLES)(pipeline_what_if.what_if)
    command(named, examples=pipeline_report.EXAMPLES)(pipeline_report.report)


def ingest(
    session: Session,
    journals: Annotated[list[str], typer.Argument(help="Folders of journals, one of each daemon; or files.")],
    into: Annotated[str, typer.Option("--into", help="Folder for the Parquet; its content is replaced.")],
    master: Master = LOCAL,
    conf: Conf = None,
    quiet: Quiet = False,
) -> None:
    """Merge the journals of all daemons into Parquet, and find their gaps."""
    with running(master, conf, quiet=quiet) as spark:
        from pipeline import jobs
        from pipeline.executors import Unfit
        from pipeline.storage import NothingToRead
        from pipeline.writing import CannotMerge

        try:
            summary = jobs.ingest(spark, journals, into)
        except (NothingToRead, CannotMerge, Unfit) as error:
            raise Failure(Exit.FAILED, str(error)) from None
    _print(session, "Ingest", summary)
    gaps = sum(summary["gaps"].values())
    session.output.message(
        f"{summary['rows']} rows of {summary['terms']} terms in {into}, {gaps} gaps, "
        f"{summary['copies']} copies, {summary['quarantined']} lines in quarantine",
        style="yellow" if summary["quarantined"] else "green",
    )


def audit(
    session: Session,
    folder: Annotated[str, typer.Argument(help="Folder that 'regent pipeline ingest' made.")],
    racks: Annotated[
        bool, typer.Option("--racks", help="Judge whether replicas are spread over the racks, too.")
    ] = False,
    strict: Annotated[
        bool, typer.Option("--strict", help="Gaps and lines in quarantine count as broken, too.")
    ] = False,
    master: Master = LOCAL,
    conf: Conf = None,
    quiet: Quiet = False,
) -> None:
    """Judge the merged journals: exit code 3 if an invariant is broken."""
    with running(master, conf, quiet=quiet) as spark:
        from pipeline import jobs
        from pipeline.executors import Unfit
        from pipeline.storage import NothingToRead
        from pipeline.writing import CannotMerge

        try:
            summary = jobs.audit(spark, folder, racks=racks, strict=strict)
        except NothingToRead as error:
            raise Failure(Exit.FAILED, str(error), "run 'regent pipeline ingest' first") from None
        except (CannotMerge, Unfit) as error:
            raise Failure(Exit.FAILED, str(error)) from None
    _print(session, "Audit", summary)
    gaps = sum(summary["gaps"].values())
    verdict = f"{summary['rows']} rows, {summary['violations']} violations, {gaps} gaps, {summary['quarantined']} lines"
    session.output.message(f"{verdict} in quarantine", style="green" if summary["clean"] else "red")
    if not summary["clean"]:
        raise typer.Exit(Exit.REFUSED)


def _print(session: Session, kind: str, summary: dict[str, Any]) -> None:
    """Prints the summary for programs; for people the first violations, a line each."""
    if session.output.for_programs:
        session.output.document(kind, [summary])
    else:
        for line in summary.get("first", []):
            session.output.text(line)
