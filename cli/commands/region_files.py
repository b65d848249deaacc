"""Reads files with the ids of regions: one a line, of a bounded size, judged whole before anything is sent."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import Annotated, BinaryIO, Final

import typer

from cli.exit_codes import Exit, Failure

IdFile = Annotated[
    Path | None,
    typer.Option("--file", metavar="FILE", help="File with ids of regions, one on each line; -: standard input."),
]
FILE_BYTES_MAX: Final = 1_000_000
"""Bytes of a file: room for the longest ids and a comment each."""
ID: Final = re.compile("[1-9][0-9]{0,18}")
ID_MAX: Final = (1 << 63) - 1
SHOWN_CHARS: Final = 40
"""Characters of a bad line that are shown."""
STDIN: Final = Path("-")


def only_one(region: int | None, file: Path | None) -> None:
    """Checks that either an id or a file is given; raises :class:`Failure`."""
    if region is not None and file is not None:
        raise Failure(Exit.USAGE, "an id and --file exclude each other", "give ID, or --file FILE")
    if region is None and file is None:
        raise Failure(Exit.USAGE, "neither an id nor --file is given", "give ID, or --file FILE")


def ids_of(file: Path) -> list[int]:
    """Returns the ids of a file, each once; raises :class:`Failure` at the first line that has no id."""
    from state_machines.regions.choosing import IDS_MAX

    name = "standard input" if file == STDIN else str(file)
    found: dict[int, None] = {}
    for number, line in enumerate(_read(file, name).split("\n"), start=1):
        text = line.partition("#")[0].strip()
        if not text:
            continue
        if not ID.fullmatch(text) or int(text) > ID_MAX:
            shown = repr(text[:SHOWN_CHARS]) + ("..." if len(text) > SHOWN_CHARS else "")
            remedy = "write one id on each line, as 'regent regions list' shows it; nothing was sent"
            raise Failure(Exit.USAGE, f"{name}, line {number}: {shown} is no id of a region", remedy)
        found[int(text)] = None
        if len(found) > IDS_MAX:
            raise Failure(
                Exit.USAGE,
                f"{name}, line {number}: more than {IDS_MAX:,} ids, the most of one request",
                f"split it into files of {IDS_MAX:,} ids; nothing was sent",
            )
    if not found:
        raise Failure(Exit.USAGE, f"{name} has no id", "write one id of a region on each line")
    return list(found)


def _read(file: Path, name: str) -> str:
    """Reads a file of text, never more than its bound."""
    try:
        if file == STDIN:
            data = _some(sys.stdin.buffer)
        else:
            with file.open("rb") as opened:
                data = _some(opened)
        if len(data) > FILE_BYTES_MAX:
            remedy = "split it into smaller files; nothing was sent"
            raise Failure(Exit.USAGE, f"{name} has more than {FILE_BYTES_MAX:,} bytes, the most of one request", remedy)
        return data.decode("utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        raise Failure(Exit.USAGE, f"{name} cannot be read: {error}", "name a file of UTF-8 text") from error


def _some(opened: BinaryIO) -> bytes:
    return opened.read(FILE_BYTES_MAX + 1)
