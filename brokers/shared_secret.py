"""The secret that a daemon and the admin endpoints share: a file that only their user may read."""

from __future__ import annotations

import os
import secrets
import stat
from contextlib import suppress
from pathlib import Path
from typing import Final

SECRET_BYTES: Final = 32
_FILE_BYTES_MAX: Final = 1_024
_OTHERS: Final = 0o077
ROOT: Final = 0
"""What root owns and we read was given to us: by systemd as a credential, whose ACL shows as the group's right."""


class SecretUnusable(OSError):
    """The file cannot serve as a secret; the text says why and what to do about it."""


def shared_secret(path: Path) -> bytes:
    """The secret in ``path``, which is made where it does not exist; raises :class:`SecretUnusable`.

    Whoever comes first makes it, daemon or endpoint. Daemons on several machines need a copy of the same file.
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
            f"the secret {path} cannot be read or made ({error.strerror or error}): give its folder to this user, or "
            "set admin.secret_file"
        ) from error


def present_secret(path: Path) -> bytes | None:
    """Returns the secret, None where there is no such file; makes nothing. Raises :class:`SecretUnusable`."""
    try:
        return _read(path)
    except FileNotFoundError:
        return None
    except SecretUnusable:
        raise
    except OSError as error:
        raise SecretUnusable(
            f"the secret {path} cannot be read by this user ({error.strerror or error}): give the file to the daemon's "
            "user"
        ) from error


def existing_secret(path: Path) -> bytes | None:
    """Returns the secret where it exists and this user may read it; makes nothing."""
    try:
        return present_secret(path)
    except SecretUnusable:
        return None


def secret_trouble(path: Path) -> str | None:
    """Says why the daemon cannot use the file, with the remedy; None where it can, and where there is none yet.

    The owner of the file's folder is taken for the daemon's user where root runs the check. Nothing is said to somebody
    whom the folder does not let in.
    """
    try:
        present_secret(path)
        return _kept_from_its_user(path)
    except SecretUnusable as error:
        return str(error) if _lets_in(path.parent) else None


def _lets_in(folder: Path) -> bool:
    return os.access(folder, os.X_OK)


def _kept_from_its_user(path: Path) -> str | None:
    """Judges for the daemon's user, where root runs the check: root may read everything."""
    try:
        file, folder = path.stat(), path.parent.stat()
    except OSError:
        return None
    if os.geteuid() != ROOT or folder.st_uid in (ROOT, file.st_uid) or file.st_mode & stat.S_IRGRP:
        return None
    return f"the secret {path} cannot be read by the owner of its folder: chown {folder.st_uid} {path}"


def _read(path: Path) -> bytes:
    descriptor = os.open(path, os.O_RDONLY)
    with os.fdopen(descriptor, "rb") as file:
        found = os.fstat(descriptor)
        text = file.read(_FILE_BYTES_MAX)
    given = found.st_uid == ROOT and os.geteuid() != ROOT
    if found.st_mode & (_OTHERS & ~stat.S_IRGRP if given else _OTHERS):
        raise SecretUnusable(f"the secret {path} may be read or changed by others: chmod 600 {path}")
    try:
        secret = bytes.fromhex(text.decode("ascii").strip())
    except ValueError:
        secret = b""
    if len(secret) < SECRET_BYTES:
        raise SecretUnusable(
            f"the secret {path} does not hold {SECRET_BYTES} bytes in hexadecimal: delete it, then it is made anew"
        )
    return secret


def _make(path: Path) -> None:
    """Complete and on the disk once it has its name; another process may be faster."""
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
