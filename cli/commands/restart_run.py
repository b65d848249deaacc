"""Adds regent restart run: a rolling restart from its begin to its end, by a command for each broker.

Its state is the restart that the daemon keeps. So a call that ends half way is repeated, and goes on.
"""

from __future__ import annotations

import subprocess
import time
from collections.abc import Callable, Collection, Iterable
from typing import TYPE_CHECKING, Annotated, Final

import typer

from cli.commands.procedures import queried
from cli.commands.restarting import (
    JUDGE_TIMEOUT_S,
    POLL_S,
    Accept,
    BatchMax,
    Chosen,
    Reminder,
    awaited_batch,
    brokers_of,
    restart_request,
)
from cli.exit_codes import Exit, Failure
from cli.session import Session, command

if TYPE_CHECKING:
    from cli.client import Client, Json

PLACE: Final = "{}"
"""Stands for the broker's id in the command."""
KIND: Final = "restart"
STDERR: Final = 2
"""Standard error, for what commands print: it is no data of this one."""

ShellCommand = Annotated[
    str, typer.Option("--command", help="Command that restarts one broker; the shell gets its id in the place of {}.")
]
BackWithin = Annotated[
    float, typer.Option("--timeout", min=1, help="Longest wait for the return of a batch, or for a further one.")
]


def register(group: typer.Typer) -> None:
    """Adds the command."""
    examples = (
        "regent restart run --command 'ssh broker-{} sudo systemctl restart kafka'",
        "regent restart run 1 2 3 --batch-max 1 --timeout 1800 --command './restart.sh {}'",
    )
    command(group, examples=examples)(run)


def run(
    session: Session,
    shell_command: ShellCommand,
    brokers: Chosen = None,
    accept: Accept = None,
    batch_max: BatchMax = 1_000,
    reason: Annotated[str, typer.Option("--reason", help="The reason; kept with the restart.")] = "",
    timeout: BackWithin = 1800,
) -> None:
    """Restart brokers batch by batch with a command, until all are back; stops at the first that does not return.

    The restart is kept by the daemon: the same call goes on with it after any crash, of this command or of the daemon.
    A broker whose command was running then may get it once more. The commands of a batch run side by side.
    Exit code 1: a command failed; 3: the restart was ended; 4: a broker is not back, or none may stop, at the timeout.
    """
    if PLACE not in shell_command:
        raise Failure(Exit.USAGE, f"--command {shell_command!r} has no {PLACE}", f"write {PLACE} for the broker's id")
    client = session.client(JUDGE_TIMEOUT_S)
    pid = _begun(session, client, restart_request(brokers, accept, batch_max, reason))
    commanded: set[int] = set()

    def judged() -> Json:
        return client.get("/v1/restart-next", {"pid": pid, "batchMax": batch_max, "accept": accept or []})

    while True:
        found = awaited_batch(session.output, judged, timeout)
        if found["state"] == "wait":
            raise _not_back(found["why"], pid, timeout)
        session.output.message(found["why"], style="red" if found["state"] == "ended" else "green")
        if found["state"] != "restart":
            raise typer.Exit(Exit.DONE if found["state"] == "done" else Exit.REFUSED)
        if batch := [broker for broker in found["batch"] if broker not in commanded]:
            _restarted(batch, shell_command, pid)
            commanded.update(batch)
        _until_taken(session, judged, commanded, pid, timeout)


def _begun(session: Session, client: Client, request: Json) -> int:
    """Begins a restart, or goes on with the one that runs, if it is of the same brokers; returns its pid."""
    live = [one for one in client.get("/v1/procedures")["items"] if one["kind"] == KIND and not one["ended"]]
    if not live:
        pid = int(client.post("/v1/restarts", request)["items"][0]["pid"])
        session.output.message(f"restart {pid} is begun; the same command goes on with it after any crash")
        return pid
    pid = int(live[0]["pid"])
    known = client.get("/v1/restart-next", {"pid": pid})["items"][0]
    its = sorted({*known["pending"], *known["restarted"], *known["down"]})
    if its and request["brokers"] and sorted(set(request["brokers"])) != its:
        remedy = f"leave the ids out to go on with it, or end it first: regent end {pid}"
        raise Failure(Exit.REFUSED, f"restart {pid} runs already, of {brokers_of(its)}", remedy)
    accepted = f"; this call accepts {', '.join(request['accept'])}, too" if request["accept"] else ""
    session.output.message(f"goes on with restart {pid}, by its own brokers and bounds{accepted}")
    return pid


def _restarted(batch: Iterable[int], shell_command: str, pid: int) -> None:
    """Runs the command for each broker of a batch, side by side; raises :class:`Failure` where one fails."""
    running = {
        broker: subprocess.Popen(  # noqa: S602 -- the command is the operator's own, and a broker's id is a number
            shell_command.replace(PLACE, str(broker)), shell=True, stdin=subprocess.DEVNULL, stdout=STDERR
        )
        for broker in batch
    }
    failed = {broker: code for broker, process in running.items() if (code := process.wait()) != 0}
    if failed:
        named = ", ".join(f"broker {broker} with {code}" for broker, code in sorted(failed.items()))
        remedy = f"restart what has failed, then repeat the call: it goes on. 'regent end {pid}' ends the restart"
        raise Failure(Exit.FAILED, f"the command failed for {named}; no further broker is restarted", remedy)


def _until_taken(
    session: Session, judged: Callable[[], Json], commanded: Collection[int], pid: int, timeout_s: float
) -> None:
    """Waits until the daemon names no broker any more whose command has ended: it has seen them stop, or come back."""
    reminder = Reminder(session.output, timeout_s)
    while True:
        found, trouble = queried(judged)
        named = [] if found is None else [broker for broker in found["batch"] if broker in commanded]
        if found is not None and not named:
            return
        if reminder.is_over:
            why = f"{brokers_of(named)} did not register anew" if named else "no daemon judged the restart"
            raise _not_back(why, pid, timeout_s)
        if found is None:
            reminder.waits(trouble, None)
        else:
            reminder.waits(f"the command for {brokers_of(named)} has ended: waits for the stop and the return", found)
        time.sleep(POLL_S)


def _not_back(why: str, pid: int, timeout_s: float) -> Failure:
    remedy = f"mend that, then repeat the call: it goes on with restart {pid}. 'regent end {pid}' ends the restart"
    return Failure(Exit.UNFINISHED, f"no further broker is restarted, after {timeout_s:g} s: {why}", remedy)
