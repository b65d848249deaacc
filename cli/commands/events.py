"""Adds regent events, which reads the journal of a daemon from its files; no daemon needs to be alive."""

from __future__ import annotations

import json
import re
import sys
import time
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from cli.exit_codes import Exit, Failure
from cli.help import Panel
from cli.session import Session, command, group

if TYPE_CHECKING:
    from controller.journal.query import Wanted
    from controller.journal.reader import Gap
    from state_machines.journal.events import Row

POLL_S: Final = 0.3
GAPS_SHOWN: Final = 5
_AGO: Final = re.compile(r"(\d+(?:\.\d+)?)([smhd])")
_UNITS: Final = {"s": "seconds", "m": "minutes", "h": "hours", "d": "days"}

Topic = Annotated[str | None, typer.Option("--topic", help="Only rows of one topic, and of procedures about it.")]
Partition = Annotated[int | None, typer.Option("--partition", min=0, help="Only rows of one partition of the topic.")]
Broker = Annotated[
    int | None,
    typer.Option(
        "--broker",
        help="Only rows with the broker: as leader before or after, in or out of the ISR, or of a procedure about it.",
    ),
]
ByPid = Annotated[int | None, typer.Option("--pid", min=1, help="Only rows of a procedure and its children.")]
Kinds = Annotated[
    list[str] | None, typer.Option("--kind", help="Only rows of a kind, such as LEADER; may be repeated.")
]
Since = Annotated[str | None, typer.Option("--since", help="Start: 90s, 30m, 2h, 1d ago, or a time in ISO 8601.")]
Until = Annotated[str | None, typer.Option("--until", help="End, in the same forms.")]
Directory = Annotated[
    Path | None, typer.Option("--directory", help="Folder of a journal (default: state.directory/events).")
]


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
        ),
    )(show)
    command(named, examples=("regent events tail -n 50", "regent events tail -f --kind LEADER"))(tail)
    command(named, examples=("regent events check", "regent events check --directory /backup/events"))(check)


def show(
    session: Session,
    topic: Topic = None,
    partition: Partition = None,
    broker: Broker = None,
    pid: ByPid = None,
    kind: Kinds = None,
    since: Since = None,
    until: Until = None,
    limit: Annotated[int, typer.Option("--limit", min=1, help="Largest number of rows; the newest are kept.")] = 1_000,
    directory: Directory = None,
) -> None:
    """List rows of the journal, oldest first, and name its gaps."""
    from controller.journal.query import last

    wanted = _wanted(topic, partition, broker, kind, since, until, pid)
    rows, gaps, more = last(_folder(session, directory), wanted, limit)
    _listed(session, rows)
    if more:
        session.output.message(f"these are the last {len(rows)}, there are more: see --limit")
    _print_gaps(session, gaps)


def tail(
    session: Session,
    topic: Topic = None,
    partition: Partition = None,
    broker: Broker = None,
    pid: ByPid = None,
    kind: Kinds = None,
    since: Since = None,
    lines: Annotated[int, typer.Option("--lines", "-n", min=1, help="Number of rows to begin with.")] = 20,
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Print added rows until Ctrl-C.")] = False,
    directory: Directory = None,
) -> None:
    """Print the newest rows; with -f added rows too, a line each."""
    from controller.journal.query import Follower, last

    folder, wanted = _folder(session, directory), _wanted(topic, partition, broker, kind, since, None, pid)
    follower = Follower(folder)
    rows, gaps, _ = last(folder, wanted, lines)
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
        rows = [row for row in follower.look() if wanted.matches(row) and (row.ctl_epoch, row.seq) not in shown]


def check(session: Session, directory: Directory = None) -> None:
    """Judge every row by itself (invariants A1, A3 to A6, A10, A11, A14, A15): exit code 3 if one is broken."""
    from controller.journal.reader import Gap, read
    from controller.process.wording import counted
    from state_machines.journal.audit import Violation, judge

    rows, gaps, violations = 0, list[Gap](), list[Violation]()
    for row in read(_folder(session, directory)):
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


def _folder(session: Session, directory: Path | None) -> Path:
    from controller.journal.journal import folder_in

    folder = directory or folder_in(session.section_of_state().directory)
    try:
        next(folder.iterdir(), None)
    except PermissionError:
        remedy = "run the command as root, or as the daemon's user or a member of its group"
        raise Failure(Exit.NOT_AUTHORISED, f"no permission to read {folder}", remedy) from None
    except (FileNotFoundError, NotADirectoryError):
        remedy = "name the folder with --directory; a daemon writes one once it holds the role (journal.enabled)"
        raise Failure(Exit.FAILED, f"there is no journal in {folder}", remedy) from None
    return folder


def _wanted(
    topic: str | None,
    partition: int | None,
    broker: int | None,
    kinds: list[str] | None,
    since: str | None,
    until: str | None,
    pid: int | None,
) -> Wanted:
    from controller.journal.query import Wanted
    from state_machines.journal.events import Kind

    if partition is not None and topic is None:
        raise Failure(Exit.USAGE, "--partition needs --topic", "name the topic, too")
    wanted = frozenset(kind.upper() for kind in kinds or ())
    if unknown := sorted(wanted - set(Kind)):
        raise Failure(Exit.USAGE, f"there is no kind {unknown[0]}", f"the kinds are {', '.join(sorted(Kind))}")
    now = datetime.now(UTC)
    since_us, until_us = _moment("--since", since, now), _moment("--until", until, now)
    return Wanted(topic, partition, broker, wanted, since_us, until_us, pid)


def _moment(option: str, text: str | None, now: datetime) -> int | None:
    """Returns microseconds of the wall clock."""
    if text is None:
        return None
    if ago := _AGO.fullmatch(text):
        then = now - timedelta(**{_UNITS[ago[2]]: float(ago[1])})
    else:
        try:
            then = datetime.fromisoformat(text)
        except ValueError:
            remedy = "give 90s, 30m, 2h or 1d, or a time such as 2026-01-31T12:00:00 (UTC unless it says otherwise)"
            raise Failure(Exit.USAGE, f"{option} {text} is no time", remedy) from None
        then = then if then.tzinfo is not None else then.replace(tzinfo=UTC)
    return int(then.timestamp() * 1e6)


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
