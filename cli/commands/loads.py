"""Adds regent loads: sizes and offsets of all partitions in a file, for plans."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from cli.exit_codes import Exit, Failure
from cli.help import Panel
from cli.session import Session, command

if TYPE_CHECKING:
    from cli.loads import Lacking, Result


def register(app: typer.Typer) -> None:
    """Adds the command."""
    command(
        app,
        panel=Panel.PIPELINE,
        examples=("regent loads --into loads.csv", "regent loads --into later.jsonl -o json"),
    )(loads)


def loads(
    session: Session,
    into: Annotated[
        Path, typer.Option("--into", metavar="FILE", help="File that is written or replaced: CSV, or .jsonl.")
    ],
    partial: Annotated[
        bool, typer.Option("--partial", help="Write FILE also where a registered broker does not respond.")
    ] = False,
) -> None:
    """Read sizes and offsets of all partitions from the brokers into a file; needs no daemon.

    Two files give rates. Exit code 1 where a registered broker did not respond: FILE stays as it was, and another one,
    with .partial in its name, has the others.
    """
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


def _sentence(lack: Lacking) -> str:
    more = f" and {lack.partitions - len(lack.named)} more" if lack.partitions > len(lack.named) else ""
    return f"broker {lack.broker} lacks {lack.partitions} partitions, {lack.why}: {', '.join(lack.named)}{more}"


def _lacking(found: Result, into: Path) -> Failure:
    silent = ", ".join(map(str, found.silent))
    what = f"brokers {silent} did not respond: {found.file} lacks them"
    if found.file == str(into):
        return Failure(Exit.FAILED, what, "repeat the command")
    return Failure(Exit.FAILED, f"{what}, {into} was not written", "repeat the command, or add --partial")
