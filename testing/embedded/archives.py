"""Archives of loaded classes: with them a JVM maps what it would else read, verify and link at each of its starts.

A broker then starts with 1.1 instead of 1.8 s of processor time, a tool with 0.45 instead of 0.75 s. The archives are
beside the jars in the cache folder; ``python -m testing.embedded.archives`` makes those that are missing. Without them
everything works as well, and a JVM passes over one that does not fit it.
"""

from __future__ import annotations

import asyncio
import hashlib
import logging
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from testing.embedded.jars import cache_folder, jars
from testing.embedded.java import Java, find_java

BROKER: Final = "broker"
TOOLS: Final = "tools"
ZOOKEEPER: Final = "zookeeper"
KINDS: Final = (ZOOKEEPER, BROKER, TOOLS)
_QUIET: Final = "-Xlog:cds*=off"
"""An archive that does not fit is no line in a tool's output."""

log = logging.getLogger("regent.brokers")


def kind_of(main_class: str) -> str:
    """The archive that suits a program."""
    if main_class.startswith("org.apache.zookeeper.server."):
        return ZOOKEEPER
    return BROKER if main_class == "kafka.Kafka" else TOOLS


def archive(kind: str, java: Java, verified: Sequence[Path]) -> Path:
    """Where the archive of a kind is, or would be, for this Java and the verified jars."""
    binary = Path(java.path).resolve()
    changed_ns = binary.stat().st_mtime_ns if binary.exists() else 0
    known = ":".join(map(str, [binary, changed_ns, *verified]))
    return cache_folder() / "archives" / f"{kind}-{hashlib.sha256(known.encode()).hexdigest()[:16]}.jsa"


def options(main_class: str, java: Java, verified: Sequence[Path]) -> list[str]:
    """The JVM's options that use the archive, if it has been made."""
    found = archive(kind_of(main_class), java, verified)
    return [f"-XX:SharedArchiveFile={found}", _QUIET] if found.exists() else []


async def make(java: Java, verified: Sequence[Path]) -> None:
    """Makes all archives from a ZooKeeper, a broker and a tool that run once, in about 20 s."""
    from testing.embedded.kafka import EmbeddedBroker
    from testing.embedded.tools import Tools
    from testing.embedded.zookeeper import EmbeddedZooKeeper

    wanted = {kind: archive(kind, java, verified) for kind in KINDS}
    wanted[BROKER].parent.mkdir(parents=True, exist_ok=True)
    for path in wanted.values():
        path.unlink(missing_ok=True)  # a JVM that uses one records none
    with tempfile.TemporaryDirectory(dir=wanted[BROKER].parent, prefix="make-") as name:
        folder = Path(name)
        recording = {kind: [f"-XX:ArchiveClassesAtExit={folder / kind}", _QUIET] for kind in KINDS}
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
    """Makes what is missing; that it cannot be made is said and is no failure."""
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
