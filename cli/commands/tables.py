"""Adds regent tables: tables whose key ranges are regions."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Final, Literal

import typer

from cli.commands.region_changes import Request, change
from cli.commands.region_work import TRIES, Data, For, Tries, Work, work_of
from cli.exit_codes import Exit, Failure
from cli.help import Panel
from cli.quoting import quoted
from cli.session import Session, command, group

Table = Annotated[str, typer.Argument(help="Name of the table, NAMESPACE:TABLE or TABLE.")]
Split = Annotated[
    list[str] | None,
    typer.Option("--split", metavar="KEY", help="A key at which a region begins; may be repeated, in ascending order."),
]
SplitsFile = Annotated[Path | None, typer.Option("--splits-file", help="File with these keys, one on each line.")]
UNIFORM_MAX: Final = 1_000_000
"""Regions that the daemon makes evenly at most."""
Uniform = Annotated[
    int | None,
    typer.Option(
        "--regions",
        min=1,
        max=UNIFORM_MAX,
        help="That many regions, evenly over keys of eight hexadecimal digits.",
    ),
]
Kind = Annotated[
    Literal["meta", "system", "user"], typer.Option("--kind", help="meta and system come first in every crash.")
]
Options = Annotated[
    list[str] | None, typer.Option("--option", metavar="NAME=VALUE", help="For the service; may be repeated.")
]


def register(app: typer.Typer) -> None:
    """Adds the commands."""
    named = group(app, "tables", "Create, enable, disable and delete tables of regions.", Panel.REGIONS)
    command(named, name="list", examples=("regent tables list", "regent tables list -o wide"))(listed)
    command(named, examples=("regent tables describe shop:orders",))(describe)
    change(
        named,
        create,
        "regent tables create shop:orders --regions 64 --wait",
        "regent tables create users --split g --split n --split '\\xF0' --option ttl=60",
        "regent tables create users --splits-file keys.txt --dry-run",
    )
    change(named, enable, "regent tables enable users --wait")
    example, asks = "regent tables disable users --wait --yes --reason 'moved'", "Close all regions of table {table}?"
    change(named, disable, example, asks=asks)
    asks = "Truncate table {table}? Its data is gone for ever."
    change(named, truncate, "regent tables truncate users --wait --yes", asks=asks)
    change(named, modify, "regent tables modify users --option ttl=120 --remove codec --wait")
    change(named, work, "regent tables work users x-compact --wait", "regent tables work users flush --for 10m")
    change(named, clone, "regent tables clone copy --snapshot monday --wait", "regent tables clone copy --table users")
    change(named, flush, "regent tables flush users --wait")
    change(named, snapshot, "regent tables snapshot users monday --wait")
    asks = "Replace the data of table {table} by that of snapshot {snapshot}?"
    change(named, restore, "regent tables restore users monday --wait --yes", asks=asks)
    asks = "Give keys of table {table} that no region has to empty regions? Data that was there is not served any more."
    example = "regent tables fix-keys users --wait --yes --reason 'no copy has its row'"
    change(named, fix_keys, example, asks=asks, reasoned=True)
    asks = "Store the row of table {table} again? It is not changed any more before the restart."
    example = "regent tables adopt users --option ttl=60 --wait --yes --reason 'no copy has its row'"
    change(named, adopt, example, asks=asks, reasoned=True, foretold=True)
    asks = "Delete table {table}? Its regions are gone for ever."
    change(named, delete, "regent tables delete users --wait --yes", asks=asks)


def work(table: Table, work: Work, data: Data = "", tries: Tries = TRIES, duration: For = "") -> Request:
    """Have servers do work on all open regions of a table."""
    return work_of(_path(table), work, data, tries, duration)


def listed(session: Session) -> None:
    """List the tables, with counts of regions."""
    session.output.listing("Table", session.client().pages("/v1/regions/tables"))


def describe(session: Session, table: Table) -> None:
    """Show a table."""
    found = session.client().get(_path(table))["items"][0]
    options = [f"{name}={value}" for name, value in found["options"].items()]
    session.output.detail("Table", found if session.output.for_programs else found | {"options": options})


def create(
    table: Table,
    split: Split = None,
    splits_file: SplitsFile = None,
    regions: Uniform = None,
    kind: Kind = "user",
    option: Options = None,
) -> Request:
    r"""Create a table, and have its regions assigned; clients see it once that is done.

    Keys are text: printable ASCII as it is, any other byte, and the backslash, as \xNN.
    """
    splits = [*(split or []), *_lines(splits_file)]
    if splits and regions:
        raise Failure(Exit.USAGE, "split keys and --regions exclude each other", "give one of them")
    options = _options(option or [])
    body = {"name": table, "splits": splits, "uniform": regions or 0, "kind": kind, "options": options}
    return "/v1/regions/tables", body


def adopt(
    table: Table,
    kind: Annotated[Literal["meta", "system", "user"] | None, typer.Option("--kind", help="As it was created.")] = None,
    option: Options = None,
    enabled: Annotated[
        bool | None,
        typer.Option("--enabled/--disabled", help="Whether it is served; 'regent tables disable' closes it then."),
    ] = None,
) -> Request:
    """Store the row of a table again that cannot be read, or is lost; its regions are its own after a restart.

    What is not given is as the damaged row still has it; what cannot be read there has the default of a new table.
    Regions that are open keep the options with which they were opened: `regent tables modify` opens them anew.
    """
    given = {"kind": kind, "options": _options(option) if option else None, "enabled": enabled}
    return f"{_path(table)}/adopt", {name: value for name, value in given.items() if value is not None}


def enable(table: Table) -> Request:
    """Have all regions of a disabled table opened."""
    return f"{_path(table)}/enable", {}


def disable(table: Table) -> Request:
    """Have all regions of a table closed; it serves nothing until `regent tables enable`."""
    return f"{_path(table)}/disable", {}


def truncate(
    table: Table,
    drop_splits: Annotated[
        bool, typer.Option("--drop-splits", help="One region with all keys takes their place.")
    ] = False,
    keep_disabled: Annotated[bool, typer.Option("--keep-disabled", help="Do not enable the table then.")] = False,
) -> Request:
    """Replace the regions of a disabled table by empty ones, and enable it."""
    return f"{_path(table)}/truncate", {"dropSplits": drop_splits, "enable": not keep_disabled}


def modify(
    table: Table,
    option: Options = None,
    remove: Annotated[
        list[str] | None, typer.Option("--remove", metavar="NAME", help="An option that goes; may be repeated.")
    ] = None,
    together: Annotated[
        int, typer.Option("--together", min=1, max=1_000, help="Regions that are opened again at a time.")
    ] = 50,
) -> Request:
    """Change options of a table, and have its regions opened again with them, some at a time."""
    body = {"options": _options(option or []), "remove": remove or [], "together": together}
    return f"{_path(table)}/modify", body


def clone(
    table: Table,
    of_table: Annotated[str, typer.Option("--table", metavar="TABLE", help="The disabled table that is copied.")] = "",
    of_snapshot: Annotated[str, typer.Option("--snapshot", metavar="NAME", help="The snapshot that is copied.")] = "",
    option: Options = None,
) -> Request:
    """Make a table that begins as a disabled one, or as a snapshot; both stay as they are."""
    if bool(of_table) is bool(of_snapshot):
        raise Failure(Exit.USAGE, "a clone is one of a table or of a snapshot", "give --table or --snapshot")
    body = {"source": of_table, "snapshot": of_snapshot, "options": _options(option or [])}
    return f"{_path(table)}/clone", body


def flush(table: Table) -> Request:
    """Have all open regions of a table make durable what is in memory."""
    return work_of(_path(table), "flush", "", TRIES, "")


def snapshot(
    table: Table, name: Annotated[str, typer.Argument(help="Name of the snapshot.", metavar="NAME")]
) -> Request:
    """Make a snapshot of an enabled table; it serves meanwhile."""
    return "/v1/regions/snapshots", {"name": name, "table": table}


def restore(
    table: Table,
    snapshot: Annotated[str, typer.Argument(help="Name of the snapshot.", metavar="SNAPSHOT")],
    keep_disabled: Annotated[bool, typer.Option("--keep-disabled", help="Do not enable the table then.")] = False,
) -> Request:
    """Replace the regions of a disabled table by those of a snapshot, and enable it."""
    return f"{_path(table)}/restore", {"snapshot": snapshot, "enable": not keep_disabled}


def fix_keys(table: Table) -> Request:
    """Give the keys of a table that no region has to empty regions, where no copy of the store has their rows."""
    return f"{_path(table)}/fix-keys", {}


def delete(table: Table) -> Request:
    """Delete a disabled table and its regions; the data is the service's to remove."""
    return f"{_path(table)}/delete", {}


def _path(table: str) -> str:
    return f"/v1/regions/tables/{quoted(table)}"


def _lines(file: Path | None) -> list[str]:
    if file is None:
        return []
    try:
        return [line for line in file.read_text(encoding="utf-8").splitlines() if line]
    except (OSError, UnicodeDecodeError) as error:
        raise Failure(Exit.USAGE, f"{file} cannot be read: {error}", "name a file of UTF-8 text") from error


def _options(given: list[str]) -> dict[str, str]:
    found = dict[str, str]()
    for name, value in map(_pair, given):
        if name in found:
            raise Failure(Exit.USAGE, f"--option {name!r} is given twice", "give each option once")
        found[name] = value
    return found


def _pair(text: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not (name and equals):
        raise Failure(Exit.USAGE, f"--option {text!r} is not NAME=VALUE", "write for example --option ttl=60")
    return name, value
