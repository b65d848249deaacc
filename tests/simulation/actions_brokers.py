"""Brokers stop, come back, and answer badly or not at all."""

from __future__ import annotations

from typing import Final

from brokers.wire.errors import Error
from tests.simulation import faults
from tests.simulation.acting import Acting

FOREIGN_EPOCHS: Final = 1_000


class BrokerActions(Acting):
    """Errors, lost requests and lost replies are counted where they happen."""

    def do_crash_broker(self, broker: int, seconds: float) -> None:
        """kill -9 or the power; started again later, and registered when its old session is over."""
        node = self._broker(broker)
        if node is not None:
            node.crash()
            self._later(seconds, node.start)
            self.w.happened(faults.BROKER_CRASH)

    def do_bounce_broker(self, broker: int) -> None:
        """A restart so fast that the registration only changes its epoch."""
        node = self._broker(broker)
        if node is None:
            return
        session = node.zk.session if node.zk is not None else None
        node.crash()
        if session is not None:
            self.w.ensemble.end(session)
        node.start()
        self.w.happened(faults.BROKER_BOUNCE)

    def do_stop_broker(self, broker: int, seconds: float) -> None:
        """A clean stop: ControlledShutdown first."""
        node = self._broker(broker)
        if node is not None and node.listening:
            node.stop(seconds)
            self.w.happened(faults.BROKER_STOP)

    def do_flap_broker(self, broker: int, times: int, seconds: float) -> None:
        """Its session expires again and again while it runs."""
        for turn in range(times):
            self._later(turn * seconds, self.w.brokers[broker].expire)
        if self._broker(broker) is not None:
            self.w.happened(faults.BROKER_FLAP)

    def do_freeze_broker(self, broker: int, seconds: float) -> None:
        """SIGSTOP."""
        node = self._broker(broker)
        if node is not None:
            node.freeze()
            self._later(seconds, node.resume, node.lives)
            self.w.happened(faults.BROKER_FROZEN)

    def do_lag_broker(self, broker: int, seconds: float) -> None:
        """It fetches too slowly: its leaders take it out of the ISR."""
        node = self.w.brokers[broker]
        node.lagging = True
        self._later(seconds, setattr, node, "lagging", False)

    def do_slow_broker(self, broker: int, seconds: float, delay_s: float) -> None:
        """Every request takes it long."""
        wire = self.w.brokers[broker].wire
        wire.slow_s = delay_s
        self._later(seconds, setattr, wire, "slow_s", 0.0)
        if self._broker(broker) is not None:
            self.w.happened(faults.BROKER_SLOW)

    def do_refuse_broker(self, broker: int, seconds: float) -> None:
        """It closes its connections and accepts none."""
        node = self.w.brokers[broker]
        node.wire.refuses = True
        for connection in list(node.connections):
            connection.reset("closed by the broker")
        self._later(seconds, setattr, node.wire, "refuses", False)
        if node.listening:
            self.w.happened(faults.BROKER_REFUSES)

    def do_cut_broker(self, broker: int, seconds: float) -> None:
        """No packet passes between it and the daemons."""
        wire = self.w.brokers[broker].wire
        wire.cut = True
        self._later(seconds, setattr, wire, "cut", False)
        if self._broker(broker) is not None:
            self.w.happened(faults.BROKER_CUT)

    def do_move_broker(self, broker: int) -> None:
        """Its listener moves to another port; it stays registered."""
        self.w.brokers[broker].move()

    def do_half_open_broker(self, broker: int) -> None:
        """Its connections are dead, and nobody was told."""
        for connection in self.w.brokers[broker].connections:
            connection.half_open = True
            self.w.happened(faults.BROKER_HALF_OPEN)

    def do_lose_broker_replies(self, broker: int, times: int) -> None:
        """Requests are carried out, but the connection breaks before the answer."""
        self.w.brokers[broker].wire.replies_to_lose = times

    def do_drop_broker_requests(self, broker: int, times: int) -> None:
        """The connection breaks before requests are read."""
        self.w.brokers[broker].wire.requests_to_drop = times

    def do_stale_broker_epoch(self, broker: int) -> None:
        """It knows of its new registration before the controller does: it answers 77, and registers again."""
        node = self._broker(broker)
        if node is not None:
            node.wire.stale_epoch = node.core.epoch
            node.expire()

    def do_stale_controller_epoch(self, broker: int) -> None:
        """It answers 11 although nobody else was elected: daemons wait until an operator has looked."""
        if self._broker(broker) is not None:
            self.w.brokers[broker].wire.errors.append(Error.STALE_CONTROLLER_EPOCH)
            self.w.made_up_epochs += 1
            self.w.brokers[broker].foreign = True

    def do_foreign_epoch(self, broker: int) -> None:
        """Another cluster's controller has its address: it obeys that one's epoch until it is restarted."""
        node = self._broker(broker)
        if node is not None:
            node.core.controller_epoch += FOREIGN_EPOCHS
            node.foreign = True
            self.w.happened(faults.BROKER_FOREIGN)

    def do_storage_error(self, broker: int) -> None:
        """One of its replicas' log directories fails: 56 until it is restarted."""
        node = self._broker(broker)
        hosted = sorted(node.core.replicas) if node is not None else []
        if node is not None and node.process is not None and hosted:
            event = node.core.fail_partition(*hosted[len(hosted) // 2])
            node.process.start(node.create(event))
