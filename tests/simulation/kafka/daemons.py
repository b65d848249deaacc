"""Runs whole daemons as processes that can be killed, frozen, stalled and started again."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Final, cast

from configs.settings import Settings
from controller.daemon.daemon import Daemon
from controller.daemon.handback import HandbackRefused, hand_back
from controller.kafka.term.term import Term
from controller.role.lease import Lease
from controller.role.own_znodes import Process as Identity
from metadata_store.errors import ZooKeeperError
from tests.kit.simulation.loop import Life, Process
from tests.simulation.kafka import faults
from tests.simulation.kafka.journals import JudgedJournal
from tests.simulation.kafka.network import SimListener, SimTransport
from tests.simulation.kafka.write_faults import WriteFaults
from tests.simulation.kafka.zookeeper import SimZooKeeper

if TYPE_CHECKING:
    from controller.journal.journal import Journal
    from tests.simulation.kafka.world import SimulatedKafka

FIRST_ID: Final = 1_000_001
SESSION_MS: Final = 6_000
DIGEST: Final = "regent:secret"
STRANGE_DIGEST: Final = "regent:another"
PORT: Final = 9095


def settings_of(number: int, *, ibp: str, hold: bool, odd: str = "-") -> Settings:
    """Returns the settings of daemon ``number``.

    ``odd``: ``stranger`` has another digest than the others, ``bare`` none, ``other`` another ``on_absence``.
    """
    hold = {"other": not hold, "bare": False}.get(odd, hold)
    digest = {"stranger": STRANGE_DIGEST, "bare": None, "other": DIGEST}.get(odd, DIGEST if hold else None)
    return Settings.model_validate(
        {
            "zookeeper": {
                "connect": "zk1:2181",
                "session_timeout_ms": SESSION_MS,
                "connect_timeout_ms": 6_000,
                "digest": digest,
            },
            "controller": {
                "id": FIRST_ID + number,
                "on_absence": "hold" if hold else "brokers",
                "ibp": ibp,
                "loop_stall_ms_max": 2_000,
                "drain_timeout_ms": 2_000,
                "handback_timeout_ms": 8_000,
                "leader_imbalance_check_interval_seconds": 20,
                "leader_rebalance_moves_per_minute": 10,
            },
            "listener": {"host": f"daemon-{number}", "port": PORT, "advertised_host": f"daemon-{number}"},
            "brokers": {
                "request_timeout_ms": 3_000,
                "connect_timeout_ms": 2_000,
                "snapshot_turn_partitions": 100,
            },
        }
    )


class DaemonNode:
    """Holds one place for a daemon: at most one process of it lives at a time."""

    def __init__(self, world: SimulatedKafka, number: int, settings: Settings) -> None:
        self.world = world
        self.number = number
        self.settings = settings
        self.process: Process | None = None
        self.daemon: Daemon | None = None
        self.sessions: list[SimZooKeeper] = []
        self.hooks = WriteFaults(self)
        self.lives = 0
        self._listener: SimListener | None = None
        self._away_s = 1.0

    def __str__(self) -> str:
        return f"daemon {self.number}"

    @property
    def running(self) -> bool:
        """Returns whether a process lives, frozen or not."""
        return self.process is not None

    @property
    def term(self) -> Term | None:
        """Returns the term that the daemon serves now."""
        return self.daemon.term if self.daemon is not None else None

    @property
    def zk(self) -> SimZooKeeper | None:
        """Returns the present session."""
        return self.sessions[-1] if self.sessions else None

    # -- life

    def start(self) -> None:
        """Starts a new process, unless one lives."""
        if self.process is not None:
            return
        self.lives += 1
        process = self.process = Process(self.world.loop, f"daemon-{self.number}.{self.lives}")
        process.start(self._main(process), "main")

    async def _main(self, process: Process) -> None:
        network = self.world.network
        address = self.settings.listener.host, self.settings.listener.port
        self._listener = SimListener(network, process, address, lambda api: self.world.liveness.call(api, self))
        self.daemon = Daemon(
            self.settings,
            lambda: self._connect(process),
            dial=self.world.dial,
            new_lease=self._new_lease,
            me=self._identity(),
            listener=self._listener,
            transport=SimTransport(network, self, process),
            journal=cast("Journal", JudgedJournal(self.world)),
        )
        try:
            await self.daemon.run()
        except Exception as error:
            self.world.unexpected(f"{self} ended by an error", error)
        self.world.trace(f"{self} exits")
        self._gone(process)
        self.world.network.later(self._away_s, self.start)

    def _identity(self) -> Identity:
        number = self.settings.controller.id
        return Identity(number, f"daemon-{self.number}", "boot", "pid", self.pid, self.lives, f"{number}-{self.lives}")

    @property
    def pid(self) -> int:
        """Returns the pid of the present process."""
        return 1_000 * (self.number + 1) + self.lives

    def _connect(self, process: Process) -> SimZooKeeper:
        digest = self.settings.zookeeper.digest
        zk = SimZooKeeper(
            self.world.ensemble,
            process,
            str(self),
            session_timeout_ms=SESSION_MS,
            credentials=digest.get_secret_value() if digest is not None else None,
            hooks=self.hooks,
        )
        zk.by_daemon, zk.submitted, zk.renewed = True, self.world.invariants.submitted, self._renewed
        self.sessions.append(zk)
        return zk

    def _renewed(self) -> None:
        if self.term is not None and self.term.stands_still:
            self.world.happened(faults.DAEMON_STOOD_STILL)

    def _new_lease(self, session_timeout_s: float, fraction: float) -> Lease:
        return Lease(session_timeout_s, self.world.loop.time, fraction)

    def kill(self) -> None:
        """Kills the process with kill -9."""
        if self.process is not None:
            self.world.trace(f"{self} is killed")
            self._gone(self.process)

    def _gone(self, process: Process) -> None:
        """Ends everything of a process: its tasks, its listener, its connections."""
        if process is not self.process:
            return
        process.kill()
        if self._listener is not None:
            self._listener.vanish()
        for zk in self.sessions:
            zk.abandon()
        self.world.daemon_gone(self)
        self.hooks.disarm()
        self.sessions, self.process, self.daemon, self._listener = [], None, None, None

    def terminate(self, away_s: float) -> None:
        """Stops the daemon as its process does at SIGTERM; it is started again ``away_s`` after its end."""
        if self.process is not None and self.daemon is not None:
            self._away_s = away_s
            self.process.call_soon(self.daemon.stop)

    def hand_back(self) -> None:
        """Hands the role back, as the operator's command does."""
        if self.process is not None and self.daemon is not None:
            self.process.start(self._hand_back(self.daemon), "hand-back")

    async def _hand_back(self, daemon: Daemon) -> None:
        with suppress(HandbackRefused, ZooKeeperError):
            trace = self.world.trace
            await hand_back(daemon, self.world.dial, "a script", lambda step: trace(f"{self}: {step}"), "uid 0")

    def freeze(self) -> None:
        """Sends SIGSTOP: the ensemble receives no more pings."""
        if self.process is not None:
            self.process.halt(Life.FROZEN)
            for zk in self.sessions:
                if zk.session is not None:
                    self.world.ensemble.silent(zk.session)

    def _expired(self) -> bool:
        return self.zk is not None and self.zk.session_id not in self.world.ensemble.sessions

    def stall(self) -> None:
        """Stalls the loop; the ZooKeeper thread keeps the session."""
        if self.process is not None and self.process.life is Life.RUNNING:
            self.process.halt(Life.STALLED)

    def resume(self, life: int) -> None:
        """Resumes the process, if it is still the same one."""
        if self.process is not None and self.lives == life:
            if self.process.life is Life.FROZEN and self._expired():
                self.world.happened(faults.DAEMON_FROZEN)
            self.process.resume()
            for zk in self.sessions:
                zk.awoken()
