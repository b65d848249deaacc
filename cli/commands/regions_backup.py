"""Adds regent regions backup and regent regions restore: copies of the SQLite store of regions."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer

from cli.session import Session, command, confirmed

if TYPE_CHECKING:
    from configs.settings import Settings

StoreOption = Annotated[
    Path | None,
    typer.Option("--store", help="SQLite file of the store (default: that of the settings).", metavar="STORE"),
]
BACKUPS: Final = (
    "regent regions backup /var/backups/regent/regions.db",
    "regent regions backup /var/backups/regent/regions.db --force -o json",
    "regent regions backup regions-copy.db --store /var/lib/regent/regions.db",
)
RESTORES: Final = (
    "regent regions restore /var/backups/regent/regions.db --dry-run",
    "regent regions restore /var/backups/regent/regions.db --yes",
    "regent regions restore regions-copy.db --store /var/lib/regent/regions.db --epoch 120 --number 910000",
)


def register(named: typer.Typer) -> None:
    """Adds the commands below ``regent regions``."""
    command(named, examples=BACKUPS)(backup)
    command(named, examples=RESTORES)(restore)


def _settings(session: Session) -> Settings:
    without_file = "name the settings with --config, or the file of the store with --store"
    return session.settings(kafka_optional=True, without_file=without_file).settings


def backup(
    session: Session,
    file: Annotated[Path, typer.Argument(help="New file for the copy.", metavar="FILE")],
    store: StoreOption = None,
    force: Annotated[bool, typer.Option("--force", help="Replace the file, once the new copy is whole.")] = False,
) -> None:
    """Copy the SQLite store of regions into a file, also beside a daemon that runs, and judge the copy.

    The copy is one moment of the store. With regions.store "zookeeper", back ZooKeeper itself up.
    """
    from cli import copies_of_stores

    found = copies_of_stores.store_of(lambda: _settings(session), store)
    output = session.output
    item = copies_of_stores.back_up(found, file, replaces=force)
    output.detail("StoreBackup", item, bad=("damaged",) if item["damaged"] else ())
    if item["damaged"]:
        output.message(f"{item['damaged']:,} rows cannot be used, in the store, too: see regent regions report", "red")
    output.message(f"{file} is whole: regions: {item['regions']:,}, tables: {item['tables']:,}", style="green")


def restore(
    session: Session,
    file: Annotated[Path, typer.Argument(help="File of a backup.", metavar="FILE")],
    store: StoreOption = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Say what would be lost, and change nothing.")] = False,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do it without a question.")] = False,
    epoch: Annotated[
        int, typer.Option("--epoch", min=0, help="Epoch above which the next daemon begins, where no store has it.")
    ] = 0,
    number: Annotated[
        int, typer.Option("--number", min=0, help="Number above which tokens and ids go on, where no store has it.")
    ] = 0,
) -> None:
    """Put a backup in the place of the SQLite store, while no daemon runs, and keep the store that was there.

    The next daemon goes above all epochs and numbers of both, and gives servers one lease to say what they have.
    With regions.store "zookeeper", restore ZooKeeper itself.
    """
    from cli import copies_of_stores

    found = copies_of_stores.store_of(lambda: _settings(session), store)
    output = session.output
    with copies_of_stores.planned(file, found, epoch, number) as plan:
        for sentence in copies_of_stores.sentences(plan):
            output.message(sentence, style="yellow")
        if dry_run:
            output.detail("StoreRestore", copies_of_stores.item_of(plan, file, found))
            output.message("nothing was changed")
            return
        confirmed(yes, f"Replace {found} by {file}? Servers keep what they serve until a daemon says otherwise.")
        item = copies_of_stores.carry_out(plan, file, found)
    output.detail("StoreRestore", item)
    output.message(f"{found} is what {file} has: start the daemons", style="green")
    if "aside" in item:
        back = shlex.join(["regent", "regions", "restore", item["aside"], "--store", str(found)])
        output.message(f"the store before it is {item['aside']}: stop the daemons, then '{back}' goes back")
