"""Adds regent servers: the servers that have regions."""

from __future__ import annotations

from typing import Annotated, Final

import typer

from cli.commands.pause import seconds_of
from cli.commands.procedures import WaitS, Yes
from cli.commands.region_changes import (
    DryRun,
    Nonce,
    Reason,
    Request,
    ServerName,
    Wait,
    change,
    changed,
    marked,
    tried,
    unmarked,
)
from cli.exit_codes import Exit, Failure
from cli.help import Panel
from cli.quoting import quoted
from cli.session import Session, command, confirmed, group

HOLD_S_MAX: Final = 3_600
"""Longest hold of a server's regions, which nothing serves meanwhile."""
HELD: Final = "90s, 10m, at most 1h"

Named = Annotated[
    str, typer.Argument(help="NAME of the server, or NAME,INCARNATION of one of its processes.", metavar="SERVER")
]


def register(app: typer.Typer) -> None:
    """Adds the commands."""
    named = group(app, "servers", "Show, drain, expire and forget the servers that have regions.", Panel.REGIONS)
    command(named, name="list", examples=("regent servers list", "regent servers list -o wide"))(listed)
    command(named, examples=("regent servers describe kv-1",))(describe)
    change(named, drain, "regent servers drain kv-1 --wait --reason 'new kernel'", force=True)
    change(named, cordon, "regent servers cordon kv-1 --reason 'slow disk'", at_once=True)
    change(named, uncordon, "regent servers uncordon kv-1", at_once=True)
    change(named, weight, "regent servers weight kv-4 2.5 --reason 'a larger machine'", at_once=True)
    change(named, hold, "regent servers hold kv-1 --for 10m --reason 'new kernel'", at_once=True)
    change(named, release, "regent servers release kv-1", at_once=True)
    command(named, examples=("regent servers expire kv-1 --yes --reason 'it hangs'",))(expire)
    asks = (
        "Store the row of server {server_name} again? Once the daemon has started again, the server has one lease to "
        "come back, then its crash is dealt with."
    )
    example = "regent servers recover kv-1,5 --wait --yes --reason 'its row cannot be read'"
    change(named, recover, example, asks=asks, reasoned=True, foretold=True)
    change(named, forget, "regent servers forget kv-1 --reason 'its clock was ahead'")


def listed(session: Session) -> None:
    """List processes of servers. LEASE-LEFT: seconds until one counts as crashed without a further poll.

    A leaving one gets no further region; a crashed one may still write; of a fenced one the regions go elsewhere.
    """
    session.output.listing("RegionServer", session.client().get("/v1/regions/servers")["items"])


def describe(session: Session, server_name: Named) -> None:
    """Show a server, with the figures of its load."""
    found = session.client().get(_path(server_name))["items"][0]
    load = [f"{name}={figure}" for name, figure in found["load"].items()]
    session.output.detail("RegionServer", found if session.output.for_programs else found | {"load": load})


def drain(server_name: Named) -> Request:
    """Move all regions away from a server; its process gets no further one meanwhile: cordon it for longer."""
    return f"{_path(server_name)}/drain", {}


def cordon(server_name: ServerName) -> Request:
    """Keep further regions off a server; those that it has stay."""
    return marked("cordon", server_name)


def uncordon(server_name: ServerName) -> Request:
    """Let a server have regions again."""
    return unmarked("cordon", server_name)


def weight(
    server_name: ServerName,
    number: Annotated[
        float,
        typer.Argument(
            min=0.1, max=1_000, metavar="WEIGHT", help="Share beside other servers, whose is 1; 1 as before."
        ),
    ],
) -> Request:
    """Give a server a larger or smaller share of regions; a balance moves them, and new ones are placed so."""
    return unmarked("weight", server_name) if number == 1 else marked("weight", server_name, weight=number)


def hold(
    server_name: ServerName,
    duration: Annotated[str, typer.Option("--for", metavar="TIME", help="Time such as 90s or 10m, at most 1h.")],
) -> Request:
    """Have the regions of a server wait for its next process for a time, instead of going to other servers."""
    held_s = seconds_of(duration, HELD)
    if held_s > HOLD_S_MAX:
        raise Failure(Exit.USAGE, f"--for {duration} is longer than 1h, the longest hold", f"give a time: {HELD}")
    return marked("hold", server_name, forS=held_s)


def release(server_name: ServerName) -> Request:
    """End the hold of a server's regions."""
    return unmarked("hold", server_name)


def expire(
    session: Session,
    server_name: Named,
    reason: Reason = "",
    nonce: Nonce = "",
    dry_run: DryRun = False,
    yes: Yes = False,
    wait: Wait = False,
    timeout: WaitS = 3600,
) -> None:
    """Deal with a server as crashed, although it polls: it is fenced and must end, and its regions go elsewhere."""
    confirmed(yes or dry_run, f"Fence server {server_name}? Its process must end.")
    process = _process(session, server_name, wait, timeout)
    body = {"reason": reason, "nonce": nonce, "dryRun": dry_run}
    changed(session, f"{_path(process)}/expire", body, wait, timeout)


def recover(server_name: Named) -> Request:
    """Store the row of a process again of which regions alone tell; once the daemon has started again they are its own.

    The process comes back within a lease, or its crash is dealt with.
    """
    return f"{_path(server_name)}/recover", {}


def forget(
    server_name: Annotated[str, typer.Argument(help="NAME of the server.", metavar="SERVER")],
) -> Request:
    """Forget which process of a server was fenced, where its incarnation keeps all later ones out."""
    return f"{_path(server_name)}/forget", {}


def _process(session: Session, server: str, wait: bool, timeout_s: float) -> str:
    """Returns the present process of a server, which a repeated request names, too; without one the given name."""
    client = session.client()
    try:
        found = tried(session, lambda: client.get(_path(server)), wait, timeout_s, "the request is sent again")
    except Failure as failure:
        if failure.code is not Exit.FAILED:
            raise
        return server  # it is not known any more; the response to an earlier request with this nonce is
    return f"{found['name']},{found['incarnation']}"


def _path(server: str) -> str:
    return f"/v1/regions/servers/{quoted(server)}"
