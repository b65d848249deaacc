"""Stops and restarts brokers, and makes them respond wrongly or not at all."""

from __future__ import annotations

from typing import Final

from brokers.wire.errors import Error
from tests.simulation.kafka import faults
from tests.simulation.kafka.acting import Acting

FOREIGN_EPOCHS: Final = 1_000


class BrokerActions(Acting):
    """Acts on brokers. Errors, lost requests and lost replies are counted where they occur."""

    def do_crash_broker(self, broker: int, seconds: float) -> None:
        """Kills a broker (kill -9, power), starts it ``seconds`` later; it registers when its old session has ended."""
        node = self._broker(broker)
        if node is not None:
            node.crash()
            self._later(seconds, node.start)
            self.w.happened(faults.BROKER_CRASH)

    def do_bounce_broker(self, broker: int) -> None:
        """Restarts a broker so fast that its registration only changes its epoch."""
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
        """Stops a broker cleanly: it sends ControlledShutdown first."""
        node = self._broker(broker)
        if node is not None and node.listening:
            node.stop(seconds)
            self.w.happened(faults.BROKER_STOP)

    def do_flap_broker(self, broker: int, times: int, seconds: float) -> None:
        """Expires the session of a running broker several times."""
        for turn in range(times):
            self._later(turn * seconds, self.w.brokers[broker].expire)
        if self._broker(broker) is not None:
            self.w.happened(faults.BROKER_FLAP)

    def do_freeze_broker(self, broker: int, seconds: float) -> None:
        """Sends SIGSTOP to a broker, and SIGCONT ``seconds`` later."""
        node = self._broker(broker)
        if node is not None:
            node.freeze()
            self._later(seconds, node.resume, node.lives)
            self.w.happened(faults.BROKER_FROZEN)

    def do_lag_broker(self, broker: int, seconds: float) -> None:
        """Makes a broker fetch too slowly: its leaders remove it from the ISR."""
        node = self.w.brokers[broker]
        node.lagging = True
        self._later(seconds, setattr, node, "lagging", False)

    def do_slow_broker(self, broker: int, seconds: float, delay_s: float) -> None:
        """Delays every request to a broker."""
        wire = self.w.brokers[broker].wire
        wire.slow_s = delay_s
        self._later(seconds, setattr, wire, "slow_s", 0.0)
        if self._broker(broker) is not None:
            self.w.happened(faults.BROKER_SLOW)

    def do_refuse_broker(self, broker: int, seconds: float) -> None:
        """Makes a broker close its connections and accept none."""
        node = self.w.brokers[broker]
        node.wire.refuses = True
        for connection in list(node.connections):
            connection.reset("closed by the broker")
        self._later(seconds, setattr, node.wire, "refuses", False)
        if node.listening:
            self.w.happened(faults.BROKER_REFUSES)

    def do_cut_broker(self, broker: int, seconds: float) -> None:
        """Drops all packets between a broker and the daemons."""
        wire = self.w.brokers[broker].wire
        wire.cut = True
        self._later(seconds, setattr, wire, "cut", False)
        if self._broker(broker) is not None:
            self.w.happened(faults.BROKER_CUT)

    def do_move_broker(self, broker: int) -> None:
        """Moves a broker's listener to another port. The broker stays registered."""
        self.w.brokers[broker].move()

    def do_half_open_broker(self, broker: int) -> None:
        """Breaks a broker's connections without a notice to the daemons."""
        for connection in self.w.brokers[broker].connections:
            connection.half_open = True
            self.w.happened(faults.BROKER_HALF_OPEN)

    def do_lose_broker_replies(self, broker: int, times: int) -> None:
        """Makes a broker carry requests out and break the connection before its reply."""
        self.w.brokers[broker].wire.replies_to_lose = times

    def do_drop_broker_requests(self, broker: int, times: int) -> None:
        """Makes a broker break the connection before it reads a request."""
        self.w.brokers[broker].wire.requests_to_drop = times

    def do_stale_broker_epoch(self, broker: int) -> None:
        """Ends a broker's epoch before the controller knows.

        The broker knows of its new registration first: it responds with error 77, and registers again.
        """
        node = self._broker(broker)
        if node is not None:
            node.wire.stale_epoch = node.core.epoch
            node.expire()

    def do_stale_controller_epoch(self, broker: int) -> None:
        """Makes a broker respond with error 11 although no controller was elected: daemons wait for an operator."""
        if self._broker(broker) is not None:
            self.w.brokers[broker].wire.errors.append(Error.STALE_CONTROLLER_EPOCH)
            self.w.made_up_epochs += 1
            self.w.brokers[broker].foreign = True

    def do_foreign_epoch(self, broker: int) -> None:
        """Makes a broker obey the epoch of another cluster's controller until it is restarted."""
        node = self._broker(broker)
        if node is not None:
            node.core.controller_epoch += FOREIGN_EPOCHS
            node.foreign = True
            self.w.happened(faults.BROKER_FOREIGN)

    def do_storage_error(self, broker: int) -> None:
        """Fails one log directory of a broker: its replicas there respond with error 56 until it is restarted."""
        node = self._broker(broker)
        hosted = sorted(node.core.replicas) if node is not None else []
        if node is not None and node.process is not None and hosted:
            event = node.core.fail_partition(*hosted[len(hosted) // 2])
            node.process.start(node.create(event))
