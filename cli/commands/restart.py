"""Adds regent can-stop, can-remove and restart-next, for brokers that are to stop, to go away or to be restarted."""

from __future__ import annotations

import time
import uuid
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from cli.columns import cell
from cli.commands.procedures import queried
from cli.exit_codes import Exit, Failure
from cli.help import Panel
from cli.output import Output
from cli.session import Session, command, group

if TYPE_CHECKING:
    from collections.abc import Callable

    from cli.client import Json

POLL_S: Final = 1.0
JUDGE_TIMEOUT_S: Final = 60.0
"""Longest wait for a judgement: of a million partitions it takes some seconds."""

Brokers = Annotated[list[int], typer.Argument(help="Ids of the brokers.", min=0, metavar="BROKER...")]
Chosen = Annotated[
    list[int] | None, typer.Argument(help="Ids of the brokers (default: all).", min=0, metavar="[BROKER...]")
]
Accept = Annotated[
    list[str] | None,
    typer.Option(
        "--accept",
        metavar="CAUSE",
        help="Ignore a cause, such as single-replica or below-min-isr; may be repeated.",
    ),
]
Since = Annotated[
    Path | None,
    typer.Option("--since", metavar="FILE", help="File with the start of the restart; the first call writes it."),
]
BatchMax = Annotated[int, typer.Option("--batch-max", min=1, max=1_000, help="Most brokers to restart together.")]
Wait = Annotated[bool, typer.Option("--wait", help="Wait until a broker may be restarted, or all were.")]
Timeout = Annotated[float, typer.Option("--timeout", min=1, help="Longest wait of --wait, in seconds.")]


def register(app: typer.Typer) -> None:
    """Adds the commands."""
    command(
        app,
        panel=Panel.LOOK,
        examples=("regent can-stop 1", "regent can-stop 1 4 7 -o json", "regent can-stop 2 --accept single-replica"),
    )(can_stop)
    command(app, panel=Panel.LOOK, examples=("regent can-remove 4", "regent can-remove 4 5 -o json"))(can_remove)
    named = group(app, "restart", "Restart brokers, rack by rack, by a plan that survives any crash.", Panel.CHANGE)
    command(
        named,
        examples=("regent restart begin", 'regent restart begin 1 2 3 --batch-max 1 --reason "new kernel"'),
    )(begin)
    command(
        app,
        panel=Panel.LOOK,
        examples=(
            "regent restart-next",
            "regent restart-next --since restart.json --wait",
            "regent restart-next 1 2 3 --since restart.json --batch-max 1",
        ),
    )(restart_next)


def can_stop(session: Session, brokers: Brokers, accept: Accept = None) -> None:
    """Check whether brokers may stop together: exit code 3 if not.

    Yes means that each of their partitions keeps a leader and min.insync.replicas, that no replica of them on other
    brokers is out of sync already, and that no reassignment moves them.
    """
    client = session.client(JUDGE_TIMEOUT_S)
    found = client.get("/v1/can-stop", {"broker": brokers, "accept": accept or []})["items"][0]
    _report(session.output, "CanStop", found, "may stop together", "must not stop together")


def can_remove(session: Session, brokers: Brokers) -> None:
    """Check whether brokers may be removed for good: exit code 3 if not.

    Yes means that no replica is assigned to them, no reassignment moves one there, and none is the controller.
    """
    found = session.client(JUDGE_TIMEOUT_S).get("/v1/can-remove", {"broker": brokers})["items"][0]
    _report(session.output, "CanRemove", found, "may be removed", "must not be removed")


def _report(output: Output, kind: str, found: dict[str, Any], yes: str, no: str) -> None:
    if output.for_programs:
        output.document(kind, [found])
    elif found["hindrances"]:
        output.listing("Hindrance", found["hindrances"])
    for key, state in (
        ("unregistered", "not registered: down"),
        ("shuttingDown", "shutting down already"),
        ("unknown", "unknown: neither registered nor assigned to a partition"),
    ):
        if found[key]:
            output.message(f"{_named(found[key])}: {state}", style="yellow")
    allowed = found["allowed"]
    text = f"{_named(found['brokers'])} {yes if allowed else no}; {found['partitions']} partitions were judged"
    output.message(text, style="green" if allowed else "red")
    if not allowed:
        _remedies(output, found["hindrances"])
        raise typer.Exit(Exit.REFUSED)


