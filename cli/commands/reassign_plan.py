"""Adds regent reassign plan, which makes the file of a plan and shows what it costs and gains."""

from __future__ import annotations

import asyncio
from collections import Counter
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from cli.exit_codes import Exit, Failure
from cli.rates import TimeRate
from cli.session import Session
from cli.verbs import needed

if TYPE_CHECKING:
    from cli.planning import Warn
    from configs.settings import Settings
    from state_machines.planning.goals import Goal, Topics, Undo
    from state_machines.planning.plan import Move, Plan

SHOWN_MAX: Final = 20
"""Distinct reasons of refusals that are shown."""
ONE_GOAL: Final = (
    "give one of --target, --decommission, --add, --replication-factor, --restore-racks, --rebalance, --balance and "
    "--undo"
)
TOPIC_HELP: Final = "Limits the plan to a topic, or to those of a pattern such as 'orders-*'; repeatable."
EXAMPLES: Final = (
    "regent reassign plan --decommission 3 --out plan.json",
    "regent reassign plan --decommission 3 --rate 50000000",
    "regent reassign plan --add 7 --add 8 --out plan.json",
    "regent reassign plan --replication-factor 3 --topic orders --out plan.json",
    "regent reassign plan --restore-racks --out plan.json",
    "regent reassign plan --target wanted.json --out plan.json",
    "regent reassign plan --rebalance --topic 'orders-*' --exclude 'orders-test*' --out plan.json",
    "regent reassign plan --balance --out plan.json",
    "regent reassign plan --undo 12 --out back.json",
    "regent reassign plan --undo plan.json --out back.json",
)


def make(
    session: Session,
    out: Annotated[Path | None, typer.Option("--out", help="File of the plan; without it nothing is written.")] = None,
    target: Annotated[
        Path | None, typer.Option("--target", help="Given replicas: a file of kafka-reassign-partitions.")
    ] = None,
    decommission: Annotated[
        list[int] | None, typer.Option("--decommission", min=0, help="A broker that all replicas leave; repeatable.")
    ] = None,
    add: Annotated[
        list[int] | None, typer.Option("--add", min=0, help="A broker that takes its share of replicas; repeatable.")
    ] = None,
    replication_factor: Annotated[
        int | None, typer.Option("--replication-factor", min=1, help="Replicas of each partition of --topic.")
    ] = None,
    restore_racks: Annotated[
        bool, typer.Option("--restore-racks", help="Spread replicas that share a rack over racks.")
    ] = False,
    rebalance: Annotated[
        bool,
        typer.Option(
            "--rebalance", help="Make counts of replicas and leaders even, to the last one, then bytes by swaps."
        ),
    ] = False,
    balance: Annotated[
        bool,
        typer.Option(
            "--balance",
            help="Bring all brokers within 10 % of the mean, of bytes and topics, too; with few bytes, by the extra.",
        ),
    ] = False,
    undo: Annotated[
        str | None,
        typer.Option("--undo", metavar="PID|FILE", help="The way back of a plan or drain that ended, or of a file."),
    ] = None,
    topic: Annotated[list[str] | None, typer.Option("--topic", help=TOPIC_HELP)] = None,
    exclude: Annotated[
        list[str] | None, typer.Option("--exclude", help="Leaves a topic, or topics of a pattern, out; repeatable.")
    ] = None,
    rate: TimeRate = None,
    sizes: Annotated[bool, typer.Option("--sizes/--no-sizes", help="Query brokers for the sizes of replicas.")] = True,
) -> None:
    """Plan moves of replicas; changes nothing. Reads ZooKeeper and brokers, no daemon needs to be alive.

    --undo PID alone reads the moves from a daemon, which keeps them as long as the result of the plan.
    """
    topics = (*(topic or ()), *(f"!{one}" for one in exclude or ())) or None
    back = undone(session, undo, topics) if undo is not None else None
    given = (target, decommission, add, replication_factor, restore_racks, topics, back, rebalance)
    if balance and any(one for one in given if one is not topics):
        raise Failure(Exit.USAGE, "several goals are given", ONE_GOAL)
    goal = None if balance else _goal(*given)
    settings = session.settings().settings
    warn = session.output.message
    found = asyncio.run(_made(settings, goal, topics, partial(warn, style="yellow"), sizes))
    _show(session, found)
    if rate is not None:
        warn(_time(found, rate))
    if out is not None and found.moves:
        _write(out, found)
        warn(f"{len(found.moves)} moves are in {out}: regent reassign apply {out}")
    elif out is not None:
        warn(f"nothing is to be moved: {out} is not written", style="yellow")
    if found.refused:
        raise typer.Exit(Exit.REFUSED)


