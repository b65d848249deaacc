"""Holds the common parts of ZooKeeper's and brokers' processes: the JVM's arguments, the configuration files."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from testing.embedded import class_archives
from testing.embedded.jars import jars
from testing.embedded.java import find_java


def java_command(options: Sequence[str], main_class: str, *arguments: str, classes: Sequence[Path] = ()) -> list[str]:
    """Returns the arguments of a small, quickly started JVM with the verified jars and ``classes`` on its path."""
    java, verified = find_java(), jars()
    classpath = ":".join(map(str, [*verified, *classes]))
    flags = ["-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-XX:-UsePerfData", "-Djava.awt.headless=true"]
    flags += class_archives.options(main_class, java, verified)
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
