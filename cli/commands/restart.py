"""Adds regent can-stop, can-remove and restart-next, for brokers that are to stop, to go away or to be restarted."""

from __future__ import annotations

import json
from collections.abc import Collection
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final, NoReturn

import typer

from cli.commands import restart_run
from cli.commands.restarting import (
    JUDGE_TIMEOUT_S,
    Accept,
    BatchMax,
    Chosen,
    awaited_batch,
    brokers_of,
    causes,
    remedies,
    restart_request,
)
from cli.exit_codes import Exit, Failure
from cli.help import Panel
from cli.output import Output, cell
from cli.session import Session, command, group

if TYPE_CHECKING:
    from cli.client import Client, Json

Brokers = Annotated[list[int], typer.Argument(help="Ids of the brokers.", min=0, metavar="BROKER...")]
Since = Annotated[
    Path | None,
    typer.Option("--since", metavar="FILE", help="File with the start of the restart; the first call writes it."),
]
RestartPid = Annotated[
    int | None, typer.Option("--pid", min=1, help="Pid of regent restart begin: 0 once it is complete, 3 if ended.")
]
Wait = Annotated[bool, typer.Option("--wait", help="Wait until a broker may be restarted, or all were.")]
Timeout = Annotated[float, typer.Option("--timeout", min=1, help="Longest wait of --wait, in seconds.")]
BROKERS_MAX: Final = 500
"""Brokers of one restart: the daemon reads no more of them in a query."""


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
    restart_run.register(named)
    command(
        app,
        panel=Panel.LOOK,
        examples=(
            "regent restart-next",
            "regent restart-next --pid 12 --wait",
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
    together = " together" if len(found["brokers"]) > 1 else ""
    _name_unknown(session, found)
    _report(session.output, "CanStop", found, f"may stop{together}", f"must not stop{together}")


def can_remove(session: Session, brokers: Brokers) -> None:
    """Check whether brokers may be removed for good: exit code 3 if not.

    Yes means that no replica is assigned to them, no reassignment moves one there, and none is the controller.
    """
    found = session.client(JUDGE_TIMEOUT_S).get("/v1/can-remove", {"broker": brokers})["items"][0]
    _name_unknown(session, found)
    _report(session.output, "CanRemove", found, "may be removed", "must not be removed")


def _name_unknown(session: Session, found: dict[str, Any]) -> None:
    """Names the brokers that there are, where the query names one that there is not."""
    if found["unknown"] and not session.output.for_programs:
        known = [broker["id"] for broker in session.client().get("/v1/brokers")["items"]]
        text = f"{brokers_of(found['unknown'])}: not known; the brokers are {cell(known)}"
        session.output.message(text, style="yellow")


def _report(output: Output, kind: str, found: dict[str, Any], yes: str, no: str) -> None:
    if output.for_programs:
        output.document(kind, [found])
    elif found["hindrances"]:
        output.listing("Hindrance", found["hindrances"])
    for key, state in (
        ("unregistered", "not registered: down"),
        ("shuttingDown", "shutting down already"),
    ):
        if found[key]:
            output.message(f"{brokers_of(found[key])}: {state}", style="yellow")
    allowed = found["allowed"]
    judged = "" if found["brokers"] == found["unknown"] else f"; {found['partitions']} partitions were judged"
    text = f"{brokers_of(found['brokers'])} {yes if allowed else no}{judged}"
    output.message(text, style="green" if allowed else "red")
    if not allowed:
        remedies(output, found["hindrances"])
        raise typer.Exit(Exit.REFUSED)


def restart_next(
    session: Session,
    brokers: Chosen = None,
    since: Since = None,
    accept: Accept = None,
    batch_max: BatchMax = 1_000,
    wait: Wait = False,
    timeout: Timeout = 600,
    pid: RestartPid = None,
) -> None:
    """Print the brokers that a rolling restart takes next, one id a line: exit code 3 if none may stop now.

    A batch is of one rack; a broker without a rack is taken alone. Without --since and ids it goes on with the restart
    of regent restart begin, on the host of the active daemon, also after failovers; where the last one has ended, it
    says so and ends with 3. Where none was begun, every broker is pending. A script restarts the brokers and calls this
    again with the same file or --pid, until it prints nothing and ends with 0. regent restart run does all of that.
    """
    if pid is not None and (brokers or since is not None):
        raise Failure(Exit.USAGE, "--pid names a restart with its own start", "leave ids and --since out")
    from cli.commands.restart import begun

    client, output = session.client(JUDGE_TIMEOUT_S), session.output

    @cache
    def epochs() -> dict[int, int]:
        return begun(client, since, brokers or []) if brokers or since is not None else {}

    def judged() -> Json:
        since_epochs = [f"{broker}:{epoch}" for broker, epoch in epochs().items()]
        query = {"since": since_epochs, "batchMax": batch_max, "accept": accept or []}
        return client.get("/v1/restart-next", query | ({"pid": pid} if pid is not None else {}))

    found = awaited_batch(output, judged, timeout) if wait else judged()["items"][0]
    if output.for_programs:
        output.document("RestartNext", [found])
    elif found["batch"]:
        output.text("\n".join(map(str, found["batch"])))
    output.message(found["why"], style="yellow" if found["state"] in ("wait", "ended") else "green")
    if found["state"] == "ended":
        raise typer.Exit(Exit.REFUSED)
    if found["state"] == "restart" and not epochs() and found.get("pid") is None:
        output.message("no restart was begun, so every broker counts as pending: regent restart begin", style="yellow")
    if found["state"] == "wait":
        causes(output, found["hindrances"])
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

    regent restart-next prints the batch, regent procedures wait PID waits for the end, regent end PID ends it early.
    """
    body = restart_request(brokers, accept, batch_max, reason)
    session.output.detail("Procedure", session.client().post("/v1/restarts", body)["items"][0])


def begun(client: Client, file: Path | None, chosen: Collection[int]) -> dict[int, int]:
    """Returns the broker epochs at the start: from the file where it exists, else the present ones.

    Writes them to the file where it does not exist. ``chosen``: the brokers to restart; empty for all registered ones.
    Raises :class:`Failure` where they do not fit, or the file is of another cluster.
    """
    cluster = str(client.get("/v1/cluster")["items"][0].get("clusterId", ""))
    if file is not None and file.exists():
        if chosen:
            message = f"{file} names the brokers of this restart already"
            raise Failure(Exit.USAGE, message, "leave the ids away, or name a new file by --since")
        return _read(file, cluster)
    found = {b["id"]: b["epoch"] for b in client.get("/v1/brokers")["items"] if b.get("epoch") is not None}
    absent = sorted(set(chosen) - found.keys())
    if absent:
        message = f"broker {', '.join(map(str, absent))} is not registered"
        raise Failure(Exit.REFUSED, message, "start it first, or leave its id away: 'regent list brokers' has them")
    since = {b: epoch for b, epoch in found.items() if not chosen or b in chosen}
    if len(since) > BROKERS_MAX:
        message = f"{len(since)} brokers are more than the {BROKERS_MAX} of one restart"
        raise Failure(Exit.USAGE, message, f"name at most {BROKERS_MAX} brokers")
    if file is not None:
        _write(file, cluster, since)
    return since


def _read(file: Path, cluster: str) -> dict[int, int]:
    try:
        body: Any = json.loads(file.read_text(encoding="utf-8"))
        since = {int(broker): int(epoch) for broker, epoch in body["brokers"].items()}
        of = str(body["clusterId"])
    except OSError as error:
        _unusable(file, f"cannot be read: {error.strerror}")
    except (ValueError, KeyError, TypeError, AttributeError):
        _unusable(file, "does not hold the start of a restart")
    if of != cluster:
        _unusable(file, f"is of the cluster {of}, not of {cluster}")
    if not 0 < len(since) <= BROKERS_MAX or any(number < 0 for pair in since.items() for number in pair):
        _unusable(file, f"does not hold the ids and epochs of 1 to {BROKERS_MAX} brokers")
    return since


def _write(file: Path, cluster: str, since: dict[int, int]) -> None:
    """Writes the file at once: a call that is killed leaves the whole file or none."""
    body = {"clusterId": cluster, "brokers": {str(broker): epoch for broker, epoch in sorted(since.items())}}
    part = file.with_name(f"{file.name}.part")
    try:
        part.write_text(json.dumps(body, indent=2) + "\n", encoding="utf-8")
        part.replace(file)
    except OSError as error:
        raise Failure(
            Exit.FAILED, f"{file} cannot be written: {error.strerror}", "name a writable file by --since"
        ) from None


def _unusable(file: Path, why: str) -> NoReturn:
    raise Failure(Exit.USAGE, f"{file} {why}", "name the file of this restart by --since, or remove it to begin anew")
