"""Adds regent events, which reads the journal of a daemon from its files; no daemon needs to be alive."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from cli.commands.event_filters import (
    AtServer,
    Broker,
    ByPid,
    Kinds,
    OfKafka,
    OfRegions,
    OfTable,
    Partition,
    Region,
    Since,
    Topic,
    Until,
    first_of,
    wanted,
)
from cli.exit_codes import Exit, Failure
from cli.help import Panel
from cli.session import Session, command, group

if TYPE_CHECKING:
    from controller.journal.reader import Gap
    from state_machines.journal.events import Row

POLL_S: Final = 0.3
GAPS_SHOWN: Final = 5

Directory = Annotated[
    list[Path] | None,
    typer.Option(
        "--directory",
        help="Folder of a journal (default: state.directory/events; with --regions or a filter of regions, and where "
        "the settings are of regions alone, its folder regions). Repeated: the journals of several daemons, as one "
        "history.",
    ),
]
Regions = Annotated[bool, typer.Option("--regions", help="Read the journal of regions, where the daemon has two.")]


def register(app: typer.Typer) -> None:
    """Adds the commands."""
    named = group(app, "events", "Read the journal: each decision, its time and its reason.", Panel.LOOK)
    command(
        named,
        examples=(
            "regent events show --since 1h",
            "regent events show --topic orders --partition 0 -o json",
            "regent events show --kind LEADER --broker 3",
            "regent events show --pid 12",
            "regent events show --regions --pid 12",
            "regent events show --since 1d --directory /var/lib/regent/events --directory /mnt/other/events",
            "regent events show --region 17 --since 1h",
            "regent events show --server-name kv-1 --kind SERVER_STATE",
        ),
    )(show)
    command(named, examples=("regent events tail -n 50", "regent events tail -f --kind LEADER"))(tail)
    command(
        named,
        examples=(
            "regent events check",
            "regent events check --regions",
            "regent events check --directory /backup/events",
        ),
    )(check)


def show(
    session: Session,
    topic: Topic = None,
    partition: Partition = None,
    broker: Broker = None,
    region: Region = None,
    table: OfTable = None,
    server_name: AtServer = None,
    pid: ByPid = None,
    kind: Kinds = None,
    since: Since = None,
    until: Until = None,
    limit: Annotated[int, typer.Option("--limit", min=1, help="Largest number of rows; the newest are kept.")] = 1_000,
    regions: Regions = False,
    directory: Directory = None,
) -> None:
    """List rows of the journal, oldest first, and name its gaps."""
    from controller.journal.query import last

    of_regions = OfRegions(region, table, server_name)
    some = wanted(OfKafka(topic, partition, broker), of_regions, pid, kind, since, until)
    rows, gaps, more = last(
        _folders(session, directory, regions=regions, filtered=first_of(of_regions) is not None), some, limit
    )
    _listed(session, rows)
    if more:
        session.output.message(f"these are the last {len(rows)}, there are more: see --limit")
    _print_gaps(session, gaps)


def tail(
    session: Session,
    topic: Topic = None,
    partition: Partition = None,
    broker: Broker = None,
    region: Region = None,
    table: OfTable = None,
    server_name: AtServer = None,
    pid: ByPid = None,
    kind: Kinds = None,
    since: Since = None,
    lines: Annotated[int, typer.Option("--lines", "-n", min=1, help="Number of rows to begin with.")] = 20,
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Print added rows until Ctrl-C.")] = False,
    regions: Regions = False,
    directory: Directory = None,
) -> None:
    """Print the newest rows; with -f added rows too, a line each."""
    from controller.journal.query import Follower, last

    of_regions = OfRegions(region, table, server_name)
    some = wanted(OfKafka(topic, partition, broker), of_regions, pid, kind, since)
    folders = _folders(session, directory, regions=regions, filtered=first_of(of_regions) is not None)
    follower = Follower(folders)
    rows, gaps, _ = last(folders, some, lines)
    if not follow:
        _listed(session, rows)
        _print_gaps(session, gaps)
        return
    shown = {(row.ctl_epoch, row.seq) for row in rows}
    while True:
        for row in rows:
            session.output.text(_line(session, row))
        sys.stdout.flush()
        time.sleep(POLL_S)
        rows = [row for row in follower.look() if some.matches(row) and (row.ctl_epoch, row.seq) not in shown]


def check(session: Session, regions: Regions = False, directory: Directory = None) -> None:
    """Judge every row by itself (A1, A3 to A6, A8 to A12, parts of A14 and A15): exit code 3 if one is broken."""
    from controller.journal.reader import Gap, read
    from controller.process.wording import counted
    from state_machines.journal.audit import Violation, judge

    rows, gaps, violations = 0, list[Gap](), list[Violation]()
    for row in read(_folders(session, directory, regions=regions)):
        if isinstance(row, Gap):
            gaps.append(row)
        else:
            rows += 1
            violations += judge([row])
    for violation in violations:
        session.output.text(str(violation))
    _print_gaps(session, gaps)
    verdict = f"{counted(rows, 'row')}, {counted(len(violations), 'violation')}, {counted(len(gaps), 'gap')}"
    session.output.message(verdict, style="red" if violations else "green")
    if violations:
        raise typer.Exit(Exit.REFUSED)


def _folders(session: Session, directories: list[Path] | None, *, regions: bool, filtered: bool = False) -> list[Path]:
    """Returns the folders of journals: without ``directories`` the daemon's.

    That is the one of regions where ``regions`` or a filter wants it, or where the daemon has no other.
    """
    from controller.journal.segments import folder_in, regions_folder_in

    found = list(dict.fromkeys(directories or ()))
    if found and regions:
        message = "--regions is about the daemon's own journal, and --directory names another one"
        raise Failure(Exit.USAGE, message, f"leave --regions out, and name the folder: --directory {found[0]}/regions")
    if not found:
        of_regions = regions or filtered or session.is_without_kafka()
        found = [(regions_folder_in if of_regions else folder_in)(session.section_of_state().directory)]
    for folder in found:
        _refuse_unreadable(folder)
    return found


def _refuse_unreadable(folder: Path) -> None:
    try:
        next(folder.iterdir(), None)
    except PermissionError:
        remedy = "run the command as root, or as the daemon's user or a member of its group"
        raise Failure(Exit.NOT_AUTHORISED, f"no permission to read {folder}", remedy) from None
    except (FileNotFoundError, NotADirectoryError):
        remedy = (
            "name the settings with --config, or the folder with --directory; a daemon writes a journal once it holds "
            "the role (journal.enabled)"
        )
        raise Failure(Exit.FAILED, f"there is no journal in {folder}", remedy) from None


def _listed(session: Session, rows: Sequence[Row]) -> None:
    from controller.journal.query import at, entity, sentence

    if session.output.for_programs:
        session.output.document("Event", [_plain(row) for row in rows])
        return
    if not rows:
        session.output.message("the journal has no such rows")
        return
    session.output.listing(
        "Event",
        (
            {"time": at(row), "kind": row.kind, "what": entity(row), "told": sentence(row), **_plain(row)}
            for row in rows
        ),
    )


def _line(session: Session, row: Row) -> str:
    from controller.journal.query import at, entity, sentence

    if session.output.for_programs:
        return json.dumps(_plain(row), ensure_ascii=False)
    return f"{at(row)}  {row.kind:<15}  {entity(row)}  {sentence(row)}"


def _plain(row: Row) -> dict[str, Any]:
    """Returns the row with the fields of its file."""
    import msgspec

    plain: dict[str, Any] = msgspec.to_builtins(row)
    return plain


def _print_gaps(session: Session, gaps: list[Gap]) -> None:
    for gap in gaps[:GAPS_SHOWN]:
        session.output.message(f"gap: {gap}", style="yellow")
    if len(gaps) > GAPS_SHOWN:
        session.output.message(f"and {len(gaps) - GAPS_SHOWN} more gaps", style="yellow")
