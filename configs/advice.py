"""Finds settings that are allowed but insecure, as sentences for the log of a start and for the preflight."""

from __future__ import annotations

import stat
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from configs import credentials
from configs.daemon_user import ROOT, daemon_user
from configs.settings import Settings, value_of

SECRETS: Final = (
    "zookeeper.digest_file", "zookeeper.sasl_file", "zookeeper.key_file", "admin.zookeeper_digest_file",
    "admin.zookeeper_sasl_file", "admin.key_file", "security.sasl_file", "security.sasl_brokers_file",
    "security.key_file", "http.key_file", "http.token_file", "regions.secret_file",
    "regions.clients_secret_file",
)  # fmt: skip
"""Files that hold passwords, tokens or keys. An exposed ``admin.secret_file`` is refused instead of advised against."""
HOLDERS: Final = {
    "zookeeper.certificate_file": "zookeeper.key_file",
    "security.certificate_file": "security.key_file",
    "admin.certificate_file": "admin.key_file",
    "http.certificate_file": "http.key_file",
}
"""The certificate's file holds the private key where no key file is named."""


def advice(settings: Settings) -> list[str]:
    """Returns sentences with cause and remedy; none where nothing is insecure."""
    return [
        *_exposed_files(settings),
        *_open_digest(settings),
        *_endpoint(settings),
        *_open_regions(settings),
        *_servers_as_daemons(settings),
    ]


def _open_regions(settings: Settings) -> Iterator[str]:
    regions = settings.regions
    if regions.enabled and regions.secret_file is not None and regions.clients_secret_file is None:
        yield (
            "regions.clients_secret_file is not set: every client has the secret of servers, so it could register as a "
            "server, and get its regions. Set regions.clients_secret_file, and give servers a new secret"
        )


def _servers_as_daemons(settings: Settings) -> Iterator[str]:
    regions, zookeeper = settings.regions, settings.zookeeper
    is_closed = zookeeper.digest or zookeeper.sasl or zookeeper.set_acl
    if regions.enabled and regions.transport == "zookeeper" and is_closed and regions.servers_identity is None:
        yield (
            "regions.servers_identity is not set: servers need the daemon's identity at ZooKeeper to move the znodes "
            "of regions, and with it they could write all else of the domain. Give them one of their own, and name it"
        )


def _endpoint(settings: Settings) -> Iterator[str]:
    if (sentence := credentials.advice(settings.zookeeper, settings.admin)) is not None:
        yield sentence


def _exposed_files(settings: Settings) -> Iterator[str]:
    holders = [holder for holder, key in HOLDERS.items() if value_of(settings, key) is None]
    user = daemon_user(settings.state.directory)
    for name in (*SECRETS, *holders):
        path = value_of(settings, name)
        if path is not None and (why := exposed(path, user)) is not None:
            yield f"{name} = {path} {why}"


def exposed(path: Path, user: int | None) -> str | None:
    """Returns why users other than ``user`` and root could read or change a secret, with the remedy.

    ``user`` is None where the daemon's user is unknown. The group may read: so root gives a file to the daemon's user.
    """
    try:
        found = path.stat()
    except OSError:
        return None
    if user is not None and found.st_uid not in (ROOT, user):
        return f"belongs to user {found.st_uid}, which can read and change it: chown {user} {path}"
    if found.st_mode & (stat.S_IRWXO | stat.S_IWGRP):
        return f"may be read or changed by others (mode {stat.S_IMODE(found.st_mode):04o}): chmod 0640 {path}"
    return None


def _open_digest(settings: Settings) -> Iterator[str]:
    zookeeper, admin = settings.zookeeper, settings.admin
    digests = (
        ("zookeeper.digest", zookeeper.digest, zookeeper.digest_file),
        ("admin.zookeeper_digest", admin.zookeeper_digest, admin.zookeeper_digest_file),
    )
    names = [f"{name}_file" if file is not None else name for name, digest, file in digests if digest]
    if names and not zookeeper.tls:
        yield (
            f"the digest of {' and '.join(names)} goes to ZooKeeper in plain text, and zookeeper.tls is false: "
            "with access to the network any client can read the password. Set zookeeper.tls = true, or use "
            "zookeeper.sasl_file"
        )
