"""Changes topics, producer ids, and an operator's settings."""

from __future__ import annotations

from contextlib import suppress

from controller.role import own_znodes as own
from controller.role.own_znodes import RoleFlag
from metadata_store import paths
from metadata_store.errors import NotConnected, OutcomeUnknown, ZkError
from metadata_store.port import ANY_VERSION, SetData
from state_machines.admin_rules.placement import PlacementError, place
from testing.znodes import create_topic, expansion
from tests.simulation.kafka import faults
from tests.simulation.kafka.acting import Acting, ids
from tests.simulation.kafka.zookeeper import SimZooKeeper


class ClusterActions(Acting):
    """Acts on the cluster. Only the clock's step is a fault."""

    def do_topic(self, name: str, *replicas: object) -> None:
        """Creates a topic as an operator; half of such topics have an id."""
        placed = dict(enumerate(map(ids, replicas)))
        self.w.operate(self._create(self.w.operator, name, placed, with_id=self.w.chance.random() < 0.5))

    def do_auto_topic(self, broker: int, name: str, partitions: int, factor: int) -> None:
        """Creates a topic as a broker does for a client: it sends the request to the controller."""
        node = self._broker(broker)
        if node is None or node.process is None or node.zk is None:
            return
        racks = {b: entry.rack for b, entry in node.core.live.items()}
        with suppress(PlacementError):
            placed = place(racks, partitions, factor, start=broker, shift=partitions)
            node.process.start(self._create(node.zk, name, placed, with_id=self.w.ibp.topic_ids))

    async def _create(self, zk: SimZooKeeper, name: str, placed: dict[int, tuple[int, ...]], *, with_id: bool) -> None:
        topic_id = self.w.chance.randbytes(16) if with_id else None
        with suppress(ZkError, NotConnected, OutcomeUnknown):
            await create_topic(zk, name, placed, topic_id)

    def do_expand(self, name: str, *replicas: object) -> None:
        """Adds partitions as an operator."""
        self.w.operate(self._expand(name, [ids(word) for word in replicas]))

    async def _expand(self, name: str, added: list[tuple[int, ...]]) -> None:
        await self.w.operator.sync("/")
        found = self.w.invariants.history.topics.get(name)
        if found is None:
            return
        op = expansion(found, *added)
        with suppress(ZkError):
            await self.w.operator.set(op.path, op.data, op.version)

    def do_producer_ids(self, broker: int) -> None:
        """Makes a broker request producer ids, as for a producer."""
        node = self._broker(broker)
        if node is not None and node.process is not None and self.w.ibp.producer_ids:
            node.process.start(node.producer_ids())

    def do_step_clock(self, seconds: float) -> None:
        """Steps the wall clock of every machine."""
        self.w.wall_offset_s += seconds
        self.w.happened(faults.DAEMON_CLOCK)

    def do_give_role(self, holder: str) -> None:
        """Sets the role flag as an operator."""
        self.w.handed_over += holder != "regent"
        self.w.operate(self.give_role(holder))

    async def give_role(self, holder: str) -> None:
        """Writes ``holder`` into the role flag."""
        node = await self.w.operator.get(own.ROLE)
        if node is not None:
            data = own.encode(RoleFlag(holder, reason="a script"))
            with suppress(ZkError):
                await self.w.operator.set(own.ROLE, data, node.stat.version)

    def do_raise_epoch(self) -> None:
        """Raises the controller epoch as an operator."""
        self.w.operate(self.raise_epoch())

    async def raise_epoch(self) -> None:
        """Raises the controller epoch by one."""
        node = await self.w.operator.get(paths.CONTROLLER_EPOCH)
        if node is not None:
            data = b"%d" % (int(node.data or b"0") + 1)
            with suppress(ZkError):
                await self.w.operator.multi([SetData(paths.CONTROLLER_EPOCH, data, node.stat.version)])

    def do_delete_controller(self) -> None:
        """Deletes ``/controller``: a broker may be elected while the daemon in office does not know yet."""
        self.w.operate(self._delete_controller())

    async def _delete_controller(self) -> None:
        with suppress(ZkError):
            await self.w.operator.delete(paths.CONTROLLER, ANY_VERSION)
