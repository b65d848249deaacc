"""Adds regent procedures and regent locks: longer operations, their progress and their results."""

from __future__ import annotations

import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Annotated, Final

import typer

from cli.commands import procedures_log
from cli.exit_codes import Exit, Failure
from cli.help import Panel
from cli.progress import POLL_S
from cli.session import Session, command, confirmed, group

if TYPE_CHECKING:
    from cli.client import Client, Json

MEASURED_S_MAX: Final = 20.0
"""Longest time of a request beyond its wait: the daemon measures the progress of a plan."""
LONG: Final = timedelta(hours=1)
"""Age from which a procedure that runs is flagged."""
RETRY_S: Final = 0.5
"""Pause after a failed request of a command that waits: the daemon may be in a failover."""

Pid = Annotated[int, typer.Argument(help="Pid of the procedure.", min=1)]
Yes = Annotated[bool, typer.Option("--yes", "-y", help="Begin without a question.")]
WaitS = Annotated[float, typer.Option("--timeout", min=1, help="Longest wait, in seconds.")]


def register(app: typer.Typer) -> None:
    """Adds the commands."""
    named = group(app, "procedures", "List, follow, undo and end longer operations.", Panel.LOOK)
    command(
        named,
        name="list",
        examples=(
            "regent procedures list",
            "regent procedures list --live -o wide",
            "regent procedures list --topic orders",
        ),
    )(listed)
    command(named, examples=("regent procedures show 12",))(show)
    command(named, examples=("regent procedures wait 12 --timeout 3600",))(wait)
    command(named, examples=("regent procedures abort 12 --yes",))(abort)
    command(named, examples=("regent procedures bypass 12 --yes",))(bypass)
    procedures_log.register(named)
    command(app, panel=Panel.LOOK, examples=("regent locks", "regent locks -o json"))(locks)


def listed(
    session: Session,
    live: Annotated[bool, typer.Option("--live", help="Without results.")] = False,
    topic: Annotated[str | None, typer.Option("--topic", help="Only those that lock a topic or are about it.")] = None,
    broker: Annotated[
        int | None, typer.Option("--broker", help="Only those that lock a broker or are about it.")
    ] = None,
) -> None:
    """List procedures that run, those in trouble and the oldest first, and then the kept results."""
    wanted = {name: value for name, value in (("topic", topic), ("broker", broker)) if value is not None}
    items = session.client().get("/v1/procedures", wanted)["items"]
    now = datetime.now(UTC)
    flagged = [item | {"flag": flag(item, now)} for item in items if not (live and item["ended"])]
    session.output.listing("Procedure", sorted(flagged, key=_urgency))


def flag(item: Json, now: datetime) -> str:
    """Returns what an operator should see of a procedure at once, empty where it goes its way."""
    if item["state"] in ("failed", "rolledback"):
        return "rolled back" if item["ended"] else "is undone"
    if item.get("unusable"):
        return "unusable"
    if item["ended"]:
        return ""
    if item.get("stuck"):
        return "stuck"
    submitted = item.get("submitted")
    return "long" if submitted and now - datetime.fromisoformat(submitted) >= LONG else ""


def _urgency(item: Json) -> tuple[bool, bool, str, int]:
    """Returns the order: what runs before what has ended, flagged ones first, the oldest first."""
    return bool(item["ended"]), not item["flag"], item.get("submitted") or "", item["pid"]


def show(session: Session, pid: Pid) -> None:
    """Show one procedure."""
    session.output.detail("Procedure", session.client().get(f"/v1/procedures/{pid}")["items"][0])


def wait(session: Session, pid: Pid, timeout: WaitS = 3600) -> None:
    """Wait for the end of a procedure, also over failovers: exit code 0 when it succeeded, 1 when it was undone."""
    report(session, awaited(session, pid, timeout))


def abort(session: Session, pid: Pid, yes: Yes = False) -> None:
    """Undo a procedure: what it did is taken back, step by step."""
    confirmed(yes, f"Undo procedure {pid}?")
    session.output.detail("Procedure", session.client().post(f"/v1/procedures/{pid}/abort", {})["items"][0])


def bypass(session: Session, pid: Pid, yes: Yes = False) -> None:
    """End a procedure as it is; nothing is undone, and what it left half done is yours to repair."""
    confirmed(yes, f"End procedure {pid} as it is, without undoing anything?")
    session.output.detail("Procedure", session.client().post(f"/v1/procedures/{pid}/bypass", {})["items"][0])


def locks(session: Session) -> None:
    """List the locks that procedures hold or wait for."""
    session.output.listing("Lock", session.client().get("/v1/locks")["items"])


def awaited(session: Session, pid: int, timeout_s: float, until: Callable[[Json], bool] | None = None) -> Json:
    """Returns a procedure once it has ended; a daemon that stops or fails over meanwhile is queried again.

    ``until``: returns it earlier, as soon as this holds. Raises :class:`Failure` where the time is over.
    """
    ends_s, client = time.monotonic() + timeout_s, session.client(POLL_S + MEASURED_S_MAX)
    with session.output.progress(pid) as line:
        while True:
            began_s, wait_s = time.monotonic(), max(0.0, min(line.poll_s, ends_s - time.monotonic()))
            found, trouble = _looked_at(client, pid, 0.0 if until is not None else wait_s)
            if found is not None and (found["ended"] or (until is not None and until(found))):
                return found
            line.show(found, trouble)
            if time.monotonic() >= ends_s:
                message = f"procedure {pid} has not ended after {timeout_s:g} s"
                raise Failure(Exit.UNFINISHED, message, f"it goes on: regent procedures wait {pid}")
            if time.monotonic() - began_s < wait_s / 2:  # only the active daemon waits; a standby responds at once
                time.sleep(min(RETRY_S, max(0.0, ends_s - time.monotonic())))


def _looked_at(client: Client, pid: int, wait_s: float) -> tuple[Json | None, str]:
    """Returns the procedure, or why no daemon describes it now."""
    try:
        found: Json = client.get(f"/v1/procedures/{pid}", {"waitS": wait_s})["items"][0]
    except Failure as failure:
        if failure.code is not Exit.UNREACHABLE:
            raise
        return None, failure.message
    return found, ""


def report(session: Session, found: Json) -> None:
    """Shows a procedure that has ended; exits by its end."""
    session.output.detail("Procedure", found)
    if found["state"] != "success":
        raise typer.Exit(Exit.FAILED)
