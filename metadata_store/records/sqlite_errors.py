"""Names what ends an error of SQLite. The daemon opens its store again by itself, so no remedy is a restart."""

from __future__ import annotations

from typing import Final

FULL: Final = "make room on the disk: the daemon goes on by itself then"
REMEDIES: Final = {
    "disk is full": FULL,
    "No space left": FULL,
    "readonly": "give the daemon's user the right to write the file and its folder",
    "malformed": "stop the daemon, keep a copy, and see the SQLite documentation on recovery (.recover)",
    "not a database": "name another file: this one is no store of procedures",
    "unable to open": "create the folder, and give the daemon's user the right to write there",
    "locked": "another process keeps the file locked: find it (fuser, lsof) and end it",
}
"""Remedies by a part of a message."""


def remedy(error: Exception) -> str:
    """Returns what ends an error."""
    text = str(error)
    found = (one for known, one in REMEDIES.items() if known in text)
    return next(found, "check the file, its folder and the disk: the daemon goes on by itself once they are sound")
