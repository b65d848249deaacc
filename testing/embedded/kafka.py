"""Runs a real Kafka 3.9 broker in ZooKeeper mode in a process, on the same ports and data at every start."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from testing.embedded.jvm import java_command, write_log4j, write_properties
from testing.embedded.process import ChildProcess, ProcessFailed, free_port

SESSION_MS: Final = 6_000
"""ZooKeeper session timeout of the embedded brokers: a killed one is gone after 5.3 to 7.5 s."""

CONTROLLER_SOCKET_TIMEOUT_MS: Final = 10_000
"""Longest wait of a broker's ISR change for a silent controller (Kafka's default is 30 s)."""

_STARTED: Final = r"\[KafkaServer id=\d+\] started \("
_REQUESTED: Final = "Starting controlled shutdown"
_SUCCEEDED: Final = r"Controlled shutdown request returned successfully after (\d+)ms"
_RETRIED: Final = r"Retrying controlled shutdown \(\d+ retries remaining\)"

_LOG4J: Final = """\
log4j.rootLogger=INFO, out
log4j.appender.out=org.apache.log4j.ConsoleAppender
log4j.appender.out.layout=org.apache.log4j.PatternLayout
log4j.appender.out.layout.ConversionPattern=%d{ISO8601} %p %m (%c)%n
# A controller that lists itself among the live brokers makes this logger complain at each metadata update.
log4j.logger.kafka.server.metadata.ZkMetadataCache=OFF
log4j.logger.org.apache.zookeeper=WARN
"""


@dataclass(frozen=True)
class ControlledShutdown:
    """The last clean stop in a broker's log. ``took_ms`` is None where no request succeeded."""

    tries: int
    succeeded: bool
    took_ms: int | None

    @property
    def first_try(self) -> bool:
        """Checks whether the controller let the broker go at its first request."""
        return self.succeeded and self.tries == 1


class EmbeddedBroker(ChildProcess):
    """A broker with a CLIENT and an INTERNAL listener on 127.0.0.1, the INTERNAL one between brokers.

    ``zookeeper`` is the connect string, chroot included; ``ibp`` the inter-broker protocol version (Kafka's default
    3.9-IV0 where None); ``rack`` the broker's rack; ``auto_create_partitions`` how many partitions an auto-created
    topic gets; ``replication`` the cluster's default replication factor (two in-sync replicas are needed to write from
    two on); ``properties`` override any line of ``server.properties``; ``jaas`` is the text of its JAAS file;
    ``classes`` are folders with Java classes; ``jvm`` are further options of the JVM.
    ``folder`` receives all files.
    """

    def __init__(
        self,
        broker_id: int,
        folder: Path,
        zookeeper: str,
        *,
        ibp: str | None = None,
        rack: str | None = None,
        replication: int = 3,
        auto_create_partitions: int = 1,
        client_port: int | None = None,
        internal_port: int | None = None,
        properties: Mapping[str, object] | None = None,
        jaas: str | None = None,
        classes: Sequence[Path] = (),
        heap_mb: int = 320,
        jvm: Sequence[str] = (),
    ) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.id = broker_id
        self.folder = folder
        self.rack = rack
        self.client_port = client_port or free_port()
        self.internal_port = internal_port or free_port()
        optional = {"inter.broker.protocol.version": ibp, "broker.rack": rack}
        settings = {
            **self._settings(folder, zookeeper, replication, auto_create_partitions),
            **{key: value for key, value in optional.items() if value is not None},
            **(properties or {}),
        }
        config = write_properties(folder / "server.properties", settings)
        options = [f"-Dlog4j.configuration={write_log4j(folder, _LOG4J)}", f"-Xmx{heap_mb}m", *jvm]
        if jaas is not None:
            (folder / "jaas.conf").write_text(jaas, encoding="utf-8")
            options.append(f"-Djava.security.auth.login.config={folder / 'jaas.conf'}")
        command = java_command(options, "kafka.Kafka", str(config), classes=classes)
        super().__init__(f"broker {broker_id}", command, folder / "broker.log")

    def _settings(self, folder: Path, zookeeper: str, replication: int, partitions: int) -> dict[str, object]:
        ports = {"CLIENT": self.client_port, "INTERNAL": self.internal_port}
        return {
            "broker.id": self.id,
            "listeners": ",".join(f"{name}://127.0.0.1:{port}" for name, port in ports.items()),
            "inter.broker.listener.name": "INTERNAL",
            "listener.security.protocol.map": ",".join(f"{name}:PLAINTEXT" for name in ports),
            "zookeeper.connect": zookeeper,
            "zookeeper.session.timeout.ms": SESSION_MS,
            "controller.socket.timeout.ms": CONTROLLER_SOCKET_TIMEOUT_MS,
            "log.dirs": f"{folder / 'data-1'},{folder / 'data-2'}",
            "num.partitions": partitions,
            "default.replication.factor": replication,
            "min.insync.replicas": min(2, replication),
            "offsets.topic.replication.factor": replication,
            "offsets.topic.num.partitions": 3,
            "transaction.state.log.replication.factor": replication,
            "transaction.state.log.min.isr": min(2, replication),
            "transaction.state.log.num.partitions": 3,
            "replica.lag.time.max.ms": 6_000,
            "group.initial.rebalance.delay.ms": 0,
            "log.cleaner.dedupe.buffer.size": 16_777_216,
            "log.index.size.max.bytes": 1_048_576,
            "num.network.threads": 2,
            "num.io.threads": 4,
            "background.threads": 2,
        }

    @property
    def address(self) -> str:
        """Returns the bootstrap address on the CLIENT listener."""
        return f"127.0.0.1:{self.client_port}"

    async def boot(self) -> float:
        """Starts the broker and waits until its log has the start; returns the seconds it took.

        It needs no controller for that: without one it is registered, but leads and follows nothing.
        """
        return await self.start(self._started)

    async def restart(self) -> float:
        """Stops the broker cleanly and starts it on the same ports and data; returns the seconds of the start."""
        await self.stop()
        return await self.boot()

    async def shut_down(self) -> ControlledShutdown:
        """Sends SIGTERM; returns the controlled shutdown in the broker's log."""
        if not self.running:
            raise ProcessFailed(f"{self.name} is not running: start it first")
        await self.stop()
        return self.controlled_shutdown()

    def controlled_shutdown(self) -> ControlledShutdown:
        """Returns the controlled shutdown since the last start, from the log."""
        text = self.log_text()
        done = re.search(_SUCCEEDED, text)
        tries = len(re.findall(_RETRIED, text)) + (1 if _REQUESTED in text else 0)
        return ControlledShutdown(tries, done is not None, int(done[1]) if done else None)

    async def _started(self) -> bool:
        return self.log_has(_STARTED)
