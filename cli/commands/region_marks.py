"""Adds the marks of operators: cordons and holds of servers, pins of regions."""

from __future__ import annotations

from typing import Annotated, Any, Final

import typer

from cli.commands.pause import seconds_of
from cli.commands.region_changes import DryRun, Nonce, Reason, changed
from cli.exit_codes import Exit, Failure
from cli.session import Session, command

TIMEOUT_S: Final = 60.0
"""Longest wait for a mark, which is set at once."""
HOLD_S_MAX: Final = 3_600
"""Longest hold of a server's regions, which nothing serves meanwhile."""
HELD: Final = "90s, 10m, at most 1h"

Name = Annotated[str, typer.Argument(help="Name of the server.", metavar="SERVER")]
Region = Annotated[int, typer.Argument(help="Id of the region.", min=1)]


def register_of_servers(named: typer.Typer) -> None:
    """Adds the commands below ``regent servers``."""
    command(named, examples=("regent servers cordon kv-1 --reason 'slow disk'",))(cordon)
    command(named, examples=("regent servers uncordon kv-1",))(uncordon)
    command(named, examples=("regent servers hold kv-1 --for 10m --reason 'new kernel'",))(hold)
    command(named, examples=("regent servers release kv-1",))(release)


def register_of_regions(named: typer.Typer) -> None:
    """Adds the commands below ``regent regions``."""
    command(named, examples=("regent regions pin 17 kv-2",))(pin)
    command(named, examples=("regent regions unpin 17",))(unpin)
    command(named, examples=("regent regions marks", "regent regions marks -o json"))(marks)


def cordon(
    session: Session, server_name: Name, reason: Reason = "", nonce: Nonce = "", dry_run: DryRun = False
) -> None:
    """Keep further regions off a server; those that it has stay."""
    _marked(session, "cordon", server_name, reason, nonce, dry_run)


def uncordon(
    session: Session, server_name: Name, reason: Reason = "", nonce: Nonce = "", dry_run: DryRun = False
) -> None:
    """Let a server have regions again."""
    _unmarked(session, "cordon", server_name, reason, nonce, dry_run)


def hold(
    session: Session,
    server_name: Name,
    duration: Annotated[str, typer.Option("--for", metavar="TIME", help="Time such as 90s or 10m, at most 1h.")],
    reason: Reason = "",
    nonce: Nonce = "",
    dry_run: DryRun = False,
) -> None:
    """Have the regions of a server wait for its next process for a time, instead of going to other servers."""
    _marked(session, "hold", server_name, reason, nonce, dry_run, forS=_held_s(duration))


def _held_s(duration: str) -> int:
    held_s = seconds_of(duration, HELD)
    if held_s > HOLD_S_MAX:
        raise Failure(Exit.USAGE, f"--for {duration} is longer than 1h, the longest hold", f"give a time: {HELD}")
    return held_s


def release(
    session: Session, server_name: Name, reason: Reason = "", nonce: Nonce = "", dry_run: DryRun = False
) -> None:
    """End the hold of a server's regions."""
    _unmarked(session, "hold", server_name, reason, nonce, dry_run)


def pin(
    session: Session,
    region: Region,
    server_name: Name,
    reason: Reason = "",
    nonce: Nonce = "",
    dry_run: DryRun = False,
) -> None:
    """Have a region opened at one server wherever that is online; it is not moved there now."""
    _marked(session, "pin", str(region), reason, nonce, dry_run, server=server_name)


def unpin(session: Session, region: Region, reason: Reason = "", nonce: Nonce = "", dry_run: DryRun = False) -> None:
    """Remove the pin of a region."""
    _unmarked(session, "pin", str(region), reason, nonce, dry_run)


def marks(session: Session) -> None:
    """List the cordons, holds and pins of operators."""
    session.output.listing("RegionMark", session.client().get("/v1/regions/marks")["items"])


def _marked(session: Session, kind: str, subject: str, reason: str, nonce: str, dry_run: bool, **more: Any) -> None:
    body = {"kind": kind, "subject": subject, "reason": reason, "nonce": nonce, "dryRun": dry_run, **more}
    changed(session, "/v1/regions/marks", body, True, TIMEOUT_S)


def _unmarked(session: Session, kind: str, subject: str, reason: str, nonce: str, dry_run: bool) -> None:
    body = {"kind": kind, "subject": subject, "reason": reason, "nonce": nonce, "dryRun": dry_run}
    changed(session, "/v1/regions/marks/remove", body, True, TIMEOUT_S)
