"""Gives all checks the history of ZooKeeper, and reports violations."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from controller.role.lease import LEASE_FRACTION
from metadata_store import paths
from metadata_store.port import ConnectionState
from tests.kit.simulation.seeds import Violation
from tests.simulation.kafka.history import History

if TYPE_CHECKING:
    from tests.simulation.kafka.link import SimLink
    from tests.simulation.kafka.world import SimulatedKafka

SLACK_S: Final = 1e-9


class Checking:
    """Reports the violations of one run to ``world.violated``."""

    def __init__(self, world: SimulatedKafka) -> None:
        self.world = world
        self.history = History()

    def _fail(self, invariant: str, what: str) -> None:
        self.world.violated(Violation(invariant, what))

    def _may_act(self, zk: SimLink, version: int, what: str) -> None:
        """Checks I14 and I24 for an act of the claim whose version of the epoch's znode is ``version``."""
        if zk.state is not ConnectionState.CONNECTED:
            self._fail("I14", f"{zk.name} {what} while its session is {zk.state}")
        until_s = zk.heartbeat_s + LEASE_FRACTION * zk.session_timeout_ms / 1000
        if self.world.loop.now_s > until_s + SLACK_S:
            self._fail("I14", f"{zk.name} {what} at {self.world.loop.now_s:.3f} s, its lease ended at {until_s:.3f} s")
        lost_s = self.history.changed_s.get(paths.CONTROLLER_EPOCH, 0.0)
        if version != self.history.epoch_version and lost_s < zk.in_doubt_s:
            self._fail("I24", f"{zk.name} {what}, in doubt at {zk.in_doubt_s:.3f} s, its claim lost at {lost_s:.3f} s")
