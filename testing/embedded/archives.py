"""Makes the archives of :mod:`testing.embedded.jvm`: ``python -m testing.embedded.archives``."""

from __future__ import annotations

import asyncio
import logging
import tempfile
from collections.abc import Sequence
from pathlib import Path

from testing.embedded.jars import jars
from testing.embedded.java import Java, find_java
from testing.embedded.jvm import BROKER, KINDS, QUIET, TOOLS, ZOOKEEPER, archive
from testing.embedded.kafka import EmbeddedBroker
from testing.embedded.tools import Tools
from testing.embedded.zookeeper import EmbeddedZooKeeper

log = logging.getLogger("regent.brokers")


async def make(java: Java, verified: Sequence[Path]) -> None:
    """Makes all archives from a ZooKeeper, a broker and a tool that run once, in about 20 s."""
    wanted = {kind: archive(kind, java, verified) for kind in KINDS}
    wanted[BROKER].parent.mkdir(parents=True, exist_ok=True)
    for path in wanted.values():
        path.unlink(missing_ok=True)  # a JVM that uses one records none
    with tempfile.TemporaryDirectory(dir=wanted[BROKER].parent, prefix="make-") as name:
        folder = Path(name)
        recording = {kind: [f"-XX:ArchiveClassesAtExit={folder / kind}", QUIET] for kind in KINDS}
        zookeeper = EmbeddedZooKeeper(folder / "zk", jvm=recording[ZOOKEEPER])
        broker = EmbeddedBroker(1, folder / "kafka", zookeeper.connect, replication=1, jvm=recording[BROKER])
        try:
            await zookeeper.boot()
            await broker.boot()
            await Tools(broker.address, folder, jvm=recording[TOOLS]).run("kafka-topics", "--create", "--topic", "t")
            await broker.stop()
            await zookeeper.stop()
        finally:
            await asyncio.gather(broker.kill(), zookeeper.kill())
        for kind, path in wanted.items():
            if (folder / kind).exists():
                (folder / kind).replace(path)


def main() -> None:
    """Makes missing archives; a failure is logged and does no harm."""
    java, verified = find_java(), jars()
    if all(archive(kind, java, verified).exists() for kind in KINDS):
        return
    log.info("Kafka and ZooKeeper: their classes are archived once, so that they start faster")
    try:
        asyncio.run(make(java, verified))
    except Exception as error:
        log.warning("No archives of classes are made, so every JVM starts more slowly: %s", error)


if __name__ == "__main__":
    logging.basicConfig(level=logging.INFO, format="%(message)s")
    main()
