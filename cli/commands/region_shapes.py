"""Adds split, merge and parents to ``regent regions``: regions whose keys others get."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from cli.commands.region_changes import Request, change
from cli.exit_codes import Exit, Failure
from cli.session import Session, command

Region = Annotated[int, typer.Argument(help="Id of the region.", min=1)]
Regions = Annotated[list[int], typer.Argument(help="Ids of neighbours, 2 to 10 of them.", min=1, metavar="REGION...")]
Key = Annotated[
    str | None, typer.Option("--key", help="First key of the second half; without it the region's server names one.")
]
OfTable = Annotated[str | None, typer.Option("--table", help="Only those of one table.")]


def register(named: typer.Typer) -> None:
    """Adds the commands below ``regent regions``."""
    change(named, split, "regent regions split 17 --wait", "regent regions split 17 --key 'm\\x00' --dry-run")
    change(named, merge, "regent regions merge 17 18 --wait --reason 'both are small'")
    command(named, examples=("regent regions parents", "regent regions parents --table users -o wide"))(parents)


def split(region: Region, key: Key = None) -> Request:
    """Split a region in two at a key; it is away for about as long as a move takes."""
    if key == "":
        raise Failure(Exit.USAGE, "--key is empty", "give a key, or leave --key out: the server names one then")
    return f"/v1/regions/{region}/split", {"key": key or ""}


def merge(regions: Regions) -> Request:
    """Merge neighbours of one table into one region; they are moved to one server first."""
    from state_machines.regions.heirs import MERGED_MAX, MERGED_MIN

    if not MERGED_MIN <= len(regions) <= MERGED_MAX:
        count = f"{len(regions)} region{'s are' if len(regions) > 1 else ' is'} named"
        raise Failure(Exit.USAGE, count, f"give {MERGED_MIN} to {MERGED_MAX} regions, neighbours of one table")
    return "/v1/regions/merge", {"regions": regions}


def parents(session: Session, table: OfTable = None) -> None:
    """List the regions that were split or merged, until their data is discarded, and what each waits for."""
    params: dict[str, Any] = {} if table is None else {"table": table}
    session.output.listing("RegionParent", session.client().pages("/v1/regions/parents", params))
