"""Reads and creates the secret that a daemon and the admin endpoints share, and seals addresses with it.

A seal is an HMAC under the shared secret, which daemon and endpoint read from a file. Without seals, any client that
may write these znodes could divert traffic to its own address: all clients', or the endpoint's calls to the daemon.

A seal binds the address to the cluster, to the daemon, and to the incarnation that wrote it. The ZooKeeper session that
owns the znode identifies an endpoint's incarnation, the nonce of its process a daemon's. Envelopes
(:mod:`brokers.wire.envelope`) have seals under the same secret.
"""

from __future__ import annotations

import hmac
import os
import secrets
import stat
from contextlib import suppress
from pathlib import Path
from struct import Struct as Layout
from typing import Final

from msgspec import Struct, structs

from configs.daemon_user import ROOT, daemon_user
from metadata_store.nodes.endpoint_znode import AdminEndpoint

SECRET_BYTES: Final = 32
_FILE_BYTES_MAX: Final = 1_024
_OTHERS: Final = 0o077
_GIVEN: Final = _OTHERS & ~stat.S_IRGRP
"""Forbidden bits of root's file, which systemd passed to the daemon: its credentials' ACL shows as the group's."""


class SecretUnusable(OSError):
    """Raised where the file cannot serve as a secret; the text names cause and remedy."""


def shared_secret(path: Path) -> bytes:
    """Returns the secret in ``path``, and creates it where it does not exist; raises :class:`SecretUnusable`.

    The first process creates it, daemon or endpoint. Daemons on several machines need a copy of the same file.
    """
    try:
        with suppress(FileNotFoundError):
            return _read(path)
        _make(path)
        return _read(path)
    except SecretUnusable:
        raise
    except OSError as error:
        raise SecretUnusable(
            f"the secret {path} cannot be read or created ({error.strerror or error}): give its folder to this user, "
            "or set admin.secret_file"
        ) from error


def present_secret(path: Path) -> bytes | None:
    """Returns the secret, None where there is no file, and creates none. Raises :class:`SecretUnusable`."""
    try:
        return _read(path)
    except FileNotFoundError:
        return None
    except SecretUnusable:
        raise
    except OSError as error:
        raise _unreadable(path, error) from error


def existing_secret(path: Path) -> bytes | None:
    """Returns the secret where it exists and this user may read it, and creates none."""
    try:
        return present_secret(path)
    except SecretUnusable:
        return None


def secret_trouble(path: Path, user: int | None = None) -> str | None:
    """Returns why the daemon cannot use the file, with the remedy; None where it can, and where there is none yet.

    ``user`` is the daemon's; where it is unknown, the owner of the file's folder counts as the daemon's user. The
    result is None, too, for a caller that may not enter the folder.
    """
    if user is None:
        user = daemon_user(path.parent)
    try:
        found = path.stat()
        return _refusal(path, found, user) or _kept_from(user, path, found) or _unread(user, path, found)
    except FileNotFoundError:
        return None
    except OSError as error:
        return str(_unreadable(path, error)) if _lets_in(path.parent) else None


def _lets_in(folder: Path) -> bool:
    return os.access(folder, os.X_OK)


def _kept_from(user: int | None, path: Path, found: os.stat_result) -> str | None:
    """Checks the daemon's user's access: where root runs the check, reading the file proves nothing."""
    if user in (None, ROOT, found.st_uid) or found.st_mode & stat.S_IRGRP:
        return None
    return f"the secret {path} cannot be read by the daemon's user: chown {user} {path}"


def _unread(user: int | None, path: Path, found: os.stat_result) -> str | None:
    """Reads the file as the daemon would; a file that only the daemon's user may read counts as usable."""
    try:
        _secret_in(path, _content(path)[1])
    except SecretUnusable as error:
        return str(error)
    except PermissionError:
        if os.geteuid() != user and found.st_mode & stat.S_IRUSR:
            return None
        raise
    return None