def restart_next(
    session: Session,
    brokers: Chosen = None,
    since: Since = None,
    accept: Accept = None,
    batch_max: BatchMax = 1_000,
    wait: Wait = False,
    timeout: Timeout = 600,
) -> None:
    """Print the brokers that a rolling restart takes next, one id a line: exit code 3 if none may stop now.

    A batch is of one rack; a broker without a rack is taken alone. Without --since and ids it goes on with the restart
    of regent restart begin, on any host and after failovers; where none was begun, every broker is pending.
    A script restarts the brokers and calls this again with the same file, until it prints nothing and ends with 0.
    """
    from cli.since_file import begun

    client, output = session.client(JUDGE_TIMEOUT_S), session.output

    @cache
    def epochs() -> dict[int, int]:
        return begun(client, since, brokers or []) if brokers or since is not None else {}

    def judged() -> Json:
        since_epochs = [f"{broker}:{epoch}" for broker, epoch in epochs().items()]
        return client.get("/v1/restart-next", {"since": since_epochs, "batchMax": batch_max, "accept": accept or []})

    found = _awaited(output, judged, timeout) if wait else judged()["items"][0]
    if output.for_programs:
        output.document("RestartNext", [found])
    elif found["batch"]:
        output.text("\n".join(map(str, found["batch"])))
    output.message(found["why"], style="yellow" if found["state"] == "wait" else "green")
    if found["state"] == "wait":
        _causes(output, found["hindrances"])
        raise typer.Exit(Exit.UNFINISHED if wait else Exit.REFUSED)
    if found["state"] == "done" and since is not None:
        output.message(f"remove {since} before the next restart")


def begin(
    session: Session,
    brokers: Chosen = None,
    accept: Accept = None,
    batch_max: BatchMax = 1_000,
    reason: Annotated[str, typer.Option("--reason", help="The reason; kept with the restart.")] = "",
) -> None:
    """Begin a rolling restart that the daemon keeps: it names the brokers to stop, and waits until they are back.

    regent restart-next prints the batch, regent procedures wait PID waits for the end, regent procedures abort ends it.
    """
    body = {
        "brokers": brokers or [],
        "batchMax": batch_max,
        "accept": accept or [],
        "nonce": uuid.uuid4().hex,
        "reason": reason,
    }
    session.output.detail("Procedure", session.client().post("/v1/restarts", body)["items"][0])


def _awaited(output: Output, judged: Callable[[], Json], timeout_s: float) -> Json:
    """Queries until there is a batch, all is done, or the time is over; reports each new reason of the wait.

    A daemon that stops or fails over meanwhile is queried again.
    """
    deadline_s, shown = time.monotonic() + timeout_s, ""
    while True:
        found, trouble = queried(judged)
        if found is not None and found["state"] != "wait":
            return found
        if time.monotonic() >= deadline_s:
            if found is None:
                raise Failure(Exit.UNFINISHED, f"no daemon judged the restart at the end of {timeout_s:g} s: {trouble}")
            return found
        why = trouble if found is None else str(found["why"])
        if why != shown:
            shown = why
            output.message(why)
            _causes(output, [] if found is None else found["hindrances"])
        time.sleep(POLL_S)


def _causes(output: Output, hindrances: list[dict[str, Any]]) -> None:
    for one in hindrances:
        waits = f"; waits for {_named(one['waitsFor'])}" if one["waitsFor"] else ""
        output.message(f"  {one['cause']} ({one['count']}: {cell(one['examples'])}): {one['meaning']}{waits}")
    _remedies(output, hindrances)


def _remedies(output: Output, hindrances: list[dict[str, Any]]) -> None:
    for one in hindrances:
        output.message(f"Remedy for {one['cause']}: {one['remedy']}")


def _named(brokers: list[int]) -> str:
    return f"broker{'s' if len(brokers) > 1 else ''} {', '.join(map(str, brokers))}"
