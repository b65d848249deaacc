"""Checks, without a write, that ZooKeeper permits the writes of a controller, and no other client regent's znodes.

ZooKeeper checks the permissions of a multi's operations in order, before their effects. So each probe is a multi of
writes that would change nothing (the same data, at the same version) and, last, a check of a znode that does not exist.
Where that check fails, every write before it is permitted, and none was executed.
"""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from typing import Final

from configs.connections import ZooKeeperSettings
from controller.daemon.preflight.context import SET_ACL, Context, Finding, ok, refuse, warn
from controller.process.wording import NAMED_MAX, named
from controller.role import own_znodes as own
from controller.role.own_znodes import closes, may_change_acls
from metadata_store import paths
from metadata_store.acl import ALL, Acl, digest_id
from metadata_store.closing import close_tree
from metadata_store.errors import Code, MultiFailed
from metadata_store.own import ROOT
from metadata_store.port import Check, Create, Delete, Node, Op, SetData, ZooKeeper

PROBES_MAX: Final = 200
"""Operations of one probing multi."""

PROBE_BYTES_MAX: Final = 400_000

LOOKED_AT_MAX = 5_000
"""Znodes of regent whose ACLs are read: records and regions may be many."""

NAME = "access control of znodes"

_PARENTS: Final = (
    own.ROOT,
    own.LOCKS,
    paths.TOPICS,
    paths.DELETE_TOPICS,
    f"{paths.CONFIG}/topics",
    f"{paths.CONFIG}/users",
    paths.CONFIG_CHANGES,
    paths.DELEGATION_TOKENS,
    paths.DELEGATION_CHANGE_PREFIX.rpartition("/")[0],
    paths.ADMIN,
    paths.ISR_CHANGES,
    paths.LOG_DIR_EVENTS,
)
"""Parents below which the controller creates or deletes znodes."""

REMEDY: Final = (
    "give regent the brokers' rights there: open the ACLs, for instance with Kafka's zookeeper-security-migration.sh "
    "--zookeeper.acl=unsecure, or set zookeeper.sasl_file or zookeeper.digest_file to an identity that the ACLs name"
)


async def writable(ctx: Context) -> Finding:
    """Checks writes of the controller's own znodes, of every topic's, and below the parents of new znodes."""
    name = "permissions"
    ops = [*await _own_writes(ctx.zk), *await _topic_writes(ctx)]
    refused: list[str] = []
    for chunk in _chunks(ops):
        refused += await refused_paths(ctx.zk, chunk, NAMED_MAX + 1 - len(refused))
        if len(refused) > NAMED_MAX:
            break
    if refused:
        return refuse(name, f"no permission to write {named(refused)}", REMEDY)
    return ok(name, f"{len(ops)} writes would be allowed")


async def lockable(ctx: Context) -> Finding:
    """Checks the lock of ``on_absence = "hold"``: the credentials that lock ``/controller_epoch`` must unlock it."""
    name = "lock-out"
    if not ctx.role.hold:
        return ok(name, 'not used: controller.on_absence is "brokers"')
    if ctx.role.lock_out_acls() is None:
        return refuse(
            name,
            'controller.on_absence is "hold" and there are no credentials to lock brokers out with',
            "set zookeeper.digest_file to a file with one line user:password",
        )
    if await ctx.zk.exists(paths.CONTROLLER_EPOCH) is None:
        return ok(name, f"{paths.CONTROLLER_EPOCH} does not exist yet")
    if not await may_change_acls(ctx.zk, paths.CONTROLLER_EPOCH):
        return refuse(
            name,
            f"no permission to change the ACL of {paths.CONTROLLER_EPOCH}",
            "set zookeeper.digest_file to the credentials that locked it",
        )
    return ok(name, f"the ACL of {paths.CONTROLLER_EPOCH} can be changed")


async def set_acl(ctx: Context) -> Finding:
    """Compares the brokers' setting with ours, and checks that the brokers could write our znodes."""
    closing, opening = ctx.with_config(SET_ACL, "true"), ctx.with_config(SET_ACL, "false")
    if closing and opening:
        return refuse(
            NAME,
            f"{SET_ACL} is true on broker {named(closing)} and false on broker {named(opening)}",
            "give all brokers one value, restart them one by one, and set zookeeper.set_acl to the same",
        )
    if closing and not ctx.zk.set_acl:
        return refuse(
            NAME,
            f"{SET_ACL}=true on broker {named(closing)}, and zookeeper.set_acl is false: regent's znodes would be "
            "open to any client, keys of SCRAM users included",
            "set zookeeper.set_acl = true, and zookeeper.sasl_file to the brokers' user",
        )
    if not ctx.zk.set_acl:
        return ok(NAME, "open to any client, as on the brokers")
    if opening:
        return refuse(
            NAME,
            f"zookeeper.set_acl is true, and {SET_ACL}=false on broker {named(opening)}: they could not write "
            "regent's znodes",
            f"set zookeeper.set_acl = false, or {SET_ACL}=true on the brokers",
        )
    return await _same_identity(ctx)


