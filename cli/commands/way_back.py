"""Takes back what a plan or a drain moved that has ended: the daemon plans the way back, a further plan does it."""

from __future__ import annotations

import uuid
from typing import TYPE_CHECKING, Final, NamedTuple

from cli.commands.procedures import MEASURED_S_MAX
from cli.exit_codes import Exit, Failure
from cli.session import Session

if TYPE_CHECKING:
    from cli.client import Json

SHOWN_MAX: Final = 20
"""Moves that are shown before they begin."""
PLANNED: Final = "planned"


class WayBack(NamedTuple):
    """Moves that take a procedure back, and those that are refused, each with its cause."""

    moves: list[Json]
    refused: list[Json]


def way_back(session: Session, pid: int) -> WayBack:
    """Has the daemon plan the way back of a procedure; changes nothing."""
    items = session.client(MEASURED_S_MAX).get(f"/v1/procedures/{pid}/way-back")["items"]
    planned = [one for one in items if one["status"] == PLANNED]
    return WayBack(planned, [one for one in items if one["status"] != PLANNED])


def show(session: Session, back: WayBack) -> None:
    """Shows the first moves in rows, and what stays with its cause; programs get all moves."""
    output = session.output
    if output.for_programs:
        output.document("Move", [*back.moves, *back.refused])
        return
    if back.moves:
        output.listing("PlannedMove", back.moves[:SHOWN_MAX])
    if len(back.moves) > SHOWN_MAX:
        output.message(f"and {len(back.moves) - SHOWN_MAX} more moves")
    tell_refused(session, back)


def tell_refused(session: Session, back: WayBack) -> None:
    """Names partitions that stay where they are."""
    for one in back.refused[:SHOWN_MAX]:
        session.output.message(f"{one['topic']}-{one['partition']} stays: {one['why']}", style="yellow")
    if len(back.refused) > SHOWN_MAX:
        session.output.message(f"and {len(back.refused) - SHOWN_MAX} more stay", style="yellow")


def begun(session: Session, pid: int, back: WayBack, reason: str) -> Json:
    """Begins the plan that takes a procedure back; while it runs a second one is refused."""
    moves = [{name: one[name] for name in ("topic", "partition", "origin", "target")} for one in back.moves]
    request = {"moves": moves, "nonce": uuid.uuid4().hex, "reason": reason or f"takes back {pid}"}
    try:
        found: Json = session.client(MEASURED_S_MAX).post("/v1/reassignments", request)["items"][0]
    except Failure as failure:
        if failure.code is not Exit.UNREACHABLE:
            raise
        again = "the plan may have begun: see 'regent reassign list', then repeat the command, it begins no second one"
        raise Failure(failure.code, failure.message, again) from failure
    return found
