"""Finds the broker, the daemon or the session that an action of a script acts on."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from tests.simulation.kafka.zookeeper import SimZooKeeper

if TYPE_CHECKING:
    from tests.simulation.kafka.brokers import BrokerNode
    from tests.simulation.kafka.daemons import DaemonNode
    from tests.simulation.kafka.world import SimulatedKafka


ACTIVE = "active"
"""Stands for the session of the daemon that is active at the moment of the action."""


def ids(word: object) -> tuple[int, ...]:
    """Returns the numbers of a word like ``1,2,3``."""
    return tuple(int(part) for part in str(word).split(","))


class Acting:
    """Finds the targets of actions, which are methods named ``do_<verb>``. An action without a target does nothing."""

    def __init__(self, world: SimulatedKafka) -> None:
        self.w = world

    def _later(self, seconds: float, call: Callable[..., object], *args: object) -> None:
        self.w.network.later(seconds, call, *args)

    def _broker(self, broker: int) -> BrokerNode | None:
        node = self.w.brokers[broker]
        return node if node.running else None

    def _daemon(self, number: int) -> DaemonNode | None:
        node = self.w.daemons[number]
        return node if node.running else None

    def _client(self, client: str) -> SimZooKeeper | None:
        """Returns a live session, or None: of a daemon (``d0``), a broker (``b3``) or the controller (``active``)."""
        if client == ACTIVE:
            daemon = self.w.serving_daemon()
            zk = daemon.zk if daemon is not None else None
        else:
            zk = self.w.daemons[int(client[1:])].zk if client[0] == "d" else self.w.brokers[int(client[1:])].zk
        return zk if zk is not None and zk.session_id in self.w.ensemble.sessions else None
