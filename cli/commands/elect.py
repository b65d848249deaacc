"""Adds regent elect: preferred leaders in waves, and unclean leaders of partitions that have none."""

from __future__ import annotations

import uuid
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer

from cli.commands.procedures import WaitS, awaited, report
from cli.exit_codes import Exit, Failure
from cli.help import Panel
from cli.session import Session, command, group, on_terminal

if TYPE_CHECKING:
    from cli.client import Json

PARTITIONS_MAX: Final = 10_000
"""Partitions of one election by name; the daemon refuses more."""

Named = Annotated[list[str] | None, typer.Argument(help="Partitions.", metavar="[TOPIC:PARTITION...]")]
File = Annotated[Path | None, typer.Option("--file", help="File of kafka-leader-election with the partitions.")]
Reason = Annotated[str, typer.Option("--reason", help="The reason; kept with the election.")]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Count what would be elected, do nothing.")]
Wait = Annotated[bool, typer.Option("--wait", help="Wait for the end.")]


def register(app: typer.Typer) -> None:
    """Adds the commands."""
    named = group(app, "elect", "Elect leaders of many partitions, in waves that survive any crash.", Panel.CHANGE)
    command(
        named,
        examples=(
            "regent elect preferred --all --dry-run",
            "regent elect preferred --all --batch 200 --wait",
            "regent elect preferred orders:0 orders:1",
        ),
    )(preferred)
    command(
        named,
        examples=(
            "regent elect unclean orders:3",
            "regent elect unclean orders:3 --confirm-topic orders --wait",
        ),
    )(unclean)


def preferred(
    session: Session,
    partitions: Named = None,
    file: File = None,
    every: Annotated[bool, typer.Option("--all", help="All partitions.")] = False,
    batch: Annotated[int, typer.Option("--batch", min=1, max=1_000, help="Partitions of one wave.")] = 1_000,
    reason: Reason = "",
    dry_run: DryRun = False,
    wait: Wait = False,
    timeout: WaitS = 3600,
) -> None:
    """Give partitions their preferred leaders. Drained brokers get none; a pause of moves holds it up."""
    named = _named(partitions, file)
    if bool(named) is every:
        raise Failure(Exit.USAGE, "give partitions, --file, or --all", "one of them")
    body = {"kind": "preferred", "partitions": named, "allPartitions": every, "batchMax": batch}
    _begun(session, {**body, "reason": reason, "dryRun": dry_run}, wait, timeout)


def unclean(
    session: Session,
    partitions: Named = None,
    file: File = None,
    confirmed_topics: Annotated[
        list[str] | None,
        typer.Option("--confirm-topic", metavar="TOPIC", help="Confirm a topic without a question; may be repeated."),
    ] = None,
    reason: Reason = "",
    dry_run: DryRun = False,
    wait: Wait = False,
    timeout: WaitS = 3600,
) -> None:
    """Elect replicas that were not in sync, where no other can lead: acknowledged records may be lost for ever.

    Each topic is confirmed by its name: typed on a terminal, or given by --confirm-topic.
    """
    named = _named(partitions, file)
    if not named:
        raise Failure(Exit.USAGE, "give partitions, or --file", "regent list partitions --offline lists them")
    if not dry_run:
        _confirm({one["topic"] for one in named} - set(confirmed_topics or ()))
    body = {"kind": "unclean", "partitions": named, "reason": reason, "dryRun": dry_run}
    _begun(session, body, wait, timeout)


def _confirm(topics: set[str]) -> None:
    """Has each topic's name typed; raises :class:`Failure` without a terminal, or for another name."""
    for topic in sorted(topics):
        if not on_terminal():
            remedy = f"give --confirm-topic {topic}, or --dry-run"
            raise Failure(Exit.USAGE, f"records of topic {topic} may be lost, and no terminal can confirm it", remedy)
        typed = typer.prompt(f"Acknowledged records of {topic} may be lost. Type the topic's name", err=True)
        if typed != topic:
            raise Failure(Exit.REFUSED, f"{typed!r} is not {topic}: nothing was done")


def _begun(session: Session, body: Json, wait: bool, timeout_s: float) -> None:
    found = session.client().post("/v1/elections", {**body, "nonce": uuid.uuid4().hex})["items"][0]
    if wait and not body["dryRun"]:
        report(session, awaited(session, found["pid"], timeout_s))
    else:
        session.output.detail("Procedure", found)


def _named(partitions: list[str] | None, file: Path | None) -> list[Json]:
    """Returns the partitions of a command; raises :class:`Failure`."""
    if partitions and file is not None:
        raise Failure(Exit.USAGE, "partitions are given, and --file, too", "give one of them")
    found = _read(file) if file is not None else [_parsed(one) for one in partitions or []]
    if len(found) > PARTITIONS_MAX:
        message = f"{len(found)} partitions are more than the {PARTITIONS_MAX} of one election"
        raise Failure(Exit.USAGE, message, "split them, or give --all")
    return found


def _parsed(text: str) -> Json:
    topic, _, number = text.rpartition(":")
    if not topic or not number.isdecimal():
        raise Failure(Exit.USAGE, f"{text} is no partition", "give TOPIC:PARTITION, such as orders:0")
    return {"topic": topic, "partition": int(number)}


def _read(file: Path) -> list[Json]:
    from state_machines.planning.json_files import UnusableFile, decode_elections

    try:
        found = decode_elections(file.read_bytes())
    except OSError as error:
        raise Failure(Exit.USAGE, f"{file} cannot be read: {error.strerror}") from error
    except UnusableFile as error:
        remedy = 'as kafka-leader-election takes it: {"partitions": [{"topic": "orders", "partition": 0}]}'
        raise Failure(Exit.USAGE, f"{file}: {error}", remedy) from error
    return [{"topic": topic, "partition": partition} for topic, partition in found]
