"""Adds regent regions: the state of regions, their transitions, their marks, and changes of one region."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from cli.commands import region_procedures, region_repairs, region_shapes, regions_backup, regions_report
from cli.commands.region_changes import Request, ServerName, change, marked, unmarked
from cli.commands.region_files import IdFile, ids_of, only_one
from cli.commands.region_work import TRIES, Data, For, Tries, Work, work_of
from cli.exit_codes import Exit, Failure
from cli.help import Panel
from cli.session import Session, command, group

if TYPE_CHECKING:
    from cli.client import Json

State = Literal[
    "offline",
    "opening",
    "open",
    "closing",
    "closed",
    "splitting",
    "merging",
    "failed_open",
    "abnormally_closed",
    "waiting",
]
Region = Annotated[int, typer.Argument(help="Id of the region.", min=1)]
OfTable = Annotated[str | None, typer.Option("--table", help="Only those of one table.")]
OneRegion = Annotated[int | None, typer.Argument(help="Id of the region; or --file.", min=1, metavar="REGION")]
AtServer = Annotated[
    str | None, typer.Option("--server-name", help="Only those of one server, NAME or NAME,INCARNATION.")
]
InState = Annotated[State | None, typer.Option("--state", help="Only those in one state.")]
InTransition = Annotated[bool, typer.Option("--in-transition", help="Only those that are in transition.")]
Stranded = Annotated[
    bool,
    typer.Option("--stranded", help="Only those of enabled tables that are not open, and that no procedure moves."),
]
Loads = Annotated[bool, typer.Option("--loads", help="Show the load of each, as its server has reported it.")]
To = Annotated[str, typer.Option("--to", help="Name of the server; without it the placement chooses one.")]
Limit = Annotated[int, typer.Option("--limit", min=1, max=5_000, help="Most regions that are listed.")]


DAEMONS = "Are all daemons of this store upgraded? Those of before December 2026 do not name themselves."
"""A question before the level of a store is raised."""


def register(app: typer.Typer) -> None:
    """Adds the commands."""
    named = group(app, "regions", "Show and change which server has which region.", Panel.REGIONS)
    command(named, examples=("regent regions status", "regent regions status -o json"))(status)
    command(
        named,
        name="list",
        examples=(
            "regent regions list --table shop:orders",
            "regent regions list --state failed_open",
            "regent regions list --stranded",
            "regent regions list --table users --loads",
            "regent regions list --server-name kv-1 -o wide",
        ),
    )(listed)
    command(named, examples=("regent regions describe 17",))(describe)
    command(named, examples=("regent regions explain 17", "regent regions explain 17 -o json"))(explain)
    command(named, examples=("regent regions transitions", "regent regions transitions -o wide"))(transitions)
    regions_report.register(named)
    regions_backup.register(named)
    change(
        named,
        assign,
        "regent regions assign 17 --wait",
        "regent regions assign 17 --to kv-2",
        "regent regions assign --file ids.txt --wait",
        "regent regions assign --file - --dry-run",
    )
    change(
        named,
        unassign,
        "regent regions unassign 17 --yes --reason 'broken file'",
        "regent regions unassign --file ids.txt --yes --wait",
        asks=_closes,
    )
    change(named, move, "regent regions move 17 kv-2 --wait", "regent regions move 17 kv-2 --dry-run", force=True)
    change(named, reopen, "regent regions reopen 17 --wait --reason 'new options'")
    asks = "Disable all tables? No region is served then, until `regent regions start`."
    change(named, stop, "regent regions stop --wait --yes --reason 'the hall is cooled'", asks=asks)
    change(named, start, "regent regions start --wait")
    change(named, upgrade, "regent regions upgrade --dry-run", "regent regions upgrade --wait --yes", asks=DAEMONS)
    change(named, work, "regent regions work 17 x-compact --wait", "regent regions work 17 flush --for 10m")
    region_shapes.register(named)
    region_repairs.register(named)
    change(named, pin, "regent regions pin 17 kv-2", at_once=True)
    change(named, unpin, "regent regions unpin 17", at_once=True)
    command(named, examples=("regent regions marks", "regent regions marks -o json"))(marks)
    region_procedures.register(named)
    command(named, examples=("regent regions locks", "regent regions locks --waiting"))(locks)


def status(session: Session) -> None:
    """Show the regions' domain of the daemon in one look: mode, servers, regions, transitions."""
    session.output.detail("RegionsStatus", session.client().get("/v1/regions")["items"][0])


def listed(
    session: Session,
    table: OfTable = None,
    server_name: AtServer = None,
    state: InState = None,
    in_transition: InTransition = False,
    stranded: Stranded = False,
    loads: Loads = False,
) -> None:
    r"""List regions by table and start key; several filters together list those that match all of them.

    START and END are keys: printable ASCII as it is, any other byte as \xNN.
    """
    given = {"table": table, "server": server_name, "state": state}
    params: dict[str, Any] = {name: value for name, value in given.items() if value is not None}
    params |= {"inTransition": True} if in_transition else {}
    params |= {"stranded": True} if stranded else {}
    kind = "RegionLoad" if loads and not session.output.for_programs else "Region"
    session.output.listing(kind, session.client().pages("/v1/regions/list", params))


