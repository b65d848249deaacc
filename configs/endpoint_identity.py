"""Checks the admin endpoint's identity at ZooKeeper where ``zookeeper.set_acl`` closes the znodes.

The endpoint's own unit runs as a user that cannot read the daemon's password, so there it needs its own identity. As a
child of ``regent run`` it has the daemon's.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from configs.admin_section import AdminSettings
from configs.problems import Problem
from configs.zookeeper_section import ZooKeeperSettings

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
