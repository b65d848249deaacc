"""Sets the controller role aside, then gives it to exactly one of the two controllers.

Between rounds ``/controller`` is a persistent znode of a broker that does not exist and ``/regent/role`` says
``brokers``: Kafka's process has nothing to be elected to, the daemon waits as a standby. The role is given by the one
write for which the wanted controller waits with a watch: the deletion of ``/controller``, or the flag.
"""

from __future__ import annotations

import json
import time

from controller.role import own_znodes as own
from controller.role.own_znodes import RoleFlag
from metadata_store import paths
from metadata_store.errors import Code, ZkError
from metadata_store.port import ANY_VERSION, Create, Delete, Op, SetData, ZooKeeper

PLACEHOLDER_ID = 998


async def set_aside(zk: ZooKeeper) -> None:
    """Sets the role aside: no controller holds it, and none may be elected."""
    await _ensure(zk, own.ROOT, b"")
    await _ensure(zk, own.ROLE, b"{}")
    await _ensure(zk, paths.CONTROLLER_EPOCH, b"1")
    ops: list[Op] = [SetData(own.ROLE, own.encode(RoleFlag("brokers")), ANY_VERSION)]
    if await zk.exists(paths.CONTROLLER) is not None:
        ops.append(Delete(paths.CONTROLLER, ANY_VERSION))
    record = {"version": 2, "brokerid": PLACEHOLDER_ID, "timestamp": str(time.time_ns() // 1_000_000)}
    ops.append(Create(paths.CONTROLLER, json.dumps({**record, "kraftControllerEpoch": -1}).encode()))
    await zk.multi(ops)


async def give_to_regent(zk: ZooKeeper) -> None:
    """Gives the role to regent: the first daemon in the queue claims, which replaces ``/controller``, too."""
    await zk.set(own.ROLE, own.encode(RoleFlag("regent")), ANY_VERSION)


async def give_to_kafka(zk: ZooKeeper) -> None:
    """Gives the role to Kafka: its process sees the deletion and elects itself, because no other broker can."""
    await zk.delete(paths.CONTROLLER, ANY_VERSION)


async def holder(zk: ZooKeeper) -> int | None:
    """Returns the id in ``/controller``."""
    node = await zk.get(paths.CONTROLLER)
    return None if node is None else int(json.loads(node.data or b"{}")["brokerid"])


async def epoch(zk: ZooKeeper) -> int:
    """Returns the controller epoch."""
    node = await zk.get(paths.CONTROLLER_EPOCH)
    return int(node.data or b"0") if node is not None else 0


async def _ensure(zk: ZooKeeper, path: str, data: bytes) -> None:
    try:
        await zk.create(path, data)
    except ZkError as error:
        if error.code is not Code.NODE_EXISTS:
            raise
