"""Checks the bearer token of TCP clients: reads it from a file, and again after the file has changed."""

from __future__ import annotations

import hmac
import logging
import os
import re
from hashlib import sha256
from pathlib import Path
from typing import Final

from configs.daemon_user import ROOT

log = logging.getLogger("regent.http")

BYTES_MAX: Final = 1_002
_TOKEN: Final = re.compile(rb"[!-~]{16,1000}")
_OTHERS: Final = 0o027
"""Mode bits that a token's file must not have: reading by others, writing by group or others."""
_SCHEME: Final = b"bearer "

_Stamp = tuple[int, int, int, int]


class TokenUnusable(OSError):
    """A file that cannot serve as a token; the text names cause and remedy."""


class BearerToken:
    """The token in ``path``, which root or the daemon's ``user`` (None: any user) must own.

    While the file is unusable, the token read before stays in force.
    """

    def __init__(self, path: Path, user: int | None) -> None:
        self._path = path
        self._user = user
        self._stamp = _stamp(path)
        self._digest = _read(path, user)

    def allows(self, authorization: bytes) -> bool:
        """Returns whether a header ``Authorization`` has the token, in a time that does not depend on the token."""
        self._renew()
        scheme, given = authorization[: len(_SCHEME)], authorization[len(_SCHEME) :]
        same = hmac.compare_digest(sha256(given.strip()).digest(), self._digest)
        return same and scheme.lower() == _SCHEME

    def _renew(self) -> None:
        if (stamp := _stamp(self._path)) == self._stamp:
            return
        self._stamp = stamp
        try:
            self._digest = _read(self._path, self._user)
        except TokenUnusable as error:
            log.warning("the token that was read before stays in force: %s", error)
        else:
            log.info("the token for http.address was read again from %s", self._path)


def _read(path: Path, user: int | None) -> bytes:
    """Reads the token and returns its digest; raises :class:`TokenUnusable`."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        with os.fdopen(descriptor, "rb") as file:
            found, text = os.fstat(descriptor), file.read(BYTES_MAX)
    except OSError as error:
        raise TokenUnusable(
            f"http.token_file {path} cannot be read ({error.strerror or error}): name a file that the daemon's user "
            "may read"
        ) from error
    if found.st_mode & _OTHERS:
        raise TokenUnusable(
            f"http.token_file {path} may be read or changed by others (mode {found.st_mode & 0o7777:o}): "
            f"chmod 640 {path}"
        )
    if user is not None and found.st_uid not in (ROOT, user):
        raise TokenUnusable(
            f"http.token_file {path} may be changed by others (owner {found.st_uid}): give it to the daemon's user, "
            f"chown {user} {path}"
        )
    token = text.removesuffix(b"\n")
    if not _TOKEN.fullmatch(token):
        example = "or name another file" if token else f"for example by openssl rand -hex 32 > {path}"
        raise TokenUnusable(
            f"http.token_file {path} holds no token: write one line of 16 to 1000 characters without spaces, {example}"
        )
    return sha256(token).digest()


def _stamp(path: Path) -> _Stamp:
    try:
        found = path.stat()
    except OSError:
        return 0, 0, 0, 0
    return found.st_mtime_ns, found.st_size, found.st_ino, found.st_mode
