"""Checks, without a write, that ZooKeeper permits the writes of a controller.

ZooKeeper checks the permissions of a multi's operations in order, before their effects. So each probe is a multi of
writes that would change nothing (the same data, at the same version) and, last, a check of a znode that does not exist.
Where that check fails, every write before it is permitted, and none was executed.
"""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from typing import Final

from controller.daemon.preflight.context import Context
from controller.daemon.preflight.finding import Finding, ok, refuse
from controller.process.wording import NAMED_MAX, named
from controller.role import own_znodes as own
from controller.role.own_acls import may_change_acls
from metadata_store import paths
from metadata_store.errors import Code, MultiFailed
from metadata_store.port import Check, Create, Delete, Node, Op, SetData, ZooKeeper

PROBES_MAX: Final = 200
"""Operations of one probing multi."""
PROBE_BYTES_MAX: Final = 400_000
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
            "set zookeeper.digest to the credentials that locked it",
        )
    return ok(name, f"the ACL of {paths.CONTROLLER_EPOCH} can be changed")


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
