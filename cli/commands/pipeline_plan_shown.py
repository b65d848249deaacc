"""Shows what plans cost and reach: goals before and after, or a line for each scenario."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from cli.session import Session

if TYPE_CHECKING:
    from pipeline.planner.certifying import Worse
    from pipeline.planner.disks import OnDisks
    from pipeline.planner.output import ExplainedMove, LogDirs
    from pipeline.planner.planning import Planned
    from pipeline.planner.unmet import Unmet

NAMED_MAX: Final = 5
"""Brokers or partitions that a sentence names."""
TOLD_BY: Final = {
    "size": "'regent loads' has it: give its file by --loads",
    "bytes_in": "an older file of 'regent loads' gives it: --loads-before; or 'regent loads --prometheus'",
    "bytes_out": "'regent loads --prometheus' has it, or a file of your own",
}
"""Where each load comes from."""


def scenario_row(name: str, found: Planned, placed: OnDisks | None, rate: int | None) -> dict[str, Any]:
    """Returns what the best plan of a scenario costs and reaches."""
    from pipeline.planner.output import moves_of
    from state_machines.planning.plan import expected

    slowest = expected(moves_of(found), rate) if rate is not None else None
    return {
        "scenario": name,
        "partitions": len(found.rows),
        "bytes": round(found.best.bytes_moved) if found.sizes_known else None,
        "bytesAtLeast": round(found.bytes_min) if found.sizes_known else None,
        "seconds": slowest.seconds if slowest is not None else None,
        "hardBroken": found.best.certificate.hard_broken + (len(placed.after.full) if placed is not None else 0),
        "softBroken": found.best.certificate.soft_broken + (placed.after.uneven if placed is not None else 0),
        "unmet": [f"{one.goal}: {one.why}" for one in _all_unmet(found, placed)],
    }


def _all_unmet(found: Planned, placed: OnDisks | None) -> list[Unmet]:
    from pipeline.planner.unmet import unmet, unmet_on_disks

    return [*unmet(found), *(unmet_on_disks(found, placed) if placed is not None else ())]


def show(session: Session, found: Planned, placed: OnDisks | None, rate: int | None) -> None:
    """Prints the goals before and after, or the moves for programs; then the costs, and each goal that is not met."""
    from controller.process.wording import in_bytes, in_time
    from pipeline.planner.output import goal_rows, log_dirs_of, moves_of, moves_within
    from state_machines.planning.plan import expected

    output, moves = session.output, moves_of(found)
    if output.for_programs:
        within = moves_within(found, placed) if placed is not None else []
        log_dirs = log_dirs_of(found, placed) if placed is not None else {}
        output.document("Move", [_move(move, log_dirs) for move in (*moves, *within)])
    else:
        output.listing("PlannedGoal", list(goal_rows(found, placed)))
    for one in found.assumed:
        if one.partitions == len(found.problem.topic):
            what = f"{one.kind} is unknown of all partitions: no goal looks at it"
            output.message(f"{what} ({TOLD_BY[one.kind]})", style="yellow")
        else:
            mean = f"the mean of the others, {in_bytes(round(one.mean))}, stands for it"
            output.message(f"{one.kind} is unknown of {one.partitions} partitions: {mean}", style="yellow")
    copied, least = round(found.best.bytes_moved), round(found.bytes_min)
    cost = f"{in_bytes(copied)} to copy" if found.sizes_known else "the bytes to copy are not known"
    ratio = f", {copied / least:.2f} times the fewest possible" if 0 < least <= copied else ""
    output.message(
        f"{len(moves)} partitions change, {cost}{ratio} "
        f"(the best of {len(found.tried)} searches: seed {found.best.seed})"
    )
    slowest = expected(moves, rate) if rate is not None else None
    if rate is not None and slowest is not None:
        moved = f"broker {slowest.broker} {slowest.direction} {in_bytes(slowest.bytes)}"
        time = in_time(slowest.seconds)
        output.message(f"about {time} at {in_bytes(rate)}/s for each broker and direction: {moved}")
    if placed is not None:
        _show_disks(session, placed)
    for goal in _all_unmet(found, placed):
        named = ", ".join(goal.named) + (f" and {more} more" if (more := goal.broken - len(goal.named)) > 0 else "")
        output.message(f"not reached: {goal.goal}: {named}: {goal.why}", style="red")


def _show_disks(session: Session, placed: OnDisks) -> None:
    from controller.process.wording import in_bytes

    if len(placed.rows):
        copied = in_bytes(round(placed.bytes_within))
        session.output.message(
            f"{len(placed.rows)} partitions change log directories within a broker, {copied} to copy"
        )
    if placed.unplaced:
        what = f"the log directories of {placed.unplaced} replicas are not known and not chosen"
        session.output.message(f"{what}: give --loads a file of 'regent loads', and all directories", style="yellow")


def worse_in_words(worse: Worse, found: Planned, parts: int) -> str:
    """Returns a sentence about a hard goal that is worse after a part than before the first one."""
    from pipeline.planner.goals import WORDS, Goal

    problem, partitions = found.problem, worse.goal in (Goal.ALIVE, Goal.RACKS)
    names = [problem.name(at) if partitions else f"broker {problem.brokers.ids[at]}" for at in worse.at[:NAMED_MAX]]
    more = f" and {len(worse.at) - NAMED_MAX} more" if len(worse.at) > NAMED_MAX else ""
    part = f"after part {worse.part} of {parts}, until a later one"
    return f"{part}, worse than before the first one: {WORDS[worse.goal]}: {', '.join(names)}{more}: plan fewer parts"


def _move(move: ExplainedMove, log_dirs: LogDirs) -> dict[str, Any]:
    named = {"logDirs": list(log_dirs[move.topic, move.partition][1])} if log_dirs else {}
    return {
        "topic": move.topic,
        "partition": move.partition,
        "origin": list(move.origin),
        "target": list(move.target),
        "sizeBytes": move.bytes,
        "reason": move.reason,
        **named,
    }