async def _made(settings: Settings, goal: Goal | None, topics: Topics, warn: Warn, sizes: bool) -> Plan:
    """Returns the plan for a goal, without one the balance of the cluster."""
    from cli.planning import make_balance, make_plan

    if goal is not None:
        return await make_plan(settings, goal, warn, sizes=sizes)
    with needed():
        return await make_balance(settings, topics, warn, sizes=sizes)


def _goal(
    target: Path | None,
    decommission: list[int] | None,
    add: list[int] | None,
    factor: int | None,
    restore_racks: bool,
    topics: Topics,
    back: Goal | None = None,
    rebalance: bool = False,
) -> Goal:
    """Returns the one goal that the options name; raises :class:`Failure` for none and for several."""
    from state_machines.planning import goals
    from state_machines.planning.json_files import UnusableFile, decode_kafka

    given: list[Goal] = [back] if back is not None else []
    if target is not None:
        try:
            given.append(decode_kafka(target.read_bytes()))
        except (OSError, UnusableFile) as error:
            raise Failure(Exit.USAGE, unusable(target, error), "give a file of kafka-reassign-partitions") from error
    if decommission:
        given.append(goals.Decommission(tuple(decommission), topics))
    if add:
        given.append(goals.Add(tuple(add), topics))
    if factor is not None:
        if topics is None:
            raise Failure(Exit.USAGE, "--replication-factor needs topics", "give at least one --topic")
        given.append(goals.ReplicationFactor(topics, factor))
    if restore_racks:
        given.append(goals.RestoreRacks(topics))
    if rebalance:
        given.append(goals.Rebalance(topics))
    if len(given) != 1:
        what = "several goals are given" if given else "no goal is given"
        raise Failure(Exit.USAGE, what, ONE_GOAL)
    return given[0]


def _show(session: Session, found: Plan) -> None:
    """Writes the brokers' loads, or for programs the moves, and sentences about costs and refusals."""
    from controller.process.wording import in_bytes

    output, summary = session.output, found.summary
    if output.for_programs:
        output.document("Move", [_move(move) for move in found.moves])
    else:
        output.listing("BrokerLoad", [_load(load) for load in summary.brokers])
    unknown = f", without {summary.sizes_unknown} moves of unknown size" if summary.sizes_unknown else ""
    racks = f"{summary.rack_violations_before} before, {summary.rack_violations_after} after"
    output.message(
        f"{found.goal}: {len(found.moves)} moves, {in_bytes(summary.bytes_to_move)} to copy{unknown}; "
        f"partitions that could be on more racks: {racks}"
    )
    reasons = Counter(refused.why for refused in found.refused)
    for why, count in reasons.most_common(SHOWN_MAX):
        first = next(refused.subject for refused in found.refused if refused.why == why)
        more = f" and {count - 1} more" if count > 1 else ""
        output.message(f"refused: {first}{more}: {why}", style="red")


def _time(found: Plan, rate: int) -> str:
    from controller.process.wording import in_bytes, in_time
    from state_machines.planning.plan import expected

    slowest = expected(found.moves, rate)
    if slowest is None:
        return "nothing of known size is to be copied"
    moved = f"broker {slowest.broker} {slowest.direction} {in_bytes(slowest.bytes)}"
    return f"about {in_time(slowest.seconds)} at {in_bytes(rate)}/s for each broker and direction: {moved}"


def _move(move: Any) -> dict[str, Any]:
    return {
        "topic": move.topic,
        "partition": move.partition,
        "origin": list(move.origin),
        "target": list(move.target),
        "sizeBytes": move.bytes,
    }


def _load(load: Any) -> dict[str, Any]:
    return {
        "broker": load.broker,
        "replicas": f"{load.replicas_before} -> {load.replicas_after}",
        "first": f"{load.first_before} -> {load.first_after}",
        "movesIn": load.moves_in,
        "movesOut": load.moves_out,
        "bytesIn": load.bytes_in,
    }


def _write(out: Path, found: Plan) -> None:
    from state_machines.planning.json_files import UnusableFile, encode_plan

    try:
        out.write_bytes(encode_plan(found))
    except (OSError, UnusableFile) as error:
        raise Failure(Exit.FAILED, f"{out} cannot be written: {error}", "name another file with --out") from error


def undone(session: Session, named: str, topics: Topics) -> Undo:
    """Returns the goal that takes back a plan, by the pid of a plan or drain that has ended, or by the plan's file."""
    from state_machines.planning.goals import Undo, chosen_topics

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
    from state_machines.planning.json_files import UnusableFile, decode_plan

    remedy = "give the pid of a plan, or a file of regent reassign plan: it has the former replicas"
    try:
        return list(decode_plan(file.read_bytes()).moves)
    except (OSError, UnusableFile) as error:
        raise Failure(Exit.USAGE, unusable(file, error), remedy) from error


def unusable(file: Path, error: Exception) -> str:
    """Words why a file of a plan is of no use."""
    return f"{file} cannot be read: {error.strerror}" if isinstance(error, OSError) else f"{file}: {error}"
