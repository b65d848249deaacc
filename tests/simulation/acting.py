"""What all actions of a script have in common: whom they act on, and for how long."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from tests.simulation.zookeeper import SimZooKeeper

if TYPE_CHECKING:
    from tests.simulation.brokers import BrokerNode
    from tests.simulation.daemons import DaemonNode
    from tests.simulation.world import World


ACTIVE = "active"
"""The session of the daemon that is in office, whichever that is when it happens."""


def ids(word: object) -> tuple[int, ...]:
    """``1,2,3``."""
    return tuple(int(part) for part in str(word).split(","))


class Acting:
    """Actions are methods named ``do_<verb>``; one that finds nothing to act on does nothing."""

    def __init__(self, world: World) -> None:
        self.w = world

    def _later(self, seconds: float, call: Callable[..., object], *args: object) -> None:
        self.w.network.later(seconds, call, *args)

    def _broker(self, broker: int) -> BrokerNode | None:
        node = self.w.brokers[broker]
        return node if node.running else None

    def _daemon(self, number: int) -> DaemonNode | None:
        node = self.w.daemons[number]
        return node if node.running else None

    def _client(self, who: str) -> SimZooKeeper | None:
        """``d0``: a daemon's session; ``b3``: a broker's; ``active``: the controller's; only one that lives."""
        if who == ACTIVE:
            daemon = self.w.serving_daemon()
            zk = daemon.zk if daemon is not None else None
        else:
            zk = self.w.daemons[int(who[1:])].zk if who[0] == "d" else self.w.brokers[int(who[1:])].zk
        return zk if zk is not None and zk.session_id in self.w.ensemble.sessions else None
