"""Finds what ``regent reassign plan --undo`` takes back: the moves of a plan or drain, or those of a plan's file."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from cli.exit_codes import Exit, Failure
from cli.session import Session

if TYPE_CHECKING:
    from state_machines.planning.goals import Topics, Undo
    from state_machines.planning.plan import Move


def undone(session: Session, named: str, topics: Topics) -> Undo:
    """Returns the goal that takes back a plan, by the pid of a plan or drain that has ended, or by the plan's file."""
    from state_machines.planning.goals import Undo
    from state_machines.planning.topics import chosen_topics

    by_pid = named.isdecimal() and not Path(named).exists()
    moves = _of_pid(session, int(named)) if by_pid else _of_file(Path(named))
    names = chosen_topics(topics, {move.topic for move in moves})
    chosen = tuple(move for move in moves if names is None or move.topic in names)
    source = f"procedure {named}" if by_pid else f"the plan of {Path(named).name}"
    if moves and not chosen:
        raise Failure(
            Exit.REFUSED, f"{source} moved none of the topics that are chosen", "correct --topic or --exclude"
        )
    return Undo(chosen, source)


def _of_pid(session: Session, pid: int) -> list[Move]:
    from state_machines.planning.plan import Move

    client = session.client()
    live = [one["pid"] for one in client.get("/v1/procedures")["items"] if not one["ended"]]
    if pid in live:
        raise Failure(Exit.REFUSED, f"procedure {pid} has not ended", f"regent end {pid} --undo takes it back")
    try:
        items = client.get(f"/v1/procedures/{pid}/moves")["items"]
    except Failure as failure:
        if failure.code is not Exit.FAILED:
            raise
        remedy = "its result was removed, or it moved nothing: give the plan's file (reassign plan --out) instead"
        raise Failure(Exit.REFUSED, failure.message, remedy) from failure
    return [Move(one["topic"], one["partition"], tuple(one["origin"]), tuple(one["target"])) for one in items]


def _of_file(file: Path) -> list[Move]:
    from state_machines.planning.json_file import UnusableFile
    from state_machines.planning.plan_file import decode_plan

    remedy = "give the pid of a plan, or a file of regent reassign plan: it has the former replicas"
    try:
        return list(decode_plan(file.read_bytes()).moves)
    except (OSError, UnusableFile) as error:
        raise Failure(Exit.USAGE, unusable(file, error), remedy) from error


def unusable(file: Path, error: Exception) -> str:
    """Words why a file of a plan is of no use."""
    return f"{file} cannot be read: {error.strerror}" if isinstance(error, OSError) else f"{file}: {error}"
