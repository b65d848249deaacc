"""Adds the repairs of a catalog that has lost rows, or has some that are wrong, to ``regent regions``."""

from __future__ import annotations

from typing import Annotated

import typer

from cli.commands.region_changes import Request, change

Region = Annotated[int, typer.Argument(help="Id of the region.", min=1)]
Table = Annotated[str, typer.Option("--table", help="Table of the region.")]
Start = Annotated[
    str | None,
    typer.Option(
        "--start",
        metavar="KEY",
        help="First key of the region; without it that of its row, or of the keys without a region.",
    ),
]
End = Annotated[
    str | None,
    typer.Option(
        "--end",
        metavar="KEY",
        help="The key behind its last one; without it that of its row, or the end of these keys.",
    ),
]


def register(named: typer.Typer) -> None:
    """Adds the commands below ``regent regions``."""
    change(
        named,
        adopt,
        "regent regions adopt 17 --table users --wait --yes --reason 'its row is lost'",
        "regent regions adopt 17 --table users --start g --end n --dry-run",
        asks="Store region {region} of table {table} again? Its server opens the data that it has under this id.",
        reasoned=True,
        foretold=True,
    )
    asks = (
        "Remove what the catalog has of region {region}? Its own data stays, and nothing names it any more; data that "
        "it alone needed of regions that were split or merged is discarded."
    )
    example = "regent regions forget 17 --wait --yes --reason 'region 18 has its keys'"
    change(named, forget, example, "regent regions forget 17 --dry-run", asks=asks, reasoned=True, foretold=True)
    example = "regent regions remove-row 'row 3 of table mark' --wait --yes --reason 'no copy has it'"
    dry = "regent regions remove-row 'row 3 of table mark' --dry-run"
    change(named, remove_row, example, dry, asks="Remove the row?", reasoned=True, foretold=True)


def adopt(region: Region, table: Table, start: Start = None, end: End = None) -> Request:
    r"""Store the row of a region again that the catalog has lost: with its id it has its data.

    It gets keys that no region has: those of its damaged row, else all where they are one range, or from --start to
    --end. Keys are text: printable ASCII as it is, any other byte, and the backslash, as \xNN.
    """
    keys = {name: key for name, key in (("start", start), ("end", end)) if key is not None}
    return f"/v1/regions/{region}/adopt", {"table": table, **keys}


def forget(
    region: Region,
    leave_hole: Annotated[
        bool, typer.Option("--leave-hole", help="Also where no other region has its keys, and it is not open.")
    ] = False,
) -> Request:
    """Remove what the catalog has of a region that cannot be right; the service keeps its own data.

    Where its data began in that of regions that were split or merged, the data of those that no other region needs is
    discarded: --dry-run names them.

    That is a region whose keys others have, a row that refers to a lost region, or one that cannot be read. With
    --leave-hole it is one under whose id there is no data: then adopt the id that it had, or fix the keys.
    """
    return f"/v1/regions/{region}/forget", {"leaveHole": leave_hole}


def remove_row(
    place: Annotated[str, typer.Argument(help="Where the row is, as 'regent regions report' names it.")],
    ended: Annotated[
        bool, typer.Option("--ended", help="The process that the row is about has ended: you have made sure of that.")
    ] = False,
) -> Request:
    """Remove an unreadable row that no other command mends; --dry-run names the data that go with the row.

    The row of a process that it does not name goes only once each process has come, or has stopped. Where servers are
    not fenced by their lease no time tells that: end the process, and say so with --ended.
    """
    return "/v1/regions/rows/remove", {"place": place, "ended": ended}
