"""Adds regent reassign: plans that move replicas below caps, survive any crash, and can be taken back."""

from __future__ import annotations

import uuid
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from cli.commands import reassign_plan
from cli.commands.procedures import MEASURED_S_MAX, Pid, WaitS, Yes, awaited, name_families, report
from cli.exit_codes import Exit, Failure
from cli.help import Panel
from cli.progress import sentence
from cli.rates import Throttle, given
from cli.session import Session, command, confirmed, group

if TYPE_CHECKING:
    from cli.client import Json

Topics = Annotated[list[str] | None, typer.Option("--topic", help="Limits it to a topic; repeatable.")]
MOVES_MAX: Final = 10_000
"""Moves of one plan; the daemon refuses longer ones."""
SHOWN_MAX: Final = 20
"""Moves that are shown before a plan begins."""
Caps = Annotated[int | None, typer.Option(min=1, help="Moves under way in the whole cluster (default: 100).")]
BrokerCaps = Annotated[
    int | None, typer.Option(min=1, help="Replicas that one broker receives at a time (default: 10).")
]
BytesCap = Annotated[
    int | None, typer.Option(min=0, help="Bytes of the moves under way in the whole cluster; 0: no cap (default).")
]
BrokerBytesCap = Annotated[
    int | None, typer.Option(min=0, help="Bytes that one broker receives at a time; 0: no cap (default).")
]
Reason = Annotated[str, typer.Option("--reason", help="The reason; kept with the plan.")]


def register(app: typer.Typer) -> None:
    """Adds the commands."""
    named = group(
        app, "reassign", "Move replicas by a plan that survives any crash and can be taken back.", Panel.CHANGE
    )
    command(named, name="plan", examples=reassign_plan.EXAMPLES)(reassign_plan.make)
    command(
        named,
        examples=(
            "regent reassign apply plan.json --dry-run",
            'regent reassign apply plan.json --yes --wait --reason "rack 3 is full"',
        ),
    )(apply)
    command(named, name="list", examples=("regent reassign list", "regent reassign list --topic orders -o wide"))(
        listed
    )
    command(
        named,
        examples=("regent reassign adopt --yes", "regent reassign adopt --topic orders --throttle 50000000 --yes"),
    )(adopt)
    command(named, examples=("regent reassign show 12", "regent reassign show 12 -o json"))(show)
    command(named, examples=("regent reassign pause 12",))(pause)
    command(
        named, examples=("regent reassign resume 12", "regent reassign resume 12 --broker-moves-max 2 --throttle 0")
    )(resume)
    command(named, name="set", examples=("regent reassign set 12 --bytes-max 50000000000",))(change)
    command(named, examples=("regent reassign cancel 12 --yes", "regent reassign cancel 12 --roll-back --yes"))(cancel)


def apply(
    session: Session,
    plan: Annotated[Path, typer.Argument(help="File of regent reassign plan, or of kafka-reassign-partitions.")],
    moves_max: Caps = None,
    broker_moves_max: BrokerCaps = None,
    bytes_max: BytesCap = None,
    broker_bytes_max: BrokerBytesCap = None,
    throttle: Throttle = None,
    nonce: Annotated[
        str, typer.Option("--nonce", help="Name of this call: repeated with the same one it starts no second plan.")
    ] = "",
    reason: Reason = "",
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Judge the plan, do nothing.")] = False,
    yes: Yes = False,
    wait: Annotated[bool, typer.Option("--wait", help="Wait for the end.")] = False,
    timeout: WaitS = 86_400,
) -> None:
    """Begin a plan: its partitions move in waves below the caps; the response is its pid."""
    found = read_plan(plan)
    _show_moves(session, found["moves"])
    confirmed(yes or dry_run, f"Move {len(found['moves'])} partitions?")
    request: Json = {
        **found,
        "nonce": nonce or uuid.uuid4().hex,
        "reason": reason,
        "dryRun": dry_run,
        **_caps(moves_max, broker_moves_max, bytes_max, broker_bytes_max),
        **given(throttle),
    }
    try:
        found = session.client(MEASURED_S_MAX).post("/v1/reassignments", request)["items"][0]
    except Failure as failure:
        if failure.code is not Exit.UNREACHABLE:
            raise
        again = f"the plan may have begun: repeat the command with --nonce {request['nonce']}, it begins no second one"
        raise Failure(failure.code, failure.message, again) from failure
    if dry_run or not wait:
        session.output.detail("Procedure", found)
        return
    session.output.message(
        f"pid {found['pid']}: it goes on without this command: regent procedures wait {found['pid']}"
    )
    report(session, awaited(session, found["pid"], timeout))


def _show_moves(session: Session, moves: list[Json]) -> None:
    """Shows people the first moves of a plan that is about to begin; a file of Kafka's tool has no former replicas."""
    if session.output.for_programs:
        return
    replicas = ({"origin": list(one.get("origin") or ()), "target": list(one["target"])} for one in moves)
    shown = [one | placed for one, placed in zip(moves[:SHOWN_MAX], replicas, strict=False)]
    session.output.listing("PlannedMove", shown)
    if len(moves) > SHOWN_MAX:
        session.output.message(f"and {len(moves) - SHOWN_MAX} more moves")


def show(session: Session, pid: Pid) -> None:
    """Show the moves of a plan: status, bytes copied, rate, time to go, and why nothing moves."""
    client = session.client(MEASURED_S_MAX)
    session.output.listing("Move", client.get(f"/v1/procedures/{pid}/moves")["items"])
    if not session.output.for_programs:
        session.output.message(f"pid {pid}: {sentence(client.get(f'/v1/procedures/{pid}')['items'][0])}")


def pause(session: Session, pid: Pid) -> None:
    """Begin no further moves; those under way go on."""
    _command(session, pid, paused=True)


