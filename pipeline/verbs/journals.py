"""Has the verbs ``ingest`` and ``audit``: journals of all daemons are merged, and judged."""

from __future__ import annotations

from typing import Annotated, Any

from pipeline.ending import DONE, FAILED, REFUSED, Stopped
from pipeline.report.wording import counted
from pipeline.verbs.options import Argument, Conf, Master, Option, Quiet
from pipeline.verbs.running import Shown, running


def ingest(
    show: Shown,
    journals: Annotated[list[str], Argument("Folders of journals, one of each daemon; or files.")],
    into: Annotated[str, Option("--into", "Folder for the Parquet; its content is replaced.")],
    master: Master = None,
    conf: Conf = None,
    quiet: Quiet = False,
) -> int:
    """Merge the journals of all daemons into Parquet, and find their gaps."""
    with running(master, conf, quiet=quiet) as spark:
        from pipeline import jobs
        from pipeline.executors import Unfit
        from pipeline.storage import CannotMerge, NothingToRead

        try:
            summary = jobs.ingest(spark, journals, into)
        except (NothingToRead, CannotMerge, Unfit) as error:
            raise Stopped(FAILED, str(error)) from None
    _print(show, "Ingest", summary)
    gaps = sum(summary["gaps"].values())
    show.message(
        f"{summary['rows']} rows of {summary['terms']} terms in {into}, {counted(gaps, 'gap')}, "
        f"{summary['copies']} copies, {summary['quarantined']} lines in quarantine",
        style="yellow" if summary["quarantined"] else "green",
    )
    return DONE


def audit(
    show: Shown,
    folder: Annotated[str, Argument("Folder that 'regent pipeline ingest' made.")],
    racks: Annotated[bool, Option("--racks", "Judge whether replicas are spread over the racks, too.")] = False,
    strict: Annotated[bool, Option("--strict", "Gaps and lines in quarantine count as broken, too.")] = False,
    master: Master = None,
    conf: Conf = None,
    quiet: Quiet = False,
) -> int:
    """Judge the merged journals: exit code 3 if an invariant is broken."""
    with running(master, conf, quiet=quiet) as spark:
        from pipeline import jobs
        from pipeline.executors import Unfit
        from pipeline.storage import CannotMerge, NothingToRead

        try:
            summary = jobs.audit(spark, folder, racks=racks, strict=strict)
        except NothingToRead as error:
            raise Stopped(FAILED, str(error), "run 'regent pipeline ingest' first") from None
        except (CannotMerge, Unfit) as error:
            raise Stopped(FAILED, str(error)) from None
    _print(show, "Audit", summary)
    gaps = sum(summary["gaps"].values())
    found = f"{counted(summary['violations'], 'violation')}, {counted(gaps, 'gap')}"
    verdict = f"{summary['rows']} rows, {found}, {summary['quarantined']} lines"
    show.message(f"{verdict} in quarantine", style="green" if summary["clean"] else "red")
    return DONE if summary["clean"] else REFUSED


def _print(show: Shown, kind: str, summary: dict[str, Any]) -> None:
    """Prints the summary for programs; for people the first violations, a line each."""
    if show.for_programs:
        show.document(kind, [summary])
    else:
        for line in summary.get("first", []):
            show.text(line)
