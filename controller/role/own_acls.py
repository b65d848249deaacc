"""Makes the ACLs of regent's own znodes where ``zookeeper.set_acl`` closes what is created.

They equal those of the brokers' znodes: the brokers' identity may do everything, any client may read. Below
``/regent/endpoints`` an admin endpoint with an identity of its own may announce itself, too. Without ``set_acl`` any
client may write ``/controller`` and every topic, so a lock on ``/regent`` alone would protect nothing.
"""

from __future__ import annotations

from typing import Final

from configs.settings import Settings
from controller.role import own_znodes as own
from metadata_store import paths
from metadata_store.acl import CREATE, DELETE, OPEN, READABLE, Acl, digest_id
from metadata_store.errors import Code, ZkError
from metadata_store.nodes.endpoint_znode import ENDPOINTS
from metadata_store.port import ZooKeeper

UNUSED_ACL_VERSION: Final = 2**31 - 1


class WrongIdentity(Exception):
    """An identity whose znodes would be closed to the brokers; the text names cause and remedy."""


async def close_own(zk: ZooKeeper, announcer: tuple[str, str] | None) -> None:
    """Closes regent's znodes that were created while the cluster was open, or by an earlier release.

    ``announcer`` is scheme and id of the admin endpoints' own identity. An ACL that another client has set stays.
    """
    listed = await zk.children(own.DAEMONS)
    daemons = [f"{own.DAEMONS}/{name}" for name in (listed[0] if listed is not None else ())]
    kept = own.HISTORY, own.ROLLBACK, own.BROKER_SETTINGS, own.TOPIC_IDS_BEGIN
    for path in (own.ROOT, own.FORMAT, own.ROLE, own.DAEMONS, own.LOCKS, *kept, *daemons):
        await _close(zk, path, READABLE)
    await _close(zk, ENDPOINTS, endpoints_acl(announcer))


def announcer_of(settings: Settings) -> tuple[str, str] | None:
    """Returns scheme and id of the admin endpoints where ZooKeeper knows them by another identity than the daemon."""
    sasl, digest = settings.admin.zookeeper_sasl, settings.admin.zookeeper_digest
    if sasl is not None:
        return "sasl", sasl.get_secret_value().partition(":")[0]
    return ("digest", digest_id(*digest.get_secret_value().split(":", 1))) if digest is not None else None


def endpoints_acl(announcer: tuple[str, str] | None) -> tuple[Acl, ...]:
    """Returns the ACL of ``/regent/endpoints``, below which the endpoints create their znodes."""
    return READABLE if announcer is None else (*READABLE, Acl(CREATE | DELETE, *announcer))


async def _close(zk: ZooKeeper, path: str, acls: tuple[Acl, ...]) -> None:
    try:
        found, stat = await zk.get_acls(path)
        if tuple(found) == OPEN:
            await zk.set_acls(path, acls, stat.acl_version)
    except ZkError as error:
        if error.code not in (Code.NO_NODE, Code.BAD_VERSION):
            raise


async def check_identity(zk: ZooKeeper) -> None:
    """Raises :class:`WrongIdentity` where the brokers' znodes belong to another identity than this session's.

    Called before the first znode is created, because znodes of another identity would shut the brokers out.
    """
    if await zk.exists(paths.TOPICS) is not None and not await may_change_acls(zk, paths.TOPICS):
        raise WrongIdentity(
            f"zookeeper.set_acl is true, and the ACL of {paths.TOPICS} does not name this daemon's identity: set "
            "zookeeper.sasl_file to the user of the section Client in the brokers' JAAS file"
        )


async def may_change_acls(zk: ZooKeeper, path: str) -> bool:
    """Returns whether this session has the right, which ZooKeeper checks before it refuses the unused ACL version."""
    try:
        acls, _ = await zk.get_acls(path)
        await zk.set_acls(path, acls, UNUSED_ACL_VERSION)
    except ZkError as error:
        return error.code is not Code.NO_AUTH
    return True


def digest_pair(settings: Settings) -> tuple[str, str] | None:
    """Returns user and password of ZooKeeper's digest scheme, or None where none are set."""
    secret = settings.zookeeper.digest
    if secret is None:
        return None
    user, _, password = secret.get_secret_value().partition(":")
    return user, password
