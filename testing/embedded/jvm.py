"""Holds common parts of ZooKeeper's and brokers' JVMs: arguments, archives of loaded classes, configuration files.

A broker then starts with 1.1 instead of 1.8 s of processor time, a tool with 0.45 instead of 0.75 s. The archives are
beside the jars in the cache folder; ``python -m testing.embedded.archives`` makes those that are missing. Without them
everything works as well, and a JVM ignores one that does not fit it.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

from testing.embedded.jars import cache_folder, jars
from testing.embedded.java import Java, find_java

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


def archive_options(main_class: str, java: Java, verified: Sequence[Path]) -> list[str]:
    """Returns the JVM's options that use the archive, if it has been made."""
    found = archive(kind_of(main_class), java, verified)
    return [f"-XX:SharedArchiveFile={found}", QUIET] if found.exists() else []


def java_command(options: Sequence[str], main_class: str, *arguments: str, classes: Sequence[Path] = ()) -> list[str]:
    """Returns the arguments of a small, quickly started JVM with the verified jars and ``classes`` on its path."""
    java, verified = find_java(), jars()
    classpath = ":".join(map(str, [*verified, *classes]))
    flags = ["-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-XX:-UsePerfData", "-Djava.awt.headless=true"]
    flags += archive_options(main_class, java, verified)
    return [java.path, *flags, *options, "-cp", classpath, main_class, *arguments]


def write_properties(path: Path, settings: Mapping[str, object]) -> Path:
    """Writes a Java properties file."""
    path.write_text("".join(f"{key}={value}\n" for key, value in settings.items()))
    return path


def write_log4j(folder: Path, text: str) -> str:
    """Writes the folder's log4j configuration; returns it as the address that Java wants."""
    path = folder / "log4j.properties"
    path.write_text(text)
    return path.resolve().as_uri()
