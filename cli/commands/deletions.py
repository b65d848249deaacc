"""Adds regent deletions: topics that are being deleted, and the end of waits for brokers that never return."""

from __future__ import annotations

from typing import Annotated

import typer

from cli.exit_codes import Exit
from cli.help import Panel
from cli.session import Session, command, confirmed, group

Yes = Annotated[bool, typer.Option("--yes", "-y", help="Begin without a question.")]
Brokers = Annotated[list[int], typer.Option("--broker", min=0, help="Id of a broker that never returns; repeatable.")]
Reason = Annotated[str, typer.Option("--reason", help="The reason; kept in the daemon's log and journal.")]
TIMEOUT_S = 40.0


def register(app: typer.Typer) -> None:
    """Adds the commands."""
    named = group(app, "deletions", "Show deletions of topics, and end their waits for dead brokers.", Panel.CHANGE)
    command(named, name="list", examples=("regent deletions list", "regent deletions list -o json"))(listed)
    examples = ('regent deletions give-up orders --broker 4 --reason "its disks are gone"',)
    command(named, name="give-up", examples=examples)(give_up)


def listed(session: Session) -> None:
    """List topics that are being deleted, with the brokers that they wait for, since when, and what ends the wait."""
    session.output.listing("Deletion", session.client().get("/v1/deletions")["items"])


def give_up(
    session: Session,
    topic: Annotated[str, typer.Argument(help="Name of a topic that is being deleted.")],
    brokers: Brokers,
    yes: Yes = False,
    reason: Reason = "",
) -> None:
    """End the wait of a topic's deletion for brokers that never return: exit code 3 if it goes on to wait.

    A deletion ends once every broker with a log of the topic has deleted it. These brokers are left out of that.
    Their logs are remembered: if such a broker starts after all, the daemon has it delete them.
    If it starts without an active daemon, or gets a replica of a new topic of this name before, the old logs stay
    there, and it refuses that replica. So use it for brokers that are gone for good.
    """
    ids = ", ".join(map(str, sorted(set(brokers))))
    warning = f"the logs of {topic} stay on the disks of broker {ids}, until it starts while a daemon is active"
    if not yes:
        session.output.message(warning, style="yellow")
    confirmed(yes, f"End the wait of the deletion of {topic} for broker {ids}?")
    request = {"topic": topic, "brokers": brokers, "reason": reason}
    left = session.client(TIMEOUT_S).post("/v1/deletions/give-up", request)["items"]
    if yes:
        session.output.message(warning, style="yellow")
    if session.output.for_programs:
        session.output.document("Deletion", left)
    elif left:
        session.output.listing("Deletion", left)
    if left and left[0]["state"] == "waiting":
        session.output.message(f"the deletion of {topic} still waits", style="red")
        raise typer.Exit(Exit.REFUSED)
    session.output.message(f"{topic} is {'being deleted' if left else 'deleted'}", style="green")
