"""Runs HBase beside regent: programs of ``peer/`` on HBase's published jars, which these benchmarks alone download.

``python -m benchmarks.regions.hbase`` downloads the jars. A program plays a round for each line that it is asked, and
answers with a line of JSON.
"""

from __future__ import annotations

import asyncio
import json
import shutil
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Final, NamedTuple

from benchmarks.arena import say
from testing.embedded.jars import JarsUnavailable, absent, fetch
from testing.embedded.java import JavaMissing, find_java
from testing.embedded.process import ProcessFailed

SOURCES: Final = Path(__file__).with_name("peer")
ANSWER_S_MAX: Final = 900.0
HEAP_MB: Final = 6_144
OPENED: Final = ("lang", "lang.reflect", "util", "nio", "net")
"""Packages of Java that HBase reaches into."""
_LOG4J: Final = """\
log4j.rootLogger=ERROR, err
log4j.appender.err=org.apache.log4j.ConsoleAppender
log4j.appender.err.target=System.err
log4j.appender.err.layout=org.apache.log4j.SimpleLayout
"""
"""With its usual lines HBase has half the rate."""


class Version(NamedTuple):
    """A version of HBase and its list of jars."""

    name: str
    jars: Path


NEW: Final = Version("HBase 2.6.1", SOURCES / "hbase-2.6.sha256")
OLD: Final = Version("HBase 1.7.2", SOURCES / "hbase-1.7.sha256")
VERSIONS: Final = (NEW, OLD)


class Program(NamedTuple):
    """A program of ``peer/``: its file, its class, and the version that it runs on."""

    source: Path
    main: str
    version: Version


ASSIGNING: Final = Program(
    SOURCES / "Assigning.java", "org.apache.hadoop.hbase.master.assignment.Assigning", version=NEW
)
BALANCING: Final = Program(SOURCES / "Balancing.java", "Balancing", version=NEW)


def cluster_of(version: Version) -> Program:
    """Returns the program that runs a whole cluster."""
    return Program(SOURCES / "Cluster.java", "Cluster", version)


class Peer:
    """A program that runs. ``greeting``: what it said once it was ready."""

    def __init__(self, process: asyncio.subprocess.Process, log: Path) -> None:
        self._process = process
        self._log = log
        self.greeting: dict[str, Any] = {}

    async def play(self, regions: int, what: str = "") -> dict[str, Any]:
        """Has it play a round; returns its answer. ``what``: names the round, where the program has several."""
        assert self._process.stdin is not None
        self._process.stdin.write(f"{what} {regions}".strip().encode() + b"\n")
        return await self.answer()

    async def answer(self) -> dict[str, Any]:
        """Returns the next answer; other lines are passed over. Raises ProcessFailed with the end of its log."""
        assert self._process.stdout is not None
        async with asyncio.timeout(ANSWER_S_MAX):
            async for line in self._process.stdout:
                if line.startswith(b"{"):
                    found: dict[str, Any] = json.loads(line)
                    return found
        raise ProcessFailed(f"HBase's program ended\n{self._log.read_text(errors='replace')[-2_000:]}")


def missing() -> str | None:
    """Returns what HBase needs and this machine has not, with the remedy."""
    try:
        _compiler()
    except JavaMissing as problem:
        return str(problem)
    jars = {jar.file_name: jar.size for one in VERSIONS for jar in absent(one.jars)}
    if not jars:
        return None
    megabytes = -(-sum(jars.values()) // 1_000_000)
    return f"{len(jars)} jars of HBase ({megabytes} MB): run 'python -m benchmarks.regions.hbase', which downloads them"


def _compiler() -> str:
    """Returns the compiler beside the Java that is used; raises JavaMissing."""
    java = Path(find_java().path).resolve()
    found = shutil.which("javac", path=str(java.parent))
    if found is None:
        raise JavaMissing(f"no javac beside {java}: install a JDK (Debian: apt-get install openjdk-17-jdk-headless)")
    return found


@asynccontextmanager
async def running(program: Program, folder: Path, *arguments: object) -> AsyncIterator[Peer]:
    """Compiles a program in ``folder``, and runs it there until the end of the block."""
    jars = ":".join(map(str, fetch(say, program.version.jars, program.version.name)))
    classes = folder / "classes"
    classes.mkdir(parents=True)
    (classes / "log4j.properties").write_text(_LOG4J, encoding="utf-8")
    compiling = await asyncio.create_subprocess_exec(
        *(_compiler(), "-nowarn", "-proc:none", "-d", str(classes), "-cp", jars, str(program.source)),
        stderr=asyncio.subprocess.PIPE,
    )
    _, errors = await compiling.communicate()
    if compiling.returncode:
        raise ProcessFailed(f"{program.source.name} does not compile\n{errors.decode()[-2_000:]}")
    opened = [f"--add-opens=java.base/java.{one}=ALL-UNNAMED" for one in OPENED]
    command = [find_java().path, f"-Xmx{HEAP_MB}m", *opened, "-cp", f"{classes.resolve()}:{jars}", program.main]
    log = folder / "program.log"
    with log.open("w") as out:
        process = await asyncio.create_subprocess_exec(
            *(*command, *map(str, arguments)),
            cwd=folder,
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=out,
        )
    try:
        peer = Peer(process, log)
        peer.greeting = await peer.answer()
        yield peer
    finally:
        if process.returncode is None:
            process.kill()
        await process.wait()


def main() -> int:
    """Downloads missing jars; exits with 2 where one cannot be had."""
    try:
        for one in VERSIONS:
            fetch(say, one.jars, one.name)
    except JarsUnavailable as problem:
        print(problem, file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
