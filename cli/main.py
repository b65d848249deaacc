"""Starts the ``regent`` command."""

from __future__ import annotations

from typing import Annotated

import typer
from typer.completion import get_completion_inspect_parameters

from cli.commands import (
    about,
    balancer,
    config,
    cordon,
    daemon,
    deletions,
    describe,
    drain,
    elect,
    end,
    events,
    listing,
    loads,
    namespaces,
    observe,
    pause,
    pipeline,
    procedures,
    published,
    reassign,
    regions,
    restart,
    role,
    servers,
    snapshot,
    strays,
    table_snapshots,
    tables,
    throttle,
)
from cli.exit_codes import leave
from cli.help import Group
from cli.session import ConfigOption, FormatOption, NoColorOption, ServerOption, Session, TimeoutOption

EPILOG = (
    "Exit codes: 0 done, 1 failed, 2 usage or invalid file, 3 refused or no, 4 accepted but unfinished at the timeout, "
    "5 unreachable or no active controller, 6 not authorised, 130 detached by Ctrl-C."
)

app = typer.Typer(
    name="regent",
    cls=Group,
    help="regent holds the controller role of a Kafka cluster in ZooKeeper mode, and assigns regions to servers.",
    epilog=EPILOG,
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


@app.callback()
def shared(
    context: typer.Context,
    form: FormatOption = None,
    server: ServerOption = None,
    no_color: NoColorOption = False,
    request_timeout: TimeoutOption = None,
    config: ConfigOption = None,
    version: Annotated[
        bool, typer.Option("--version", is_eager=True, callback=about.print_version, help="Print the version.")
    ] = False,
) -> None:
    """Takes the options that mean the same before and after the command."""
    context.obj = Session(form, server, no_color, request_timeout, config)


for group in (
    daemon,
    config,
    observe,
    listing,
    describe,
    restart,
    strays,
    deletions,
    events,
    procedures,
    reassign,
    cordon,
    drain,
    throttle,
    elect,
    pause,
    end,
    role,
    regions,
    tables,
    namespaces,
    published,
    servers,
    balancer,
    snapshot,
    table_snapshots,
    loads,
    pipeline,
    about,
):
    group.register(app)


def main() -> None:
    """Runs the command."""
    get_completion_inspect_parameters()  # registers the shells that `regent completion` writes scripts for
    try:
        app(prog_name="regent")
    except SystemExit as ended:
        leave(ended.code)
        raise


if __name__ == "__main__":
    main()
