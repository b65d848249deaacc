"""Adds regent snapshots: snapshots of tables of regions."""

from __future__ import annotations

from typing import Annotated

import typer

from cli.commands.region_changes import Request, change
from cli.help import Panel
from cli.quoting import quoted
from cli.session import Session, command, group

Name = Annotated[str, typer.Argument(help="Name of the snapshot.", metavar="NAME")]


def register(app: typer.Typer) -> None:
    """Adds the commands."""
    named = group(app, "snapshots", "Show and delete snapshots of tables.", Panel.REGIONS)
    command(named, name="list", examples=("regent snapshots list", "regent snapshots list -o wide"))(listed)
    command(named, examples=("regent snapshots describe monday",))(describe)
    asks = "Delete snapshot {name}? Its data is gone for ever."
    change(named, delete, "regent snapshots delete monday --wait --yes", asks=asks)


def listed(session: Session) -> None:
    """List the snapshots of tables; `regent tables snapshot` makes one."""
    session.output.listing("TableSnapshot", session.client().get("/v1/regions/snapshots")["items"])


def describe(session: Session, name: Name) -> None:
    """Show a snapshot."""
    found = session.client().get(f"/v1/regions/snapshots/{quoted(name)}")["items"][0]
    options = [f"{one}={value}" for one, value in found["options"].items()]
    session.output.detail("TableSnapshot", found if session.output.for_programs else found | {"options": options})


def delete(name: Name) -> Request:
    """Delete a snapshot that no region needs."""
    return f"/v1/regions/snapshots/{quoted(name)}/delete", {}
