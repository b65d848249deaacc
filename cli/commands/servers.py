"""Adds regent servers: the servers that have regions."""

from __future__ import annotations

from typing import Annotated

import typer

from cli.commands import region_marks
from cli.commands.procedures import WaitS, Yes
from cli.commands.region_changes import DryRun, Force, Nonce, Reason, Wait, changed, tried
from cli.exit_codes import Exit, Failure
from cli.help import Panel
from cli.quoting import quoted
from cli.session import Session, command, confirmed, group

Named = Annotated[
    str, typer.Argument(help="NAME of the server, or NAME,INCARNATION of one of its processes.", metavar="SERVER")
]


def register(app: typer.Typer) -> None:
    """Adds the commands."""
    named = group(app, "servers", "Show, drain, expire and forget the servers that have regions.", Panel.REGIONS)
    command(named, name="list", examples=("regent servers list", "regent servers list -o wide"))(listed)
    command(named, examples=("regent servers describe kv-1",))(describe)
    command(named, examples=("regent servers drain kv-1 --wait --reason 'new kernel'",))(drain)
    region_marks.register_of_servers(named)
    command(named, examples=("regent servers expire kv-1 --yes --reason 'it hangs'",))(expire)
    command(named, examples=("regent servers forget kv-1 --reason 'its clock was ahead'",))(forget)


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


def drain(
    session: Session,
    server_name: Named,
    reason: Reason = "",
    nonce: Nonce = "",
    force: Force = False,
    dry_run: DryRun = False,
    wait: Wait = False,
    timeout: WaitS = 3600,
) -> None:
    """Move all regions away from a server; its process gets no further one meanwhile: cordon it for longer."""
    body = {"reason": reason, "nonce": nonce, "force": force, "dryRun": dry_run}
    changed(session, f"{_path(server_name)}/drain", body, wait, timeout)


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


def forget(
    session: Session,
    server_name: Annotated[str, typer.Argument(help="NAME of the server.", metavar="SERVER")],
    reason: Reason = "",
    nonce: Nonce = "",
    dry_run: DryRun = False,
    wait: Wait = False,
    timeout: WaitS = 3600,
) -> None:
    """Forget which process of a server was fenced, where its incarnation keeps all later ones out."""
    body = {"reason": reason, "nonce": nonce, "dryRun": dry_run}
    changed(session, f"{_path(server_name)}/forget", body, wait, timeout)


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
