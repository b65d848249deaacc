"""Finds the daemon's user, which may differ from the command's: root or a member of the group may run commands."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final

ROOT: Final = 0


def daemon_user(directory: Path) -> int | None:
    """Returns the owner of the daemon's folder; None where root calls and there is no such folder yet.

    Where the folder is missing or root's, a caller other than root counts as the daemon's user.
    """
    try:
        owner = directory.stat().st_uid
    except OSError:
        owner = None
    own = os.geteuid()
    return own if own != ROOT and owner in (None, ROOT) else owner
