"""Adds ``regent regions report``: it lists the faults of regions, and the command that mends each."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final, Literal

import typer

from cli.exit_codes import Exit
from cli.session import Session, command

if TYPE_CHECKING:
    from cli.client import Json

Kind = Literal[
    "damaged", "hole", "overlap", "not_open", "unknown_server", "claimed_twice", "no_heirs", "no_parent", "no_region",
    "no_namespace", "halted",
]  # fmt: skip
REPORT_TIMEOUT_S: Final = 60.0
"""A report of a million regions takes some seconds."""
LISTED: Final = 500
EXAMPLES: Final = (
    "regent regions report",
    "regent regions report --table shop:orders -o json",
    "regent regions report --kind not_open",
    "regent regions report --offline /var/lib/regent/regions.db",
)


def register(named: typer.Typer) -> None:
    """Adds the command below ``regent regions``."""
    command(named, examples=EXAMPLES)(report)


def report(
    session: Session,
    table: Annotated[str | None, typer.Option("--table", help="About this table alone.")] = None,
    kind: Annotated[Kind | None, typer.Option("--kind", help="Findings of one kind alone.")] = None,
    limit: Annotated[int, typer.Option("--limit", min=1, max=5_000, help="Most findings that are listed.")] = LISTED,
    offline: Annotated[
        Path | None, typer.Option("--offline", help="File of a SQLite store that no daemon has.", metavar="STORE")
    ] = None,
) -> None:
    """List the faults of regions and the command that mends each; the exit code is 3 if there are any."""
    output = session.output
    if offline is not None:
        found = _offline(offline, table or "", kind, limit)
    else:
        params: dict[str, Any] = {"limit": limit} | {
            name: value for name, value in (("table", table), ("kind", kind)) if value is not None
        }
        found = session.client(REPORT_TIMEOUT_S).get("/v1/regions/report", params)["items"][0]
    if output.for_programs:
        output.document("RegionsReport", [found])
    elif found["findings"]:
        output.listing("RegionFinding", found["findings"])
    output.message(verdict(found), style="red" if found["total"] else "green")
    if found["total"]:
        raise typer.Exit(Exit.REFUSED)


def _offline(store: Path, table: str, kind: str | None, limit: int) -> Json:
    from cli.offline_regions import report
    from state_machines.regions.findings import FindingKind, Scope

    found = report(store, Scope(table, None if kind is None else FindingKind(kind), limit))
    item: Json = found.model_dump(mode="json", by_alias=True, exclude_none=True)
    return item


def verdict(found: Json) -> str:
    """Returns the sentence that sums a report up."""
    judged = f"{_counted(found['regions'], 'region')} of {_counted(found['tables'], 'table')}"
    work = f"; procedures see to {_counted(found['inWork'], 'region')}" if found["inWork"] else ""
    if not found["total"]:
        return f"nothing is wrong with {judged}{work}"
    by_kind = ", ".join(f"{count:,} {kind}" for kind, count in found["counts"].items())
    left = found["total"] - len(found["findings"])
    more = f"; {left:,} of them not listed" if left else ""
    return f"{_counted(found['total'], 'finding')} in {judged}: {by_kind}{more}{work}"


def _counted(count: int, noun: str) -> str:
    return f"{count:,} {noun}" + ("" if count == 1 else "s")
