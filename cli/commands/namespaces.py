"""Adds regent namespaces: groups of tables."""

from __future__ import annotations

from typing import Annotated

import typer

from cli.commands.procedures import WaitS
from cli.commands.region_changes import DryRun, Nonce, Reason, Wait, changed
from cli.help import Panel
from cli.quoting import quoted
from cli.session import Session, command, group

Namespace = Annotated[str, typer.Argument(help="Name of the namespace.")]


def register(app: typer.Typer) -> None:
    """Adds the commands."""
    named = group(app, "namespaces", "Group tables of regions.", Panel.REGIONS)
    command(named, name="list", examples=("regent namespaces list",))(listed)
    command(named, examples=("regent namespaces create shop --wait",))(create)
    command(named, examples=("regent namespaces delete shop --dry-run", "regent namespaces delete shop --wait"))(delete)


def listed(session: Session) -> None:
    """List the namespaces, with counts of tables."""
    session.output.listing("Namespace", session.client().get("/v1/regions/namespaces")["items"])


def create(
    session: Session,
    namespace: Namespace,
    reason: Reason = "",
    nonce: Nonce = "",
    dry_run: DryRun = False,
    wait: Wait = False,
    timeout: WaitS = 3600,
) -> None:
    """Create a namespace."""
    body = {"name": namespace, "reason": reason, "nonce": nonce, "dryRun": dry_run}
    changed(session, "/v1/regions/namespaces", body, wait, timeout)


def delete(
    session: Session,
    namespace: Namespace,
    reason: Reason = "",
    nonce: Nonce = "",
    dry_run: DryRun = False,
    wait: Wait = False,
    timeout: WaitS = 3600,
) -> None:
    """Delete a namespace that has no tables."""
    body = {"reason": reason, "nonce": nonce, "dryRun": dry_run}
    changed(session, f"/v1/regions/namespaces/{quoted(namespace)}/delete", body, wait, timeout)
