"""Declares the options of the commands that have servers do work on a region, or on all regions of a table."""

from __future__ import annotations

from typing import Annotated, Final

import typer

from cli.commands.pause import seconds_of
from cli.commands.region_changes import Request

Work = Annotated[
    str, typer.Argument(help="Name of the work, a feature of the servers: flush, x-compact.", metavar="WORK")
]
Data = Annotated[str, typer.Option("--data", help="Text that the servers get with it.")]
Tries = Annotated[int, typer.Option("--tries", min=0, max=1_000, help="Failures after which it fails, 0: never.")]
For = Annotated[str, typer.Option("--for", metavar="TIME", help="Time such as 90s or 10m after which it fails.")]
TRIES: Final = 3


def work_of(path: str, work: str, data: str, tries: int, duration: str) -> Request:
    """Returns the request for work on what a path names."""
    timeout_ms = seconds_of(duration, "90s, 10m, 2h") * 1_000 if duration else 0
    return f"{path}/work", {"work": work, "data": data, "tries": tries, "timeoutMs": timeout_ms}
