"""Adds regent pipeline report: what stops of brokers cost, as a page, JSON, CSV and Parquet."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final, NamedTuple

import typer

from cli.commands.event_filters import moment
from cli.commands.spark import LOCAL, Conf, Master, running
from cli.exit_codes import Exit, Failure
from cli.planner_needs import warn_of_strangers
from cli.session import Session

if TYPE_CHECKING:
    from pipeline.report.asking import Wanted
    from pipeline.report.job import Files
    from pipeline.report.result import Result

EXAMPLES: Final = (
    "regent pipeline report /journals/merged",
    "regent pipeline report /journals/merged --since 2026-11-20T22:00 --until 2026-11-21T04:00 --session-timeout 18000",
    "regent pipeline report /journals/merged --since 1d --against-since 8d --against-until 7d",
    "regent pipeline report /journals/merged --topic-prefix orders. --fail-over 30",
)
TICK_MS: Final = 2_000
LIST: Final = 5
"""Topics that a refusal names."""

Since = Annotated[str | None, typer.Option("--since", help="Begin: 90s, 30m, 2h, 1d ago, or a time in ISO 8601.")]
Until = Annotated[str | None, typer.Option("--until", help="End, in the same forms.")]


class _Span(NamedTuple):
    since: str | None
    until: str | None
    names: tuple[str, str]


class _Beside(NamedTuple):
    """What to compare with: another folder, or None for the same one, and a window."""

    folder: str | None
    since_us: int | None
    until_us: int | None


class _Asked(NamedTuple):
    folder: str
    into: str
    cluster: str | None
    wanted: Wanted
    beside: _Beside | None
    files: Files


def report(
    session: Session,
    folder: Annotated[str, typer.Argument(help="Folder that 'regent pipeline ingest' made.")],
    into: Annotated[
        str | None, typer.Option("--into", help="Folder for the report, 'report' in the other folder by default.")
    ] = None,
    since: Since = None,
    until: Until = None,
    topic_prefix: Annotated[str, typer.Option("--topic-prefix", help="Only topics whose names begin so.")] = "",
    cluster: Annotated[
        str | None, typer.Option("--cluster", help="The cluster's id, where the folder has several.")
    ] = None,
    session_timeout: Annotated[
        int | None,
        typer.Option(
            "--session-timeout",
            min=1,
            help="zookeeper.session.timeout.ms of brokers, in ms; for deaths whose rows do not have it.",
        ),
    ] = None,
    zookeeper_tick: Annotated[
        int, typer.Option("--zookeeper-tick", min=0, help="tickTime of ZooKeeper, in ms.")
    ] = TICK_MS,
    snapshot: Annotated[
        Path | None, typer.Option("--snapshot", help="Snapshot of the daemon: min ISR, partitions, session time-outs.")
    ] = None,
    loads: Annotated[
        Path | None, typer.Option("--loads", help="Loads of partitions, for bytes of reassignments; with --snapshot.")
    ] = None,
    against: Annotated[
        str | None, typer.Option("--against", help="Another folder of 'regent pipeline ingest' to compare with.")
    ] = None,
    against_since: Annotated[
        str | None, typer.Option("--against-since", help="Begin of the time to compare with.")
    ] = None,
    against_until: Annotated[
        str | None, typer.Option("--against-until", help="End of the time to compare with.")
    ] = None,
    fail_over: Annotated[
        float | None,
        typer.Option("--fail-over", min=0.0, help="Exit code 3 if any topic was without a leader for more seconds."),
    ] = None,
    master: Master = LOCAL,
    conf: Conf = None,
) -> None:
    """Report what each stop of a broker cost: a page, JSON, CSV and Parquet."""
    now = datetime.now(UTC)
    here = _span(_Span(since, until, ("--since", "--until")), now)
    there = _span(_Span(against_since, against_until, ("--against-since", "--against-until")), now)
    if loads is not None and snapshot is None:
        raise Failure(Exit.USAGE, "--loads needs --snapshot", "name the snapshot of the same time, too")
    target = into or f"{folder.rstrip('/')}/report"
    beside = _Beside(against, *there) if against is not None or there != (None, None) else None
    with running(master, conf) as spark:
        from pipeline.report.asking import Wanted

        wanted = Wanted(*here, topic_prefix, session_timeout, zookeeper_tick)
        found = _made(spark, _Asked(folder, target, cluster, wanted, beside, _files(session, snapshot, loads)))
    _print(session, found, target)
    if fail_over is not None:
        _judge(session, found, fail_over)


def _made(spark: Any, asked: _Asked) -> Result:
    """Makes the report and writes it; raises :class:`Failure`."""
    from msgspec.structs import replace

    from pipeline.executors import Unfit
    from pipeline.report.against import compared
    from pipeline.report.job import NoReport, on_spark, report, source
    from pipeline.report.outputs import aside, discard, write
    from pipeline.storage import NothingToRead

    intervals = ""
    try:
        of = source(asked.folder, asked.cluster)
        intervals, engine = aside(asked.into), on_spark(spark)
        found = report(engine, of, asked.wanted, asked.files, intervals)
        if asked.beside is not None:
            folder, since_us, until_us = asked.beside
            other = of if folder is None else source(folder, asked.cluster)
            wanted = replace(asked.wanted, since_us=since_us, until_us=until_us)
            beside = report(engine, other, wanted, asked.files)
            found = replace(found, against=compared(found, beside))
        found = write(found, asked.into, intervals)
    except NothingToRead as error:
        raise Failure(Exit.FAILED, str(error), "run 'regent pipeline ingest' first") from None
    except (NoReport, Unfit) as error:
        raise Failure(Exit.FAILED, str(error)) from None
    except OSError as error:
        message = f"{asked.into} cannot be written: {error.strerror or error}"
        raise Failure(Exit.FAILED, message, "name another folder by --into") from None
    finally:
        if intervals:
            discard(intervals)
    return found


def _span(span: _Span, now: datetime) -> tuple[int | None, int | None]:
    """Returns a window in microseconds; raises :class:`Failure` if it ends before it begins."""
    begin, end = (moment(name, text, now) for name, text in zip(span.names, span[:2], strict=True))
    if begin is not None and end is not None and end < begin:
        first, second = span.names
        raise Failure(Exit.USAGE, f"{second} {span.until} is before {first} {span.since}", "exchange the two")
    return begin, end


def _files(session: Session, snapshot: Path | None, loads: Path | None) -> Files:
    from pipeline.report.job import Files

    if snapshot is None:
        return Files()
    from pipeline.inputs import BadInput
    from pipeline.loads_file import read_loads
    from pipeline.snapshot_file import read_snapshot

    try:
        table = read_snapshot(snapshot)
        found = None if loads is None else read_loads(table.partitions, loads)
    except BadInput as error:
        raise Failure(Exit.USAGE, str(error)) from None
    if found is None:
        return Files(table)
    warn_of_strangers(session, found.unknown, loads)
    of = table.partitions
    known = zip(of.topic.tolist(), of.partition.tolist(), found.size_bytes.tolist(), strict=True)
    return Files(table, {(of.topics[topic], number): size for topic, number, size in known if size >= 0})


def _print(session: Session, found: Result, folder: str) -> None:
    """Prints the result for programs; for people a line for each stop and the page's name."""
    from pipeline.report.outputs import PAGE
    from pipeline.report.wording import seconds, time

    if session.output.for_programs:
        from msgspec import to_builtins

        session.output.document("Report", [to_builtins(found)])
    else:
        for stop in found.stops:
            kind = "planned" if stop.planned else "unplanned"
            session.output.text(
                f"{time(stop.begin_us)} broker {stop.broker} {kind}: {stop.led} partitions without a leader for "
                f"{seconds(stop.cost.known_s)}, at most {seconds(stop.cost.at_most_s)}, all together"
            )
    session.output.message(f"{len(found.stops)} stops, {len(found.topics)} topics: {folder}/{PAGE}", style="green")


def _judge(session: Session, found: Result, limit_s: float) -> None:
    over = sorted(
        (topic for topic in found.topics if topic.cost.known_s > limit_s), key=lambda topic: -topic.cost.known_s
    )
    if over:
        named = ", ".join(f"{topic.topic} ({topic.cost.known_s:g} s)" for topic in over[:LIST])
        session.output.message(
            f"{len(over)} topics were without a leader for more than {limit_s:g} s: {named}", style="red"
        )
        raise typer.Exit(Exit.REFUSED)
