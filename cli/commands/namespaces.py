"""Adds regent namespaces: groups of tables."""

from __future__ import annotations

from typing import Annotated

import typer

from cli.commands.region_changes import Request, change
from cli.help import Panel
from cli.quoting import quoted
from cli.session import Session, command, group

Namespace = Annotated[str, typer.Argument(help="Name of the namespace.")]


def register(app: typer.Typer) -> None:
    """Adds the commands."""
    named = group(app, "namespaces", "Group tables of regions.", Panel.REGIONS)
    command(named, name="list", examples=("regent namespaces list",))(listed)
    change(named, create, "regent namespaces create shop --wait")
    change(named, delete, "regent namespaces delete shop --dry-run", "regent namespaces delete shop --wait")


def listed(session: Session) -> None:
    """List the namespaces, with counts of tables."""
    session.output.listing("Namespace", session.client().get("/v1/regions/namespaces")["items"])


def create(namespace: Namespace) -> Request:
    """Create a namespace."""
    return "/v1/regions/namespaces", {"name": namespace}


def delete(namespace: Namespace) -> Request:
    """Delete a namespace that has no tables."""
    return f"/v1/regions/namespaces/{quoted(namespace)}/delete", {}
