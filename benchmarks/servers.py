"""The JVMs of a benchmark: ZooKeeper and the peer, Kafka's own controller, with the JVM settings that Kafka ships."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from testing.embedded.jars import jars
from testing.embedded.java import find_java
from testing.embedded.jvm import write_log4j, write_properties
from testing.embedded.process import ChildProcess, free_port
from testing.embedded.zookeeper import EmbeddedZooKeeper

PEER_ID: Final = 999
LISTENER: Final = "INTERNAL"

_KAFKA_JVM: Final = (
    "-server",
    "-XX:+UseG1GC",
    "-XX:MaxGCPauseMillis=20",
    "-XX:InitiatingHeapOccupancyPercent=35",
    "-XX:+ExplicitGCInvokesConcurrent",
    "-Djava.awt.headless=true",
    "-Duser.timezone=UTC",
)
"""JVM options as of ``kafka-run-class.sh``, except the time zone of the log."""

_LOG4J: Final = """\
log4j.rootLogger=INFO, out
log4j.appender.out=org.apache.log4j.ConsoleAppender
log4j.appender.out.layout=org.apache.log4j.PatternLayout
log4j.appender.out.layout.ConversionPattern=%d{{ISO8601}} %p %m (%c)%n
log4j.appender.controller=org.apache.log4j.FileAppender
log4j.appender.controller.File={folder}/controller.log
log4j.appender.controller.layout=org.apache.log4j.PatternLayout
log4j.appender.controller.layout.ConversionPattern=%d{{ISO8601}} %p %m (%c)%n
log4j.logger.kafka.controller=INFO, controller
log4j.additivity.kafka.controller=false
log4j.appender.changes=org.apache.log4j.FileAppender
log4j.appender.changes.File={folder}/state-change.log
log4j.appender.changes.layout=org.apache.log4j.PatternLayout
log4j.appender.changes.layout.ConversionPattern=%d{{ISO8601}} %p %m (%c)%n
log4j.logger.state.change.logger=INFO, changes
log4j.additivity.state.change.logger=false
"""


def jvm_command(options: tuple[str, ...], main_class: str, *arguments: str) -> list[str]:
    """Returns the command of a JVM with the verified jars on its class path and all compilers."""
    return [find_java().path, *options, "-cp", ":".join(map(str, jars())), main_class, *arguments]


class BenchmarkZooKeeper(EmbeddedZooKeeper):
    """The embedded ZooKeeper in a JVM as ZooKeeper ships it (G1, both compilers), with ``heap_mb`` of heap."""

    def __init__(self, folder: Path, heap_mb: int) -> None:
        super().__init__(folder, tick_ms=2_000, session_ms_max=300_000)
        options = (f"-Dlog4j.configuration={(folder / 'log4j.properties').resolve().as_uri()}", f"-Xmx{heap_mb}m")
        config = str(folder / "zookeeper.properties")
        command = jvm_command(options, "org.apache.zookeeper.server.ZooKeeperServerMain", config)
        ChildProcess.__init__(self, "ZooKeeper", command, folder / "zookeeper.log")

    async def packets(self) -> int:
        """Returns the number of requests received so far, pings and these queries included."""
        lines = (await self.query("mntr")).splitlines()
        return next(int(line.split()[1]) for line in lines if line.startswith("zk_packets_received"))


class PeerProcess(ChildProcess):
    """One Kafka 3.9 process as a controller without replicas, with INFO logging and state changes in a file.

    ``auto.leader.rebalance.enable`` is off, because its elections would interfere; all other settings are defaults.
    """

    def __init__(self, folder: Path, zookeeper: str, heap_mb: int) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.port = free_port()
        self.controller_log = folder / "controller.log"
        settings = {
            "broker.id": PEER_ID,
            "listeners": f"{LISTENER}://127.0.0.1:{self.port}",
            "inter.broker.listener.name": LISTENER,
            "listener.security.protocol.map": f"{LISTENER}:PLAINTEXT",
            "zookeeper.connect": zookeeper,
            "log.dirs": folder / "data",
            "auto.leader.rebalance.enable": "false",
        }
        config = write_properties(folder / "server.properties", settings)
        log4j = write_log4j(folder, _LOG4J.format(folder=folder))
        options = (*_KAFKA_JVM, f"-Dlog4j.configuration={log4j}", f"-Xms{heap_mb}m", f"-Xmx{heap_mb}m")
        super().__init__("Kafka's controller", jvm_command(options, "kafka.Kafka", str(config)), folder / "kafka.log")

    async def boot(self) -> float:
        """Starts the process and waits until its log reports the start."""
        return await self.start(self._started)

    async def _started(self) -> bool:
        return self.log_has(r"\[KafkaServer id=\d+\] started \(")
