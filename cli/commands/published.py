"""Adds regent published: values that all servers of the service have."""

from __future__ import annotations

from typing import Annotated

import typer

from cli.commands.region_changes import Request, change
from cli.help import Panel
from cli.quoting import quoted
from cli.session import Session, command, group

Named = Annotated[str, typer.Argument(help="Name of the value.", metavar="NAME")]


def register(app: typer.Typer) -> None:
    """Adds the commands."""
    named = group(app, "published", "Publish values to all servers of regions.", Panel.REGIONS)
    command(named, name="list", examples=("regent published list",))(listed)
    change(named, put, "regent published put acl 'alice=rw' --wait", "regent published put acl '' --dry-run")
    change(named, remove, "regent published remove acl --wait")


def listed(session: Session) -> None:
    """List the values that are published."""
    session.output.listing("Published", session.client().get("/v1/regions/published")["items"])


def put(named: Named, value: Annotated[str, typer.Argument(help="The value.")]) -> Request:
    """Publish a value: all servers get it, or none does; those that come later get it as they register."""
    return "/v1/regions/published", {"name": named, "value": value}


def remove(named: Named) -> Request:
    """Remove a value: servers that come later do not get it, and those that have it keep it."""
    return f"/v1/regions/published/{quoted(named)}/remove", {}