def describe(session: Session, region: Region) -> None:
    """Show a region; `regent regions explain` has the reasons."""
    session.output.detail("Region", session.client().get(f"/v1/regions/{region}")["items"][0])


def explain(session: Session, region: Region) -> None:
    """Explain why a region has this state and owner, what it waits for, and what would change it."""
    found = session.client().get(f"/v1/regions/{region}/explanation")["items"][0]
    if session.output.for_programs:
        session.output.document("RegionExplanation", [found])
    else:
        session.output.text(explained(found))


def explained(found: Json) -> str:
    """Returns an explanation in sentences."""
    row = found["region"]
    lines = [
        f"region {row['id']} of {row['table']}, from {row['start'] or 'the first key'} to {row['end'] or 'the last'}",
        f"{row['state']}: {found['stateBecause']}",
        found["serverBecause"],
        found.get("procedureBecause", ""),
        found.get("growthBecause", ""),
    ]
    lines += [f"would change: {change}" for change in found.get("wouldChange", [])]
    return "\n".join(line for line in lines if line)


def transitions(session: Session, limit: Limit = 500) -> None:
    """List regions in transition, the oldest first, and what each of them waits for.

    OVERDUE ones are in transition for longer than regions.transit_warning_ms.
    """
    found = session.client().get("/v1/regions/transitions", {"limit": limit})["items"]
    session.output.listing("RegionTransition", found)


def assign(region: OneRegion = None, file: IdFile = None, to: To = "") -> Request:
    """Have a region opened that no server has, for instance one that is FAILED_OPEN; or all those of a file.

    A file has one id on each line, at most 10,000; a comment begins with #. One procedure has them opened. A region
    that is open already, is gone, is moved, or whose table is not enabled, is left out and counted.
    """
    only_one(region, file)
    if file is None:
        return f"/v1/regions/{region}/assign", {"server": to}
    if to:
        raise Failure(Exit.USAGE, "--to is for one region, and --file may have many", "leave one of them out")
    return "/v1/regions/assign", {"regions": ids_of(file)}


def unassign(region: OneRegion = None, file: IdFile = None) -> Request:
    """Have a region closed, or all those of a file; no server serves their keys until `regent regions assign`.

    A file has one id on each line, at most 10,000; a comment begins with #. One procedure has them closed. A region
    that is closed already, is gone, or is moved, is left out and counted.
    """
    only_one(region, file)
    if file is None:
        return f"/v1/regions/{region}/unassign", {}
    return "/v1/regions/unassign", {"regions": ids_of(file)}


def _closes(body: Json, region: int | None, file: Path | None) -> str:
    """Returns the question before regions are closed."""
    if file is None:
        return f"Close region {region}? No server serves its keys then."
    return f"Close {len(body['regions']):,} regions? No server serves their keys then."


def move(
    region: Region,
    server_name: Annotated[str, typer.Argument(help="Name of the server that gets it.", metavar="SERVER")],
) -> Request:
    """Move a region to another server: it is closed, and then opened there."""
    return f"/v1/regions/{region}/move", {"server": server_name}


def reopen(region: Region) -> Request:
    """Have a region closed and opened again where it is."""
    return f"/v1/regions/{region}/reopen", {}


def stop() -> Request:
    """Disable all tables that are enabled, user tables first; they are marked as stopped."""
    return "/v1/regions/all/stop", {}


def start() -> Request:
    """Enable the tables that `regent regions stop` has disabled; regions return to their servers."""
    return "/v1/regions/all/start", {}


def upgrade() -> Request:
    """Raise the level of the store, so that daemons write all that this release knows.

    Refused while a daemon that stands by does not know that level. No level falls again.
    """
    return "/v1/regions/upgrade", {}


def work(region: Region, work: Work, data: Data = "", tries: Tries = TRIES, duration: For = "") -> Request:
    """Have the server of a region do work on it; the region does not move meanwhile."""
    return work_of(f"/v1/regions/{region}", work, data, tries, duration)


def pin(region: Region, server_name: ServerName) -> Request:
    """Have a region opened at one server wherever that is online; it is not moved there now."""
    return marked("pin", str(region), server=server_name)


def unpin(region: Region) -> Request:
    """Remove the pin of a region."""
    return unmarked("pin", str(region))


def marks(session: Session) -> None:
    """List the cordons, holds, pins and weights of operators."""
    session.output.listing("RegionMark", session.client().get("/v1/regions/marks")["items"])


def locks(
    session: Session,
    waiting: Annotated[
        bool, typer.Option("--waiting", help="Only those that are waited for, with the holders.")
    ] = False,
) -> None:
    """List the locks that procedures of regions hold or wait for."""
    items = session.client().get("/v1/regions/locks")["items"]
    session.output.listing("Lock", [item for item in items if item["waiting"] or not waiting])
