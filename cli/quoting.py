"""Quotes names for paths of the daemon, without the client and what that imports."""

from __future__ import annotations

from urllib.parse import quote

from cli.exit_codes import Exit, Failure


def quoted(name: str) -> str:
    """Returns a name as one part of a path: ``.`` and ``..`` are names there, and no steps. Refuses an empty one."""
    if not name:
        raise Failure(Exit.USAGE, "the name is empty", "give a name")
    text = quote(name, safe="")
    return text if name.strip(".") else text.replace(".", "%2E")
