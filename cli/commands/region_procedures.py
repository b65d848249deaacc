"""Adds `regent regions procedures`, which lists procedures of the regions' domain and their results."""

from __future__ import annotations

import time
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated, Any

import typer

from cli.commands.procedures import (
    REGIONS,
    REMOVES,
    Pid,
    WaitS,
    Why,
    Yes,
    awaited,
    each,
    exit_by,
    flag,
    show_all,
    words_of,
)
from cli.help import Panel
from cli.session import Session, command, confirmed, group

if TYPE_CHECKING:
    from cli.client import Json

Pids = Annotated[list[int], typer.Argument(help="Pids of procedures.", min=1, metavar="PID...")]


def register(app: typer.Typer) -> None:
    """Adds the commands below ``regent regions``."""
    named = group(app, "procedures", "List, follow and end procedures of regions.", Panel.LOOK)
    command(
        named,
        name="list",
        examples=(
            "regent regions procedures list --live",
            "regent regions procedures list --kind crash",
            "regent regions procedures list --parts -o wide",
        ),
    )(listed)
    command(named, examples=("regent regions procedures show 12",))(show)
    command(named, examples=("regent regions procedures wait 12 13 --timeout 600",))(wait)
    command(named, examples=("regent regions procedures abort 12 --yes --reason 'wrong splits'",))(abort)
    command(named, examples=("regent regions procedures bypass 12 --yes",))(bypass)
    command(named, examples=("regent regions procedures remove 12 --reason 'its record is damaged' --yes",))(remove)
    examples = ("regent regions procedures leave-out 12 --reason 'the file is gone' --yes",)
    command(named, name="leave-out", examples=examples)(leave_out)


def listed(
    session: Session,
    live: Annotated[bool, typer.Option("--live", help="Without results.")] = False,
    kind: Annotated[str, typer.Option("--kind", help="Those of one kind, such as crash.")] = "",
    parts: Annotated[bool, typer.Option("--parts", help="With the parts of other procedures.")] = False,
) -> None:
    """List procedures of regions and kept results by pid."""
    params: dict[str, Any] = {"live": live, "parts": parts} | ({"kind": kind} if kind else {})
    now = datetime.now(UTC)
    found = (item | {"flag": flag(item, now) or failing(item)} for item in session.client().pages(REGIONS.path, params))
    session.output.listing("Procedure", found)


def failing(item: Json) -> str:
    """Returns the flag of a procedure that goes on, and whose latest attempt, or that of a part, failed."""
    return "failing" if item.get("error") and not item["ended"] else ""


def show(session: Session, pid: Pid) -> None:
    """Show one procedure of regions."""
    session.output.detail("Procedure", session.client().get(f"{REGIONS.path}/{pid}")["items"][0])


def wait(session: Session, pids: Pids, timeout: WaitS = 3600) -> None:
    """Wait for the end of procedures: exit code 1 when one was undone, 3 when one left a region not open."""
    ends_s = time.monotonic() + timeout
    found = [awaited(session, pid, max(1.0, ends_s - time.monotonic()), domain=REGIONS) for pid in pids]
    show_all(session, found)
    exit_by(found)


def abort(session: Session, pids: Pids, reason: Why = "", yes: Yes = False) -> None:
    """Undo procedures that have not passed the point from which nothing is undone."""
    confirmed(yes, f"Undo {words_of(pids)}? A part of another procedure is undone with that one.")
    each(session, pids, "abort", reason, REGIONS)


def bypass(session: Session, pids: Pids, reason: Why = "", yes: Yes = False) -> None:
    """End procedures as they are; nothing is undone, and what they left half done is yours to repair."""
    confirmed(yes, f"End {words_of(pids)} as it is, without undoing anything?")
    each(session, pids, "bypass", reason, REGIONS)


def remove(session: Session, pids: Pids, reason: Why = "", yes: Yes = False) -> None:
    """Remove records that cannot be used, each with its family; what they left half done is yours to repair."""
    confirmed(yes, REMOVES.format(words_of(pids)))
    each(session, pids, "remove", reason, REGIONS)


def leave_out(session: Session, pid: Pid, reason: Why = "", yes: Yes = False) -> None:
    """Have a crash go on without the part of a log that a split_log splits in vain: its edits are not recovered."""
    confirmed(yes, f"Leave out the part of the log that procedure {pid} splits? Its edits may be lost for good.")
    each(session, [pid], "leave-out", reason, REGIONS)
