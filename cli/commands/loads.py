"""Adds regent loads: sizes and offsets of all partitions in a file, for plans."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer

from cli.exit_codes import Exit, Failure
from cli.help import Panel
from cli.prometheus_queries import USUAL, Queries, Source
from cli.session import Session, command

if TYPE_CHECKING:
    from cli.loads import Lacking, Result

NAMED_MAX: Final = 5
"""Topics that a warning names."""
Query = Annotated[str, typer.Option(metavar="PROMQL", help="Of Prometheus; empty: none.")]


def register(app: typer.Typer) -> None:
    """Adds the command."""
    command(
        app,
        panel=Panel.PIPELINE,
        examples=(
            "regent loads --into loads.csv",
            "regent loads --into later.jsonl -o json",
            "regent loads --prometheus http://prometheus:9090 --since 14d --step 1h --into fortnight.csv",
        ),
    )(loads)


def loads(
    session: Session,
    into: Annotated[
        Path, typer.Option("--into", metavar="FILE", help="File that is written or replaced: CSV, or .jsonl.")
    ],
    partial: Annotated[
        bool, typer.Option("--partial", help="Write FILE also where a registered broker does not respond.")
    ] = False,
    prometheus: Annotated[
        str | None, typer.Option("--prometheus", metavar="URL", help="Read from Prometheus instead of the brokers.")
    ] = None,
    since: Annotated[
        str | None,
        typer.Option("--since", help="Of Prometheus: from then until now, as 14d or a time (default: now)."),
    ] = None,
    step: Annotated[str, typer.Option("--step", help="Of Prometheus: time between two moments since then.")] = "1h",
    token_file: Annotated[
        Path | None, typer.Option("--token-file", help="File with the bearer token that Prometheus wants.")
    ] = None,
    size_query: Query = USUAL.size,
    bytes_in_query: Query = USUAL.bytes_in,
    bytes_out_query: Query = USUAL.bytes_out,
    records_query: Query = USUAL.records,
) -> None:
    """Read sizes and offsets of all partitions from the brokers into a file; needs no daemon.

    Two files give rates. Exit code 1 where a registered broker did not respond: FILE stays as it was, and another one,
    with .partial in its name, has the others. With --prometheus sizes and rates come from there.
    """
    if prometheus is not None:
        queries = Queries(size_query, bytes_in_query, bytes_out_query, records_query)
        _from_prometheus(session, Source(prometheus, _token(token_file)), into, _moments(since, step), queries)
        return
    settings = session.settings().settings
    from cli.loads import write_loads

    found = asyncio.run(write_loads(settings, into, partial=partial))
    if session.output.for_programs:
        from msgspec import to_builtins

        session.output.document("Loads", [to_builtins(found)])
    else:
        session.output.text(f"{found.file}: {found.rows} logs of {found.brokers} brokers")
        for lack in found.lacking:
            session.output.message(_sentence(lack), style="yellow")
    if found.silent:
        raise _lacking(found, into)


def _from_prometheus(session: Session, source: Source, into: Path, moments_s: Sequence[int], queries: Queries) -> None:
    from cli.prometheus_loads import write_loads

    found = write_loads(source, into, moments_s, queries)
    if session.output.for_programs:
        from msgspec import to_builtins

        session.output.document("PrometheusLoads", [to_builtins(found)])
    else:
        session.output.text(f"{found.file}: {found.partitions} partitions at {found.moments} moments")
    if found.unknown:
        named = ", ".join(found.unknown[:NAMED_MAX]) + (" and others" if len(found.unknown) > NAMED_MAX else "")
        what = f"{len(found.unknown)} topics have traffic and no partition of known size, and are left out: {named}"
        session.output.message(what, style="yellow")


def _moments(since: str | None, step: str) -> Sequence[int]:
    """Returns moments in seconds of the wall clock, the last one now."""
    from cli.verbs import as_failure
    from pipeline.verbs.options import length, moment

    now = datetime.now(UTC)
    with as_failure():
        begin_us = moment("--since", since, now)
    span = length(step)
    if not span or span.total_seconds() < 1:
        raise Failure(Exit.USAGE, f"--step {step} is no length of a second or more", "give 15m or 1h, for instance")
    end = int(now.timestamp())
    begin = end if begin_us is None else begin_us // 1_000_000
    if begin > end:
        raise Failure(Exit.USAGE, f"--since {since} is in the future", "give a time before now")
    return range(end, begin - 1, -int(span.total_seconds()))[::-1]


def _token(file: Path | None) -> str:
    if file is None:
        return ""
    try:
        return file.read_text(encoding="utf-8").strip()
    except (OSError, UnicodeDecodeError) as error:
        raise Failure(Exit.USAGE, f"--token-file {file} cannot be read: {error}") from None


def _sentence(lack: Lacking) -> str:
    more = f" and {lack.partitions - len(lack.named)} more" if lack.partitions > len(lack.named) else ""
    return f"broker {lack.broker} lacks {lack.partitions} partitions, {lack.why}: {', '.join(lack.named)}{more}"


def _lacking(found: Result, into: Path) -> Failure:
    silent = ", ".join(map(str, found.silent))
    what = f"brokers {silent} did not respond: {found.file} lacks them"
    if found.file == str(into):
        return Failure(Exit.FAILED, what, "repeat the command")
    return Failure(Exit.FAILED, f"{what}, {into} was not written", "repeat the command, or add --partial")
