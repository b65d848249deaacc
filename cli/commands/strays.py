"""Adds regent strays: logs on brokers that no assignment names."""

from __future__ import annotations

from typing import Annotated, Any, Final

import typer

from cli.exit_codes import Exit, Failure
from cli.help import Panel
from cli.output import Output, cell
from cli.session import Session, command, confirmed

REPORT_TIMEOUT_S: Final = 60.0
"""Longest wait for the reports of all brokers."""
REMOVAL_TIMEOUT_S: Final = 100.0
"""Longest wait for the reports, and for the removals after them."""

Chosen = Annotated[
    list[int] | None, typer.Argument(help="Ids of the brokers (default: all).", min=0, metavar="[BROKER...]")
]
Remove = Annotated[bool, typer.Option("--remove", help="Have the brokers delete the listed logs.")]
Topic = Annotated[str, typer.Option("--topic", metavar="T", help="With --remove: logs of this topic alone.")]
DryRun = Annotated[bool, typer.Option("--dry-run", help="With --remove: print what would be deleted, delete nothing.")]
Yes = Annotated[bool, typer.Option("--yes", "-y", help="Begin without a question.")]
Reason = Annotated[str, typer.Option("--reason", help="The reason; kept in the daemon's log.")]


def register(app: typer.Typer) -> None:
    """Adds the command."""
    examples = (
        "regent strays",
        "regent strays 3 -o json",
        "regent strays --remove 3 --topic orders --dry-run",
        'regent strays --remove --yes --reason "left by a move"',
    )
    command(app, panel=Panel.LOOK, examples=examples)(strays)


def strays(
    session: Session,
    brokers: Chosen = None,
    remove: Remove = False,
    topic: Topic = "",
    dry_run: DryRun = False,
    yes: Yes = False,
    reason: Reason = "",
) -> None:
    """List or remove logs on brokers that no assignment names: exit code 3 if any are left, 1 if a broker is silent.

    Such a log occupies disk, and Kafka never deletes it by itself. Without --remove nothing is changed.
    With it each log is judged again right before its broker is sent the request; what is needed by then stays.
    """
    if remove:
        _remove(session, {"brokers": brokers or [], "topic": topic, "reason": reason}, dry_run=dry_run, yes=yes)
        return
    if topic or dry_run or yes or reason:
        raise Failure(Exit.USAGE, "--topic, --dry-run, --yes and --reason belong to --remove", "add --remove")
    output = session.output
    found = session.client(REPORT_TIMEOUT_S).get("/v1/strays", {"broker": brokers or []})["items"][0]
    listed, unread = found["strays"], found["unread"]
    if output.for_programs:
        output.document("StrayReport", [found])
    elif listed:
        output.listing("StrayLog", listed)
    _unknown(output, found)
    _remembered(output, found)
    size = sum(stray["sizeBytes"] for stray in listed)
    where = f"on brokers {cell(found['brokers'])}"
    text = f"{len(listed)} strays {where}, {size} bytes" if listed else f"no strays {where}"
    if not found["brokers"]:
        text = "nothing was read: no broker sent its logs" if unread else "nothing was read: there is no such broker"
    output.message(text, style="red" if listed or not found["brokers"] else "green")
    if listed or unread:
        raise typer.Exit(Exit.FAILED if unread else Exit.REFUSED)


def _unknown(output: Output, found: dict[str, Any]) -> None:
    for broker in found["unread"]:
        output.message(f"the logs of broker {broker['broker']} are not known: {broker['why']}", style="yellow")
    if found["cut"]:
        output.message(f"brokers {cell(found['cut'])} have more strays than are listed", style="yellow")


def _remembered(output: Output, found: dict[str, Any]) -> None:
    """Names the removed replicas that brokers have still to stop, one line for each broker and topic."""
    total, known = found["rememberedTotal"], dict[tuple[int, str], list[dict[str, Any]]]()
    for one in found["remembered"]:
        known.setdefault((one["broker"], one["topic"]), []).append(one)
    for (broker, topic), some in known.items():
        numbers = cell([one["partition"] for one in some])
        state = "it is being stopped" if some[0]["registered"] else "stopped once the broker is back"
        since = min(one["since"] for one in some)
        output.message(f"remembered: broker {broker}, {topic} {numbers}, since {since}: {state}", style="yellow")
    if total > len(found["remembered"]):
        output.message(f"{total} removed replicas are remembered in all", style="yellow")


def _remove(session: Session, request: dict[str, Any], *, dry_run: bool, yes: bool) -> None:
    """Removes strays, after a question that names their number; reports what became of each."""
    client, output = session.client(REMOVAL_TIMEOUT_S), session.output
    if not (yes or dry_run):
        planned = client.post("/v1/strays/remove", {**request, "dryRun": True})["items"][0]
        wanted = [stray for stray in planned["strays"] if stray["outcome"] == "planned"]
        if wanted and not output.for_programs:
            output.listing("StrayOutcome", planned["strays"])
        confirmed(yes, f"Delete {len(wanted)} logs?")
    found = client.post("/v1/strays/remove", {**request, "dryRun": dry_run})["items"][0]
    if output.for_programs:
        output.document("StrayRemoval", [found])
    elif found["strays"]:
        output.listing("StrayOutcome", found["strays"])
    _unknown(output, found)
    outcomes = [stray["outcome"] for stray in found["strays"]]
    counted = ", ".join(f"{outcomes.count(one)} {one}" for one in dict.fromkeys(outcomes))
    silent, kept = found["unread"] or "no response" in outcomes, "kept" in outcomes or found["cut"]
    output.message(counted or "there is no stray to remove", style="red" if silent or kept else "green")
    if silent or kept:
        raise typer.Exit(Exit.FAILED if silent else Exit.REFUSED)
