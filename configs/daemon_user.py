"""Whose daemon the settings are for: root, or a member of the daemon's group, may run the command, too."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final

ROOT: Final = 0


def daemon_user(directory: Path) -> int | None:
    """Returns the owner of the daemon's folder; None where root asks and there is no such folder yet.

    A folder that is missing or root's says nothing to another user, who is taken for the daemon's.
    """
    try:
        owner = directory.stat().st_uid
    except OSError:
        owner = None
    own = os.geteuid()
    return own if own != ROOT and owner in (None, ROOT) else owner
