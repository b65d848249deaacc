"""Who the admin endpoint is at ZooKeeper where ``zookeeper.set_acl`` closes what is there.

The endpoint's own unit runs as a user that cannot read the daemon's password, so there it needs one of its own. As a
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
    "closes what is in ZooKeeper, and the admin endpoint has no identity of its own there: neither "
    "admin.zookeeper_digest_file nor admin.zookeeper_sasl_file is given, nor does systemd hand over a credential "
    "admin-zookeeper-digest or admin-zookeeper-sasl"
)
REMEDY: Final = (
    "write one line user:password into /etc/credstore/admin-zookeeper-digest, or into admin-zookeeper-sasl there for "
    "a login by SASL (root, mode 0600), and restart regent.service, which lets that user announce itself and restarts "
    f"{UNIT}; or name a file by one of the two keys that both users may read"
)


def advice(zookeeper: ZooKeeperSettings, admin: AdminSettings) -> str | None:
    """A sentence for the daemon, whose endpoint may have a unit of its own; None where all is well."""
    if not zookeeper.set_acl or admin.zookeeper_digest or admin.zookeeper_sasl:
        return None
    if not (zookeeper.sasl or zookeeper.digest):
        return None  # a certificate is read by both users
    return (
        f"zookeeper.set_acl = true {MISSING}. {UNIT} cannot read the daemon's and refuses to start; a child of regent "
        f"run starts, and may write all that the daemon may. Remedy: {REMEDY}. Only root sees that "
        "file in a command by hand: for others all is well where it is there already"
    )


def endpoint_problems(
    zookeeper: ZooKeeperSettings, unread: Sequence[Problem], origins: Mapping[str, str]
) -> list[Problem]:
    """What keeps an endpoint without an identity of its own from starting, ``unread`` credentials among it.

    A credential of the daemon that it cannot read is no mistake in the settings: one problem says so instead.
    """
    if not zookeeper.set_acl:
        return list(unread)
    daemons = [problem for problem in unread if problem.key.startswith("zookeeper.")]
    if not daemons and (zookeeper.sasl or zookeeper.digest or zookeeper.certificate_file):
        return list(unread)
    found = "; ".join(f"{problem.key} {problem.value} {problem.reason}" for problem in daemons)
    of_daemon = f"the daemon's is not this process's to read ({found})" if found else "the daemon's is not given"
    key = "zookeeper.set_acl"
    refusal = Problem(key, "true", origins.get(key, "default"), f"{MISSING}; {of_daemon}", REMEDY)
    return [*(problem for problem in unread if problem not in daemons), refusal]
