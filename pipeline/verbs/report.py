"""Has the verb ``report``: what stops of brokers cost, as a page, JSON, CSV and Parquet."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final, NamedTuple

from pipeline.ending import DONE, FAILED, REFUSED, USAGE, Stopped, agreeing
from pipeline.verbs.options import Argument, Conf, Master, Option, Quiet, moment
from pipeline.verbs.running import Shown, running, warn_of_strangers

if TYPE_CHECKING:
    from pipeline.report.asking import Wanted
    from pipeline.report.files import Files
    from pipeline.report.job import Source
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

Since = Annotated[str | None, Option("--since", "Begin: 90s, 30m, 2h, 1d ago, or a time in ISO 8601.")]
Until = Annotated[str | None, Option("--until", "End, in the same forms.")]


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
    plans: list[Path]


def report(
    show: Shown,
    folder: Annotated[str, Argument("Folder that 'regent pipeline ingest' made.")],
    into: Annotated[
        str | None, Option("--into", "Folder for the report, 'report' in the other folder by default.")
    ] = None,
    since: Since = None,
    until: Until = None,
    topic_prefix: Annotated[str, Option("--topic-prefix", "Only topics whose names begin so.")] = "",
    cluster: Annotated[str | None, Option("--cluster", "The cluster's id, where the folder has several.")] = None,
    session_timeout: Annotated[
        int | None,
        Option(
            "--session-timeout",
            "zookeeper.session.timeout.ms of brokers, in ms; for deaths whose rows do not have it.",
            min=1,
        ),
    ] = None,
    zookeeper_tick: Annotated[int, Option("--zookeeper-tick", "tickTime of ZooKeeper, in ms.", min=0)] = TICK_MS,
    snapshot: Annotated[
        list[Path] | None,
        Option(
            "--snapshot",
            "Snapshot of a daemon, or a folder of them: min ISR, partitions, session time-outs; repeatable.",
        ),
    ] = None,
    loads: Annotated[
        Path | None, Option("--loads", "Loads of partitions, for bytes of reassignments; with --snapshot.")
    ] = None,
    against: Annotated[
        str | None, Option("--against", "Another folder of 'regent pipeline ingest' to compare with.")
    ] = None,
    against_plan: Annotated[
        list[Path] | None,
        Option("--against-plan", "File of a plan to compare the reassignments with; repeatable for its parts."),
    ] = None,
    against_since: Annotated[str | None, Option("--against-since", "Begin of the time to compare with.")] = None,
    against_until: Annotated[str | None, Option("--against-until", "End of the time to compare with.")] = None,
    fail_over: Annotated[
        float | None,
        Option("--fail-over", "Exit code 3 if any topic was without a leader for more seconds.", min=0.0),
    ] = None,
    master: Master = None,
    conf: Conf = None,
    quiet: Quiet = False,
) -> int:
    """Report what each stop of a broker cost: a page, JSON, CSV and Parquet."""
    now = datetime.now(UTC)
    here = _span(_Span(since, until, ("--since", "--until")), now)
    there = _span(_Span(against_since, against_until, ("--against-since", "--against-until")), now)
    if loads is not None and not snapshot:
        raise Stopped(USAGE, "--loads needs --snapshot", "name the snapshot of the same time, too")
    target = into or f"{folder.rstrip('/')}/report"
    beside = _Beside(against, *there) if against is not None or there != (None, None) else None
    with running(master, conf, quiet=quiet) as spark:
        from pipeline.report.asking import Wanted

        wanted = Wanted(*here, topic_prefix, session_timeout, zookeeper_tick)
        files = _files(show, snapshot or [], loads)
        found = _made(spark, _Asked(folder, target, cluster, wanted, beside, files, against_plan or []))
    _print(show, found, target)
    return DONE if fail_over is None else _judged(show, found, fail_over)


def _made(spark: Any, asked: _Asked) -> Result:
    """Makes the report and writes it; raises :class:`Stopped`."""
    from pipeline.executors import Unfit
    from pipeline.inputs import BadInput
    from pipeline.report.job import NoReport, source
    from pipeline.report.outputs import InUse, alone
    from pipeline.storage import NothingToRead

    try:
        of = source(asked.folder, asked.cluster)
        _same_cluster(of, asked.files)
        with alone(asked.into), agreeing():
            return _written(spark, of, asked)
    except NothingToRead as error:
        raise Stopped(FAILED, str(error), "run 'regent pipeline ingest' first") from None
    except BadInput as error:
        raise Stopped(USAGE, str(error)) from None
    except (NoReport, Unfit, InUse) as error:
        raise Stopped(FAILED, str(error)) from None
    except OSError as error:
        message = f"{asked.into} cannot be written: {error.strerror or error}"
        raise Stopped(FAILED, message, "name another folder by --into") from None


def _written(spark: Any, of: Source, asked: _Asked) -> Result:
    from msgspec.structs import replace

    from pipeline.report.against import compared
    from pipeline.report.files import read_plans
    from pipeline.report.job import on_spark, report, source
    from pipeline.report.outputs import aside, discard, write

    files = replace(asked.files, planned=read_plans(asked.plans, of.cluster))
    intervals, engine = aside(asked.into), on_spark(spark)
    try:
        found = report(engine, of, asked.wanted, files, intervals)
        if asked.beside is not None:
            folder, since_us, until_us = asked.beside
            other = of if folder is None else source(folder, asked.cluster)
            wanted = replace(asked.wanted, since_us=since_us, until_us=until_us, foretell=False)
            beside = report(engine, other, wanted, asked.files)
            found = replace(found, against=compared(found, beside))
        return write(found, asked.into, intervals)
    finally:
        discard(intervals)


def _same_cluster(of: Source, files: Files) -> None:
    """Raises :class:`Stopped` where the snapshots are of another cluster than the journal."""
    if files.snapshot is not None and files.snapshot.cluster != of.cluster:
        message = f"the snapshots are of cluster {files.snapshot.cluster}, the journal is of {of.cluster}"
        raise Stopped(USAGE, message, "name snapshots of that cluster by --snapshot")


def _span(span: _Span, now: datetime) -> tuple[int | None, int | None]:
    """Returns a window in microseconds; raises :class:`Stopped` if it ends before it begins."""
    begin, end = (moment(name, text, now) for name, text in zip(span.names, span[:2], strict=True))
    if begin is not None and end is not None and end < begin:
        first, second = span.names
        raise Stopped(USAGE, f"{second} {span.until} is before {first} {span.since}", "exchange the two")
    return begin, end


def _files(show: Shown, snapshots: list[Path], loads: Path | None) -> Files:
    from pipeline.inputs import BadInput
    from pipeline.report.files import read_files

    try:
        found = read_files(snapshots, loads)
    except BadInput as error:
        raise Stopped(USAGE, str(error)) from None
    if found.loads is not None:
        warn_of_strangers(show, found.loads.unknown, loads)
    return found


def _print(show: Shown, found: Result, folder: str) -> None:
    """Prints the result for programs; for people a line for each stop and the page's name."""
    from pipeline.report.outputs import PAGE
    from pipeline.report.sections import verdict
    from pipeline.report.wording import counted, seconds, time

    if show.for_programs:
        from msgspec import to_builtins

        show.document("Report", [to_builtins(found)])
    else:
        for stop in found.stops:
            kind = "planned" if stop.planned else "unplanned"
            show.text(
                f"{time(stop.begin_us)} broker {stop.broker} {kind}: {counted(stop.led, 'partition')} without a "
                f"leader for {seconds(stop.cost.known_s)}, at most {seconds(stop.cost.at_most_s)}, all together; "
                f"{verdict(stop.usual)}"
            )
    show.message(
        f"{counted(len(found.stops), 'stop')}, {counted(len(found.topics), 'topic')}: {folder}/{PAGE}", style="green"
    )


def _judged(show: Shown, found: Result, limit_s: float) -> int:
    over = sorted(
        (topic for topic in found.topics if topic.cost.known_s > limit_s), key=lambda topic: -topic.cost.known_s
    )
    if over:
        named = ", ".join(f"{topic.topic} ({topic.cost.known_s:g} s)" for topic in over[:LIST])
        show.message(f"{len(over)} topics were without a leader for more than {limit_s:g} s: {named}", style="red")
    return REFUSED if over else DONE
