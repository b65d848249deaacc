"""Adds regent pipeline, which runs jobs on Spark over the journals of all daemons; no daemon needs to be alive."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Final

import typer

from cli.commands import pipeline_plan
from cli.exit_codes import Exit, Failure
from cli.help import Panel
from cli.session import Session, command, group
from cli.verbs import agreeing, as_command, needed, snapshot_named, warn_of_strangers
from pipeline.verbs import VERBS

EXAMPLES: Final = (
    "regent pipeline what-if --snapshot snapshot.jsonl --loads loads.csv",
    "regent pipeline what-if --snapshot /var/lib/regent/snapshots --set maintenance=1,2",
)


def what_if(
    session: Session,
    snapshot: Annotated[
        Path, typer.Option("--snapshot", help="Snapshot of a daemon, or a folder of them: the newest counts.")
    ],
    loads: Annotated[
        Path | None, typer.Option("--loads", help="Loads of partitions: CSV, JSON lines or Parquet.")
    ] = None,
    named: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="NAME=ID,...", help="Brokers that are lost together; repeatable."),
    ] = None,
) -> None:
    """Show what the sudden loss of each broker, of each rack and of named sets would cost; needs no daemon.

    Exit code 3 where the loss of a named set leaves a partition without a leader.
    """
    with needed():
        from pipeline.inputs import BadInput, Loads
        from pipeline.loads_file import read_loads
        from pipeline.what_if import Loss, losses, sets_of
    wanted = dict(_set(text) for text in named or ())
    try:
        read = snapshot_named(session, snapshot)
        known = read_loads(read.partitions, loads) if loads is not None else Loads.none(len(read.partitions))
        warn_of_strangers(session, known.unknown, loads)
        sets = sets_of(read, wanted)
        with agreeing():
            found: list[Loss] = list(losses(read, known, sets))
    except BadInput as error:
        raise Failure(Exit.USAGE, str(error)) from None
    session.output.listing(
        "Loss",
        [
            {
                "lost": one.name,
                "offline": one.offline,
                "underMinIsr": one.under_min_isr,
                "leadersMoved": one.led,
                "mostLeaders": _busiest(one.most_leaders),
                "mostBytesIn": _busiest(one.most_bytes_in),
                "partitions": list(one.named),
            }
            for one in found
        ],
    )
    if any(one.offline for one in found if one.name in wanted):
        raise typer.Exit(Exit.REFUSED)


def _busiest(found: tuple[int, float] | None) -> str:
    return "" if found is None else f"{found[1]:.0f} on {found[0]}"


def _set(text: str) -> tuple[str, tuple[int, ...]]:
    name, equals, ids = text.partition("=")
    brokers = ids.split(",")
    if not (name and equals and all(one.isascii() and one.isdigit() for one in brokers)):
        raise Failure(Exit.USAGE, f"--set {text} is no set", "give a name and ids of brokers, such as maintenance=1,2")
    return name, tuple(int(one) for one in brokers)


def register(app: typer.Typer) -> None:
    """Adds the commands."""
    named = group(
        app, "pipeline", "Merge and judge the journals of all daemons, report from them, plan moves.", Panel.PIPELINE
    )
    command(named, examples=pipeline_plan.EXAMPLES)(pipeline_plan.plan)
    command(named, examples=EXAMPLES)(what_if)
    for verb, examples in VERBS:
        command(named, examples=examples)(as_command(verb))
