"""Reads files of ``user:password`` lines: the daemon's user at brokers, and the brokers' users at the daemon."""

from __future__ import annotations

from pathlib import Path
from typing import Final

USERS_MAX: Final = 10_000


class SecurityUnusable(OSError):
    """Raised where a file of ``[security]`` cannot be used; the text names the file and the remedy."""


def read_users(path: Path) -> dict[str, str]:
    """Returns passwords by user name, at least one; raises :class:`SecurityUnusable`."""
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        why = error.strerror if isinstance(error, OSError) else "it is not UTF-8"
        raise SecurityUnusable(
            f"{path} cannot be read: {why}; give a file that the daemon's user may read, one user:password in each line"
        ) from error
    users: dict[str, str] = {}
    for number, line in enumerate(lines, 1):
        name, colon, password = line.strip().partition(":")
        if not line.strip() or line.startswith("#"):
            continue
        if not (name and colon and password) or len(users) >= USERS_MAX:
            raise SecurityUnusable(f"{path}, line {number}, is not user:password")
        users[name] = password
    if not users:
        raise SecurityUnusable(f"{path} contains no user: write user:password into it")
    return users


def read_user(path: Path) -> tuple[str, str]:
    """Returns the only user of a file; raises :class:`SecurityUnusable`."""
    users = read_users(path)
    if len(users) != 1:
        raise SecurityUnusable(f"{path} contains {len(users)} users: the daemon needs one line user:password")
    return next(iter(users.items()))