def resume(
    session: Session,
    pid: Pid,
    moves_max: Caps = None,
    broker_moves_max: BrokerCaps = None,
    bytes_max: BytesCap = None,
    broker_bytes_max: BrokerBytesCap = None,
    throttle: Throttle = None,
) -> None:
    """Go on with a paused plan, or give one that runs other caps or another throttle."""
    caps = _caps(moves_max, broker_moves_max, bytes_max, broker_bytes_max)
    _command(session, pid, paused=False, **given(throttle), **caps)


def change(
    session: Session,
    pid: Pid,
    moves_max: Caps = None,
    broker_moves_max: BrokerCaps = None,
    bytes_max: BytesCap = None,
    broker_bytes_max: BrokerBytesCap = None,
    throttle: Throttle = None,
) -> None:
    """Give a plan other caps or another throttle; a paused one stays paused."""
    changes = {**given(throttle), **_caps(moves_max, broker_moves_max, bytes_max, broker_bytes_max)}
    if not changes:
        raise Failure(Exit.USAGE, "nothing to change is given", "give a cap or --throttle: regent reassign set --help")
    _command(session, pid, **changes)


def cancel(
    session: Session,
    pid: Pid,
    roll_back: Annotated[
        bool, typer.Option("--roll-back", help="Give every partition its original replicas back.")
    ] = False,
    yes: Yes = False,
    reason: Annotated[str, typer.Option("--reason", help="The reason; kept with the plan.")] = "",
) -> None:
    """Stop a plan: what is queued does not begin; with --roll-back everything is taken back."""
    if not roll_back:
        confirmed(yes, f"Stop plan {pid}?")
        _command(session, pid, stop=True, reason=reason or None)
        return
    confirmed(yes, f"Take everything back that plan {pid} moved? A drain's plan is taken back with its drain.")
    found = session.client().post(f"/v1/procedures/{pid}/abort", {"reason": reason} if reason else {})["items"][0]
    session.output.detail("Procedure", found)
    name_families(session, [found])


def _command(session: Session, pid: int, **change: Any) -> None:
    found = session.client().post(f"/v1/reassignments/{pid}", _given(**change))["items"][0]
    session.output.detail("Procedure", found)


def _caps(
    moves_max: int | None, broker_moves_max: int | None, bytes_max: int | None, broker_bytes_max: int | None
) -> Json:
    return _given(
        movesMax=moves_max, brokerMovesMax=broker_moves_max, bytesMax=bytes_max, brokerBytesMax=broker_bytes_max
    )


def _given(**options: Any) -> dict[str, Any]:
    return {name: value for name, value in options.items() if value is not None}


def read_plan(file: Path) -> Json:
    """Reads a file of ``regent reassign plan`` or of kafka-reassign-partitions as the begin of a request.

    Raises :class:`Failure` that names what is wrong with it.
    """
    from state_machines.planning.json_files import UnusableFile

    try:
        data = file.read_bytes()
        found = _saved(data) if b'"cluster_id"' in data else _kafkas(data)
    except OSError as error:
        raise Failure(Exit.USAGE, f"{file} cannot be read: {error.strerror}", "name the plan's file") from error
    except UnusableFile as error:
        raise Failure(Exit.USAGE, f"{file}: {error}", "make a plan: regent reassign plan --help") from error
    count = len(found["moves"])
    if not 0 < count <= MOVES_MAX:
        message = f"{file} has {count} moves, a plan has between 1 and {MOVES_MAX}"
        raise Failure(Exit.USAGE, message, "limit the plan with --topic" if count else "name at least one partition")
    return found


def _saved(data: bytes) -> Json:
    from state_machines.planning.json_files import decode_plan

    saved = decode_plan(data)
    moves = [
        {
            "topic": move.topic,
            "partition": move.partition,
            "origin": move.origin,
            "target": move.target,
            "sizeBytes": move.bytes or 0,
        }
        for move in saved.moves
    ]
    return {"moves": moves, "clusterId": saved.cluster_id}


def _kafkas(data: bytes) -> Json:
    from state_machines.planning.json_files import decode_kafka

    partitions = decode_kafka(data).partitions
    return {"moves": [{"topic": p.topic, "partition": p.partition, "target": p.replicas} for p in partitions]}


def listed(session: Session, topic: Topics = None) -> None:
    """List reassignments under way: of plans, with their pid, and of other clients."""
    session.output.listing("Reassignment", _under_way(session, topic))


def adopt(
    session: Session,
    topic: Topics = None,
    throttle: Throttle = None,
    reason: Annotated[str, typer.Option("--reason", help="The reason; kept with the plan.")] = "",
    yes: Yes = False,
) -> None:
    """Make a plan of reassignments that other clients began: with progress, a throttle, and a way back."""
    foreign = [one for one in _under_way(session, topic) if one.get("pid") is None]
    if not foreign:
        where = f" in {', '.join(topic)}" if topic else ""
        message = f"no reassignment of another client is under way{where}"
        raise Failure(Exit.REFUSED, message, "see regent reassign list")
    confirmed(yes, f"Adopt {len(foreign)} reassignments?")
    moves = [{field: one[field] for field in ("topic", "partition", "origin", "target")} for one in foreign]
    request: Json = {
        "moves": moves,
        "adopts": True,
        **given(throttle),
        "reason": reason,
        "nonce": uuid.uuid4().hex,
    }
    found = session.client(MEASURED_S_MAX).post("/v1/reassignments", request)["items"][0]
    session.output.detail("Procedure", found)


def _under_way(session: Session, topics: list[str] | None) -> list[Json]:
    found = session.client().get("/v1/reassignments")["items"]
    return [one for one in found if topics is None or one["topic"] in topics]
