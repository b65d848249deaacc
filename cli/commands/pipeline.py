"""regent pipeline: jobs on Spark over the journals of all daemons; no daemon needs to be alive."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Annotated, Any

import typer

from cli.exit_codes import Exit, Failure
from cli.session import Session, command, group

Master = Annotated[str, typer.Option("--master", help="Of Spark: local[2], spark://host:7077, yarn, k8s://...")]
Conf = Annotated[list[str] | None, typer.Option("--conf", help="A setting of Spark, NAME=VALUE; may be repeated.")]
LOCAL = "local[*]"


def register(app: typer.Typer) -> None:
    """Adds the commands."""
    named = group(app, "pipeline", "Jobs on Spark over the journals of all daemons.")
    for function in (ingest, audit):
        command(named)(function)


def ingest(
    session: Session,
    journals: Annotated[list[str], typer.Argument(help="Folders of journals, one of each daemon; or files.")],
    into: Annotated[str, typer.Option("--into", help="Folder for the Parquet; what is in it is replaced.")],
    master: Master = LOCAL,
    conf: Conf = None,
) -> None:
    """Merge the journals of all daemons into Parquet, and find what is missing in them."""
    with _spark(master, conf) as spark:
        from pipeline import jobs

        try:
            summary = jobs.ingest(spark, journals, into)
        except jobs.NothingToRead as error:
            raise Failure(Exit.FAILED, str(error)) from None
    _tell(session, "Ingest", summary)
    gaps = sum(summary["gaps"].values())
    session.output.say(
        f"{summary['rows']} rows of {summary['terms']} terms in {into}, {gaps} gaps, "
        f"{summary['quarantined']} lines in quarantine",
        style="yellow" if summary["quarantined"] else "green",
    )


def audit(
    session: Session,
    folder: Annotated[str, typer.Argument(help="Folder that 'regent pipeline ingest' made.")],
    racks: Annotated[
        bool, typer.Option("--racks", help="The cluster promises to spread replicas over racks: judge that, too.")
    ] = False,
    strict: Annotated[
        bool, typer.Option("--strict", help="Gaps and lines in quarantine count as broken, too.")
    ] = False,
    master: Master = LOCAL,
    conf: Conf = None,
) -> None:
    """Judge the merged journals: exit code 3 if an invariant is broken."""
    with _spark(master, conf) as spark:
        from pipeline import jobs

        try:
            summary = jobs.audit(spark, folder, racks=racks, strict=strict)
        except jobs.NothingToRead as error:
            raise Failure(Exit.FAILED, str(error), "run 'regent pipeline ingest' first") from None
    _tell(session, "Audit", summary)
    gaps = sum(summary["gaps"].values())
    verdict = f"{summary['rows']} rows, {summary['violations']} violations, {gaps} gaps, {summary['quarantined']} lines"
    session.output.say(f"{verdict} in quarantine", style="green" if summary["clean"] else "red")
    if not summary["clean"]:
        raise typer.Exit(Exit.REFUSED)


@contextmanager
def _spark(master: str, conf: list[str] | None) -> Iterator[Any]:
    """A session that is stopped again; what Spark needs and is not here is a failure of one sentence."""
    from pipeline.session import CannotStart, start

    settings = dict(_setting(text) for text in conf or ())
    try:
        spark = start(master, settings)
    except CannotStart as error:
        raise Failure(Exit.FAILED, str(error)) from None
    try:
        yield spark
    finally:
        spark.stop()


def _setting(text: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not (name and equals):
        raise Failure(Exit.USAGE, f"--conf {text} is no setting", "give NAME=VALUE, such as spark.driver.memory=4g")
    return name, value


def _tell(session: Session, kind: str, summary: dict[str, Any]) -> None:
    """The summary for programs; for people the first violations, a line each."""
    if session.output.for_programs:
        session.output.document(kind, [summary])
    else:
        for line in summary.get("first", []):
            session.output.text(line)
