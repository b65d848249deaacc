"""Reads credentials from files: named by a key, passed by systemd, or in its store; checks those of the endpoint.

The endpoint's own unit runs as a user that cannot read the daemon's password, so there it needs its own identity. As a
child of ``regent run`` it has the daemon's.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final, TypeVar

from pydantic import SecretStr

from configs.admin_section import AdminSettings
from configs.connections import ZooKeeperSettings
from configs.problems import Problem
from configs.sections import Section
from configs.settings import shown
from configs.values import check_digest

CREDENTIALS: Final = (
    ("zookeeper", "digest"), ("zookeeper", "sasl"), ("admin", "zookeeper_digest"), ("admin", "zookeeper_sasl"),
)  # fmt: skip
"""Sections and keys that hold ``user:password``; section and key, joined by dashes, name the systemd credential."""

GIVEN_SECRET: Final = "admin-secret"  # noqa: S105  # a name
"""The systemd credential of an admin endpoint with the content of ``admin.secret_file``."""

HANDED_OVER: Final = "CREDENTIALS_DIRECTORY"
STORE: Final = Path("/etc/credstore")
"""The directory from which systemd passes credentials; only root may read it."""

S = TypeVar("S", bound=Section)


def with_credential(
    section: str, key: str, found: S, origins: dict[str, str], environ: Mapping[str, str]
) -> tuple[S, list[Problem]]:
    """Reads the credentials' file into ``key``, so that no other module opens it."""
    path, name = getattr(found, f"{key}_file"), f"{section}.{key}_file"
    if getattr(found, key):
        both = Problem(
            name, shown(path), origins.get(name, ""), f"is set beside {section}.{key}", "remove one of the two"
        )
        return found, [both] if path else []
    if path is None:
        path, name = systemd_credential(credential_name(section, key), environ), f"{section}.{key}"
    if path is None:
        return found, []
    try:
        secret = check_digest(SecretStr(path.read_text(encoding="utf-8").strip()))
    except (OSError, ValueError) as error:
        why = f"cannot be read: {error.strerror}" if isinstance(error, OSError) else "holds something else"
        remedy = "the file must hold one line user:password and be readable by the daemon's user"
        return found, [Problem(name, shown(path), origins.get(name, "systemd credential"), why, remedy)]
    origins[f"{section}.{key}"] = f"file {path}"
    return found.model_copy(update={key: secret}), []


def credential_name(section: str, key: str) -> str:
    """Returns the name of the systemd credential for a key."""
    return f"{section}-{key}".replace("_", "-")


def systemd_credential(name: str, environ: Mapping[str, str]) -> Path | None:
    """Returns the file with that credential, None where there is none.

    systemd passes nothing to a command by hand: such a command uses those in the store that its user may read.
    """
    if folder := environ.get(HANDED_OVER):
        path = Path(folder, name)
        return path if path.is_file() else None
    path = STORE / name
    return path if os.access(path, os.R_OK, effective_ids=True) and path.is_file() else None


UNIT: Final = "regent-admin-endpoint.service"
MISSING: Final = (
    "closes the znodes, and the admin endpoint has no identity of its own at ZooKeeper: neither "
    "admin.zookeeper_digest_file nor admin.zookeeper_sasl_file is set, and systemd passes no credential "
    "admin-zookeeper-digest or admin-zookeeper-sasl"
)
REMEDY: Final = (
    "write one line user:password into /etc/credstore/admin-zookeeper-digest, or into admin-zookeeper-sasl there for "
    "a SASL login (root, mode 0600), and restart regent.service, which permits that user's announcements and restarts "
    f"{UNIT}; or name a file by one of the two keys that both users may read"
)


def advice(zookeeper: ZooKeeperSettings, admin: AdminSettings) -> str | None:
    """Returns a sentence for the daemon, whose endpoint may have its own unit; None where nothing is missing."""
    if not zookeeper.set_acl or admin.zookeeper_digest or admin.zookeeper_sasl:
        return None
    if not (zookeeper.sasl or zookeeper.digest):
        return None  # both users read the certificate
    return (
        f"zookeeper.set_acl = true {MISSING}. {UNIT} cannot read the daemon's and refuses to start; a child of regent "
        f"run starts, and may write everything that the daemon may. Remedy: {REMEDY}. A command by hand sees that file "
        "only as root: other users may ignore this where the file exists already"
    )


def endpoint_problems(
    zookeeper: ZooKeeperSettings, unread: Sequence[Problem], origins: Mapping[str, str]
) -> list[Problem]:
    """Returns the problems that keep an endpoint from starting, ``unread`` credentials among them.

    A daemon's credential that the endpoint cannot read is no mistake in the settings: one problem about the missing
    identity replaces it.
    """
    if not zookeeper.set_acl:
        return list(unread)
    daemons = [problem for problem in unread if problem.key.startswith("zookeeper.")]
    if not daemons and (zookeeper.sasl or zookeeper.digest or zookeeper.certificate_file):
        return list(unread)
    found = "; ".join(f"{problem.key} {problem.value} {problem.reason}" for problem in daemons)
    of_daemon = f"this process may not read the daemon's ({found})" if found else "the daemon's is not set"
    key = "zookeeper.set_acl"
    refusal = Problem(key, "true", origins.get(key, "default"), f"{MISSING}; {of_daemon}", REMEDY)
    return [*(problem for problem in unread if problem not in daemons), refusal]
