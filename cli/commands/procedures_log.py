"""Adds regent procedures log: prints a store without a daemon, repairs it, or has a procedure of it end."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer

from cli.exit_codes import Exit, Failure
from cli.session import Session, command, confirmed

if TYPE_CHECKING:
    from cli.procedure_log import Judged, Place
    from configs.settings import Settings

ZOOKEEPER: Final = "zookeeper"
REGIONS: Final = "zookeeper-regions"
EXAMPLES: Final = (
    "regent procedures log zookeeper",
    "regent procedures log /var/lib/regent/procedures.db --live -o json",
    "regent procedures log zookeeper --repair --dry-run",
    'regent procedures log zookeeper --repair --yes --reason "disk of zk-2 was broken"',
    'regent procedures log /var/lib/regent/regions.db --bypass 4711 --reason "no daemon can run"',
)


def register(named: typer.Typer) -> None:
    """Adds the command to the group of procedures."""
    command(named, examples=EXAMPLES)(log)


def log(
    session: Session,
    store: Annotated[
        str,
        typer.Argument(help="File of a SQLite store; or, of the ensemble, 'zookeeper' or 'zookeeper-regions'."),
    ],
    pid: Annotated[int | None, typer.Option("--pid", min=0, help="This procedure alone.")] = None,
    live: Annotated[bool, typer.Option("--live", help="Without results.")] = False,
    repair: Annotated[bool, typer.Option("--repair", help="Move aside what no daemon can use.")] = False,
    bypass: Annotated[
        int | None, typer.Option("--bypass", min=1, help="Have the next daemon end this procedure as it is.")
    ] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Say what would be moved or changed.")] = False,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do it without a question.")] = False,
    reason: Annotated[str, typer.Option("--reason", help="The reason; kept with the records.")] = "",
    copy: Annotated[Path | None, typer.Option("--copy", help="New file for a copy of what a repair moves.")] = None,
) -> None:
    """Print a store without a daemon, damaged records included: exit code 1 if there are any."""
    from cli import procedure_log

    place = {ZOOKEEPER: procedure_log.KAFKA, REGIONS: procedure_log.REGIONS}.get(store)
    path = None if place is not None else Path(store)
    if place is not None:
        found = asyncio.run(procedure_log.read_zookeeper(_settings(session, place), place))
    elif not Path(store).is_file():
        remedy = f"name the file of a SQLite store, {ZOOKEEPER!r} or {REGIONS!r}"
        raise Failure(Exit.FAILED, f"{store} is no file", remedy)
    else:
        found = procedure_log.read_file(Path(store))
    if bypass is not None:
        _bypass(session, store, place, found, bypass, reason, yes=yes, dry_run=dry_run)
        return
    if repair and place is procedure_log.REGIONS:
        message = "records of regions in ZooKeeper are not moved aside"
        raise Failure(Exit.USAGE, message, "start a daemon, then regent regions procedures remove PID")
    if repair:
        _repair(session, path, found, reason, copy, yes=yes, dry_run=dry_run)
        return
    session.output.listing("ProcedureRecord", procedure_log.items(found, pid, live=live))
    _summarize(session, found)


def _settings(session: Session, place: Place) -> Settings:
    """Returns the settings with the ensemble of a store; a daemon for regions alone has no listener for brokers."""
    from cli import procedure_log

    if place is not procedure_log.REGIONS:
        return session.settings().settings
    settings = session.settings(kafka_optional=True).settings
    if not settings.zookeeper.connect:
        message = "zookeeper.connect is not set, so there is no store of regions in ZooKeeper"
        raise Failure(Exit.USAGE, message, "name the file of the SQLite store, regions.db in state.directory")
    return settings


def _summarize(session: Session, found: Judged) -> None:
    for fault in found.content.faults:
        session.output.message(fault, style="yellow")
    counts = Counter(str(one.fault) for one in found.unusable.values())
    if not counts:
        return
    text = ", ".join(f"{count} {fault}" for fault, count in sorted(counts.items()))
    session.output.message(f"{len(found.unusable)} of {len(found.content.entries)} records stand still: {text}", "red")
    if found.aside:
        session.output.message(f"Remedy: no daemon can use {len(found.aside)} of them: see --repair --dry-run")
    raise typer.Exit(Exit.FAILED)


def _bypass(
    session: Session,
    store: str,
    place: Place | None,
    found: Judged,
    pid: int,
    reason: str,
    *,
    yes: bool,
    dry_run: bool,
) -> None:
    """Has a procedure end as it is, before a daemon runs another step of it."""
    from cli import procedure_log

    records = procedure_log.ended(found, pid, reason)
    pids = {one.pid for one in records}
    some = found._replace(
        content=found.content._replace(entries=[one for one in found.content.entries if one.pid in pids])
    )
    session.output.listing("ProcedureRecord", procedure_log.items(some, None, live=False))
    if dry_run:
        session.output.message(f"{len(records)} records would be changed")
        return
    if not reason:
        raise Failure(Exit.USAGE, "a bypass needs a reason", "give --reason: it is kept with the procedure")
    confirmed(yes, f"End pid {pid} as it is, with what it is a part of? What is half done is yours to make good.")
    if place is None:
        procedure_log.end_in_file(Path(store), found, records)
    else:
        asyncio.run(procedure_log.end_in_zookeeper(_settings(session, place), place, found, records))
    session.output.message(f"the next daemon ends pid {pid} as it is", style="green")


def _repair(
    session: Session,
    path: Path | None,
    found: Judged,
    reason: str,
    copy: Path | None,
    *,
    yes: bool,
    dry_run: bool,
) -> None:
    from cli import procedure_log

    if not found.aside:
        session.output.message("nothing to repair: no record is beyond use by any daemon")
        return
    moved = found._replace(content=found.content._replace(entries=found.aside))
    session.output.listing("ProcedureRecord", procedure_log.items(moved, None, live=False))
    if dry_run:
        session.output.message(f"{len(found.aside)} records would be moved aside")
        return
    if not reason:
        raise Failure(Exit.USAGE, "a repair needs a reason", "give --reason: it is kept with what is moved")
    question = f"Move {len(found.aside)} records aside? What they have left half done is yours to make good."
    confirmed(yes, question)
    file = copy or Path(f"procedures-{time.strftime('%Y%m%dT%H%M%S', time.gmtime())}.jsonl")
    procedure_log.copied(found.aside, found.unusable, file, reason)
    if path is None:
        asyncio.run(procedure_log.repair_zookeeper(session.settings().settings, found))
    else:
        procedure_log.repair_file(path, found, reason)
    session.output.message(f"{len(found.aside)} records moved aside; a copy is in {file}", style="green")
