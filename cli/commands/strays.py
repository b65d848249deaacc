"""Adds regent strays: logs on brokers that no assignment names."""

from __future__ import annotations

from typing import Annotated, Final

import typer

from cli.columns import cell
from cli.exit_codes import Exit
from cli.help import Panel
from cli.session import Session, command

REPORT_TIMEOUT_S: Final = 60.0
"""Longest wait for the reports of all brokers."""

Chosen = Annotated[
    list[int] | None, typer.Argument(help="Ids of the brokers (default: all).", min=0, metavar="[BROKER...]")
]


def register(app: typer.Typer) -> None:
    """Adds the command."""
    command(app, panel=Panel.LOOK, examples=("regent strays", "regent strays 3 -o json"))(strays)


def strays(session: Session, brokers: Chosen = None) -> None:
    """List logs on brokers that no assignment names: exit code 3 if there are any, 1 if a broker sent no report.

    Such a log occupies disk, and Kafka never deletes it by itself. Nothing is changed.
    """
    output = session.output
    found = session.client(REPORT_TIMEOUT_S).get("/v1/strays", {"broker": brokers or []})["items"][0]
    listed, unread = found["strays"], found["unread"]
    if output.for_programs:
        output.document("StrayReport", [found])
    elif listed:
        output.listing("StrayLog", listed)
    for broker in unread:
        output.message(f"the logs of broker {broker['broker']} are not known: {broker['why']}", style="yellow")
    if found["cut"]:
        output.message(f"brokers {cell(found['cut'])} have more strays than are listed", style="yellow")
    size = sum(stray["sizeBytes"] for stray in listed)
    where = f"on brokers {cell(found['brokers'])}"
    text = f"{len(listed)} strays {where}, {size} bytes" if listed else f"no strays {where}"
    output.message(text, style="red" if listed else "green")
    if listed or unread:
        raise typer.Exit(Exit.FAILED if unread else Exit.REFUSED)
