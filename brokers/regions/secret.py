"""Reads the secret that servers and clients of regions send in their Hello."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final

from brokers.security.users import SecurityUnusable

_SECRET: Final = re.compile(r"[!-~]{16,1000}")


def regions_secret(path: Path) -> str:
    """Returns the only line of a file; raises :class:`SecurityUnusable`."""
    try:
        secret = path.read_text(encoding="utf-8").removesuffix("\n")
    except (OSError, UnicodeDecodeError) as error:
        why = error.strerror if isinstance(error, OSError) else "it is not UTF-8"
        raise SecurityUnusable(
            f"regions.secret_file {path} cannot be read ({why}): name a file that the daemon's user may read"
        ) from error
    if not _SECRET.fullmatch(secret):
        raise SecurityUnusable(
            f"regions.secret_file {path} holds no secret: write one line of 16 to 1000 characters without spaces, for "
            f"example by openssl rand -hex 32 > {path}"
        )
    return secret