def _read(path: Path) -> bytes:
    found, text = _content(path)
    if (why := _refusal(path, found, os.geteuid())) is not None:
        raise SecretUnusable(why)
    return _secret_in(path, text)


def _content(path: Path) -> tuple[os.stat_result, bytes]:
    descriptor = os.open(path, os.O_RDONLY)
    with os.fdopen(descriptor, "rb") as file:
        return os.fstat(descriptor), file.read(_FILE_BYTES_MAX)


def _refusal(path: Path, found: os.stat_result, user: int | None) -> str | None:
    given = found.st_uid == ROOT and user != ROOT
    if found.st_mode & (_GIVEN if given else _OTHERS):
        return f"the secret {path} may be read or changed by others: chmod {640 if given else 600} {path}"
    return None


def _secret_in(path: Path, text: bytes) -> bytes:
    try:
        secret = bytes.fromhex(text.decode("ascii").strip())
    except ValueError:
        secret = b""
    if len(secret) < SECRET_BYTES:
        raise SecretUnusable(
            f"the secret {path} does not hold {SECRET_BYTES} bytes in hexadecimal: delete it, and the next start "
            "creates another one"
        )
    return secret


def _unreadable(path: Path, error: OSError) -> SecretUnusable:
    return SecretUnusable(
        f"the secret {path} cannot be read by this user ({error.strerror or error}): give the file to the daemon's user"
    )


def _make(path: Path) -> None:
    """Creates the file, complete and on the disk before it gets its name; another process may be faster."""
    path.parent.mkdir(parents=True, exist_ok=True)
    draft = path.with_name(f".{path.name}-{secrets.token_hex(4)}.tmp")
    descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(secrets.token_hex(SECRET_BYTES).encode() + b"\n")
            file.flush()
            os.fsync(file.fileno())
        with suppress(FileExistsError):
            os.link(draft, path)
    finally:
        draft.unlink()


_I32 = Layout(">i").pack


class Seals(Struct, frozen=True):
    """Makes and checks seals with one secret, for one cluster."""

    secret: bytes
    cluster_id: str

    def announced(self, daemon: int, session: int, endpoint: AdminEndpoint) -> AdminEndpoint:
        """Returns the announcement with its seal; ``session`` will own the znode."""
        return structs.replace(endpoint, seal=self._of_endpoint(daemon, session, endpoint))

    def announces(self, daemon: int, session: int, endpoint: AdminEndpoint) -> bool:
        """Returns whether an endpoint with our secret wrote it on the session that owns the znode."""
        wanted = self._of_endpoint(daemon, session, endpoint)
        return hmac.compare_digest(wanted.encode(), endpoint.seal.encode())

    def _of_endpoint(self, daemon: int, session: int, endpoint: AdminEndpoint) -> str:
        return self._mac("endpoint", daemon, session, endpoint.listener, endpoint.host, endpoint.port)

    def of_controller(self, daemon: int, nonce: str, listener: str) -> str:
        """Returns the seal of ``/controller`` on the listener of a daemon's incarnation ``nonce``."""
        return self._mac("controller", daemon, nonce, listener)

    def is_controller(self, daemon: int, nonce: str, listener: str, seal: str) -> bool:
        """Returns whether a daemon with our secret wrote that."""
        return hmac.compare_digest(self.of_controller(daemon, nonce, listener).encode(), seal.encode())

    def of_daemon(self, daemon: int, nonce: str) -> str:
        """Returns the seal of a daemon's queue position, which shows whether two daemons have the same secret."""
        return self._mac("daemon", daemon, nonce)

    def _mac(self, kind: str, *parts: object) -> str:
        made = hmac.new(self.secret, digestmod="sha256")
        for part in ("regent znode 1", self.cluster_id, kind, *parts):
            data = str(part).encode()
            made.update(_I32(len(data)) + data)
        return made.hexdigest()