async def _same_identity(ctx: Context) -> Finding:
    """Checks that one identity owns the brokers' znodes and ours, so that brokers can take the role back."""
    acls, _ = await ctx.zk.get_acls(paths.TOPICS)
    owners = [acl for acl in acls if acl.perms == ALL]
    if any(acl.scheme == "world" for acl in owners):
        return refuse(
            NAME,
            f"zookeeper.set_acl is true, and {paths.TOPICS} is open to any client: it was created before the brokers "
            f"had {SET_ACL}=true",
            "close the existing znodes with Kafka's zookeeper-security-migration.sh --zookeeper.acl=secure",
        )
    others = [f"{acl.scheme}:{acl.id}" for acl in owners if not _is_ours(ctx.settings.zookeeper, acl)]
    if others:
        return refuse(
            NAME,
            f"{paths.TOPICS} belongs to {', '.join(others)}, which is not this daemon's identity: brokers could not "
            "write regent's znodes",
            "set zookeeper.sasl_file to the user of the section Client in the brokers' JAAS file, or "
            "zookeeper.certificate_file to a certificate with the brokers' subject",
        )
    return ok(NAME, f"closed, as on the brokers; they belong to {', '.join(f'{a.scheme}:{a.id}' for a in owners)}")


def _is_ours(zookeeper: ZooKeeperSettings, acl: Acl) -> bool:
    """Returns whether an ACL names our identity. The check of permissions stands in for a certificate's subject."""
    match acl.scheme:
        case "sasl" if zookeeper.sasl is not None:
            return acl.id == zookeeper.sasl.get_secret_value().partition(":")[0]
        case "digest" if zookeeper.digest is not None:
            user, _, password = zookeeper.digest.get_secret_value().partition(":")
            return acl.id == digest_id(user, password)
        case "x509":
            return zookeeper.certificate_file is not None
    return False


async def own_znodes(ctx: Context) -> Finding:
    """Looks for znodes below ``/regent`` that any client may write, although they are closed by the settings."""
    name = "regent's znodes"
    if not closes(ctx.zk):
        return ok(name, "open to any client, as those of the brokers are")
    found = await close_tree(ctx.zk, ROOT, only_look=True, looked_at_max=LOOKED_AT_MAX)
    if found.left:
        return warn(
            name,
            f"any client may write {named(found.left)}: another release made them, or the cluster was open then",
            "start a daemon of this release: it closes them; one that is named again has an ACL of another client, and "
            "needs ZooKeeper's super user",
        )
    if found.others:
        return warn(name, found.others, "give the commands where none of that is meant")
    return ok(name, f"{found.looked_at} are closed to other clients")


async def refused_paths(zk: ZooKeeper, ops: Sequence[Op], most: int) -> list[str]:
    """Returns the paths of at most ``most`` operations that are not permitted."""
    left = list(ops)
    refused: list[str] = []
    while left and len(refused) < most:
        nowhere = Check(f"/{uuid.uuid4().hex}", 0)
        try:
            await zk.multi([*left, nowhere])
        except MultiFailed as failed:
            if failed.index >= len(left):
                break
            op = left.pop(failed.index)
            if failed.code is Code.NO_AUTH:
                refused.append(op.path)
    return refused


async def _own_writes(zk: ZooKeeper) -> list[Op]:
    """Returns writes of the controller's znodes; one that must create uses a unique name."""
    mark = f"probe-{uuid.uuid4().hex}"
    ops: list[Op] = []
    holder = await zk.get(paths.CONTROLLER)
    if holder is not None:
        ops.append(Delete(paths.CONTROLLER, holder.stat.version))
    else:
        ops.append(Create(paths.CONTROLLER, b""))
    for path in (paths.CONTROLLER_EPOCH, paths.PRODUCER_IDS, paths.FEATURE, own.ROLE):
        node = await zk.get(path)
        if node is not None:
            ops.append(SetData(path, node.data, node.stat.version))
    for parent in _PARENTS:
        if await zk.exists(parent) is not None:
            ops += [Create(f"{parent}/{mark}", b""), Delete(f"{parent}/{mark}", 0)]
    if await zk.exists(own.ROOT) is None:
        ops.append(Create(own.ROOT, b""))
    return ops


async def _topic_writes(ctx: Context) -> list[Op]:
    """Returns writes of every topic's znode and of its first partition's state, which has the ACL of its siblings."""
    wanted = [paths.topic(topic.name) for topic in ctx.topics]
    wanted += [paths.state(topic.name, min(topic.partitions)) for topic in ctx.topics if topic.partitions]
    found = await ctx.zk.read_many(wanted)
    return [
        SetData(path, node.data, node.stat.version)
        for path, node in zip(wanted, found, strict=True)
        if isinstance(node, Node)
    ]


def _chunks(ops: Sequence[Op]) -> list[list[Op]]:
    chunks: list[list[Op]] = [[]]
    size = 0
    for op in ops:
        weight = len(op.path) + len(getattr(op, "data", None) or b"") + 100
        if len(chunks[-1]) >= PROBES_MAX or size + weight > PROBE_BYTES_MAX:
            chunks.append([])
            size = 0
        chunks[-1].append(op)
        size += weight
    return chunks
