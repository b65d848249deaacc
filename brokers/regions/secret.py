"""Reads the secrets that servers and clients of regions send in their Hello, and compares them."""

from __future__ import annotations

import hmac
import json
import re
import shlex
from itertools import count
from pathlib import Path
from typing import Final, NamedTuple

from brokers.security.authentication import SecurityUnusable

LINES_MAX: Final = 2
_SECRET: Final = re.compile(r"[!-~]{16,1000}")


class Secrets(NamedTuple):
    """Secrets that a Hello may give. Without one of servers no peer needs any.

    ``servers``: with one of these a peer may do everything. ``clients``: with one of these it may ask for routes.
    """

    servers: tuple[str, ...] = ()
    clients: tuple[str, ...] = ()

    def serves(self, given: str) -> bool | None:
        """Returns whether a secret is one of servers, or of clients (False); None for any other."""
        if not self.servers or _is_one(given, self.servers):
            return True
        return False if _is_one(given, self.clients) else None


NO_SECRETS: Final = Secrets()


def _is_one(given: str, of: tuple[str, ...]) -> bool:
    """Checks all of them, so that the time says nothing about which one fits."""
    return sum(hmac.compare_digest(given.encode(), one.encode()) for one in of) > 0


def regions_secrets(servers: Path | None, clients: Path | None) -> Secrets:
    """Reads both files; raises :class:`SecurityUnusable`, also where a secret is in both."""
    found = Secrets(
        secrets_in("regions.secret_file", servers) if servers is not None else (),
        secrets_in("regions.clients_secret_file", clients) if clients is not None else (),
    )
    if servers is not None and clients is not None and set(found.servers).intersection(found.clients):
        raise SecurityUnusable(
            f"regions.clients_secret_file {clients} and regions.secret_file {servers} hold the same secret, so every "
            f"client could register as a server: {_another(servers, clients)}"
        )
    return found


def _another(servers: Path, clients: Path) -> str:
    """Returns how clients get a secret of their own, without a loss of that of servers."""
    if not clients.samefile(servers):
        return f"write another one for clients, for example by openssl rand -hex 32 > {clients}"
    names = (servers.with_name(f"{servers.name}-clients{number or ''}") for number in count())
    free = next(name for name in names if not name.exists())
    found = servers.stat()
    rights = f"-m {found.st_mode & 0o777:04o} -o {found.st_uid} -g {found.st_gid}"
    return (
        "both are one file, which stays as it is; make one for clients that the same users may read, by openssl rand "
        f"-hex 32 | install {rights} /dev/stdin {shlex.quote(str(free))} , and set "
        f"regions.clients_secret_file = {json.dumps(str(free), ensure_ascii=False)}"
    )


def secrets_in(key: str, path: Path) -> tuple[str, ...]:
    """Returns the lines of a file, the present secret and at most one other; raises :class:`SecurityUnusable`."""
    try:
        lines = path.read_text(encoding="utf-8").removesuffix("\n").split("\n")
    except (OSError, UnicodeDecodeError) as error:
        why = error.strerror if isinstance(error, OSError) else "it is not UTF-8"
        raise SecurityUnusable(
            f"{key} {path} cannot be read ({why}): name a file that the daemon's user may read"
        ) from error
    if len(lines) > LINES_MAX or not all(map(_SECRET.fullmatch, lines)):
        example = f", for example by openssl rand -hex 32 > {path}" if lines == [""] else ", or name another file"
        raise SecurityUnusable(
            f"{key} {path} holds no secret: write one line of 16 to 1000 characters without spaces{example}; while it "
            "is replaced, a second line with the other one"
        )
    return tuple(lines)
