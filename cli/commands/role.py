"""Adds regent preflight, takeover and handback, by which the controller role changes hands."""

from __future__ import annotations

import asyncio
import sys
import time
from typing import TYPE_CHECKING, Annotated, Final

import typer

from cli.exit_codes import Exit, Failure
from cli.help import Panel
from cli.output import Output
from cli.session import Session, command, confirmed

if TYPE_CHECKING:
    from cli.client import Client, Json
    from configs.settings import Settings
    from controller.http.models import Operation, OperationRequest

POLL_S: Final = 0.3
CODES: Final = {
    "planned": Exit.DONE,
    "done": Exit.DONE,
    "running": Exit.UNFINISHED,
    "refused": Exit.REFUSED,
    "failed": Exit.FAILED,
}

DryRun = Annotated[bool, typer.Option("--dry-run", help="Print the steps, do nothing.")]
Yes = Annotated[bool, typer.Option("--yes", "-y", help="Begin without a question.")]
Reason = Annotated[str, typer.Option("--reason", help="The reason; kept beside the role, for a later look.")]
Wait = Annotated[bool | None, typer.Option("--wait/--no-wait", help="Wait for the end (default: on a terminal).")]
Timeout = Annotated[float, typer.Option("--timeout", min=1, help="Longest wait, in seconds.")]


def register(app: typer.Typer) -> None:
    """Adds the commands."""
    command(app, panel=Panel.CHANGE, examples=("regent preflight", "regent preflight -o json"))(preflight)
    command(
        app,
        panel=Panel.CHANGE,
        examples=("regent takeover --dry-run", 'regent takeover --yes --reason "trying regent"'),
    )(takeover)
    command(
        app,
        panel=Panel.GIVE_BACK,
        examples=(
            "regent handback --dry-run",
            'regent handback --yes --reason "end of the trial"',
            "regent handback --offline --yes",
        ),
    )(handback)


def preflight(session: Session) -> None:
    """Check whether regent may take the role: exit code 3 if anything stands in the way. Changes nothing."""
    settings = session.settings().settings
    from cli import offline

    found = asyncio.run(offline.preflight(settings))
    checks = [check.model_dump(mode="json", by_alias=True) for check in found]
    session.output.listing("Check", checks)
    refused = [check for check in checks if check["result"] == "refused"]
    if refused:
        session.output.message(f"{len(refused)} of {len(checks)} checks stand in the way of a take-over", style="red")
        raise typer.Exit(Exit.REFUSED)
    warnings = sum(check["result"] == "warning" for check in checks)
    counted = (
        f"{len(checks)} checks, {warnings} warning{'s' * (warnings != 1)}" if warnings else f"{len(checks)} checks"
    )
    session.output.message(
        f"{counted}: nothing stands in the way of a take-over", style="yellow" if warnings else "green"
    )


def takeover(
    session: Session,
    dry_run: DryRun = False,
    yes: Yes = False,
    reason: Reason = "",
    wait: Wait = None,
    timeout: Timeout = 60,
    without_daemon: Annotated[
        bool, typer.Option("--without-daemon", help="With no daemon alive: the next daemon that starts takes the role.")
    ] = False,
) -> None:
    """Give the role to regent, after a preflight and a saved roll-back file. Works on ZooKeeper."""
    settings = session.settings().settings
    confirmed(yes or dry_run, "Let regent take the controller role from the brokers?")
    request = _request(dry_run, reason)
    wait_s = timeout if _waits(wait) else None
    from cli import offline

    found = asyncio.run(
        offline.takeover(
            settings, request, wait_s=wait_s, progress=session.output.message, without_daemon=without_daemon
        )
    )
    _report(session.output, _as_json(found), waited=wait_s is not None)


def handback(
    session: Session,
    offline: Annotated[bool, typer.Option("--offline", help="With no daemon alive; always waits.")] = False,
    dry_run: DryRun = False,
    yes: Yes = False,
    reason: Reason = "",
    wait: Wait = None,
    timeout: Timeout = 60,
) -> None:
    """Give the role back to the brokers. May be repeated at any point."""
    question = "Give the controller role back to the brokers?"
    wait_s = timeout if offline or _waits(wait) else None
    if offline:
        settings = session.settings().settings
        confirmed(yes or dry_run, question)
        found = _handed_back_alone(settings, _request(dry_run, reason), timeout, session.output)
    else:
        client = session.client()
        confirmed(yes or dry_run, question)
        found = _requested(client, {"dryRun": dry_run, "reason": reason})
        if wait_s is not None:
            found = followed(client, session.output, found, wait_s)
    _report(session.output, found, waited=wait_s is not None)


def _requested(client: Client, request: Json) -> Json:
    try:
        found: Json = client.post("/v1/role/handback", request)["items"][0]
    except Failure as failure:
        if failure.code is not Exit.UNREACHABLE:
            raise
        remedy = f"{failure.remedy}; where no daemon is alive: regent handback --offline"
        raise Failure(failure.code, failure.message, remedy) from None
    return found


def _handed_back_alone(settings: Settings, request: OperationRequest, timeout: float, output: Output) -> Json:
    from cli import offline

    return _as_json(asyncio.run(offline.handback(settings, request, wait_s=timeout, progress=output.message)))


def followed(client: Client, output: Output, found: Json, wait_s: float) -> Json:
    """Prints each further step until the operation has ended or the time is over."""
    deadline = time.monotonic() + wait_s
    printed = 0
    while True:
        for step in found.get("steps", [])[printed:]:
            output.message(step)
            printed += 1
        if found["state"] != "running" or time.monotonic() >= deadline:
            return found
        time.sleep(POLL_S)
        found = client.get("/v1/role/operation")["items"][0]


def _report(output: Output, found: Json, *, waited: bool) -> None:
    printed = waited and found["state"] != "refused"
    text = "\n".join([found["message"], *(f"  {step}" for step in found["steps"] if not printed)])
    if output.for_programs:
        output.document("Operation", [found])
    elif found["state"] in ("refused", "failed"):
        output.message(text, style="red")
    else:
        output.text(text)
    if found.get("remedy"):
        output.message(f"Remedy: {found['remedy']}")
    code = CODES.get(found["state"], Exit.FAILED)
    if code is Exit.UNFINISHED:
        output.message("it goes on; see: regent status")
    if waited or code is not Exit.UNFINISHED:
        raise typer.Exit(code)


def _waits(wait: bool | None) -> bool:
    return sys.stdout.isatty() if wait is None else wait


def _request(dry_run: bool, reason: str) -> OperationRequest:
    from controller.http.models import OperationRequest

    return OperationRequest(dry_run=dry_run, reason=reason)


def _as_json(found: Operation) -> Json:
    return found.model_dump(mode="json", by_alias=True)
