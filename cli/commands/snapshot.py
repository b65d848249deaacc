"""Adds regent snapshot: all partitions and brokers in a file, for reports and plans."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Annotated, Final

import typer

from cli.exit_codes import Exit, Failure
from cli.help import Panel
from cli.output import Output
from cli.session import Session, command

if TYPE_CHECKING:
    from cli.client import Client, Json

POLL_S: Final = 0.3
PATH: Final = "/v1/snapshots"
SEE: Final = "regent list snapshots"


def register(app: typer.Typer) -> None:
    """Adds the command."""
    command(app, panel=Panel.PIPELINE, examples=("regent snapshot", "regent snapshot --wait -o json"))(snapshot)


def snapshot(
    session: Session,
    wait: Annotated[bool, typer.Option("--wait", help="Wait until the file is on the disk.")] = False,
    timeout: Annotated[float, typer.Option("--timeout", min=1, help="Longest wait, in seconds.")] = 120,
    reason: Annotated[str, typer.Option("--reason", help="The reason; kept in the journal.")] = "",
) -> None:
    """Have the active daemon write all partitions and brokers to a file on its machine.

    The file is state.directory/snapshots/EPOCH-SEQ.jsonl.gz, named by the controller epoch and a number of its journal.
    A request joins one that waits already. With --wait the exit code is 4 where it goes on at the timeout.
    """
    client = session.client()
    found: Json = client.post(PATH, {"reason": reason})["items"][0]
    if wait:
        found = _followed(client, found, timeout)
    _print(session.output, found)
    if found["state"] == "failed":
        raise Failure(
            Exit.FAILED, f"there is no snapshot: {found['error']}", "see the log of the daemon, and try again"
        )
    if found["state"] != "done" and wait:
        raise typer.Exit(Exit.UNFINISHED)


def _followed(client: Client, found: Json, wait_s: float) -> Json:
    deadline = time.monotonic() + wait_s
    while found["state"] in ("waiting", "running") and time.monotonic() < deadline:
        time.sleep(POLL_S)
        found = client.get(f"{PATH}/{found['number']}")["items"][0]
    return found


def _print(output: Output, found: Json) -> None:
    if output.for_programs:
        output.document("Snapshot", [found])
    elif found["state"] == "done":
        output.text(
            f"{found['file']}: {found['partitions']} partitions, {found['brokers']} brokers, "
            f"{found['fileBytes']} bytes, in {found['tookMs']} ms"
        )
    elif found["state"] != "failed":
        output.text(f"snapshot {found['number']} is {found['state']}; see: {SEE}")
