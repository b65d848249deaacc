"""Runs HBase's own performance tools from their published jars, which this benchmark alone downloads.

The tools are those of HBase's test jars: the scheduler's, and the ones of its two stores of procedures.
"""

from __future__ import annotations

import asyncio
import re
import resource
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Final, NamedTuple

from benchmarks.arena import say
from testing.embedded.jars import fetch
from testing.embedded.java import find_java
from testing.embedded.process import ProcessFailed

JARS: Final = Path(__file__).with_name("jars.sha256")
VERSION: Final = "HBase 2.6.1"
SCHEDULER: Final = "org.apache.hadoop.hbase.master.procedure.MasterProcedureSchedulerPerformanceEvaluation"
WAL_STORE: Final = "org.apache.hadoop.hbase.procedure2.store.wal.ProcedureWALPerformanceEvaluation"
REGION_STORE: Final = "org.apache.hadoop.hbase.procedure2.store.region.RegionProcedureStorePerformanceEvaluation"
UPTIME_S_MIN: Final = 1_800
"""The stores' tools compare the JVM's clock, which counts from the machine's start, with a timeout in seconds."""
TOOL_S_MAX: Final = 900.0
HEAP_MB: Final = 6_144

_RESULT: Final = re.compile(r"^RESULT \[(.*)\]\s*$", re.MULTILINE)
_SITE: Final = """\
<configuration>
  <property><name>fs.file.impl</name><value>org.apache.hadoop.fs.RawLocalFileSystem</value></property>
</configuration>
"""
"""With Hadoop's default file system a sync would not reach the disk, and checksum files would be written besides."""
_LOG4J: Final = """\
log4j.rootLogger=ERROR, out
log4j.appender.out=org.apache.log4j.ConsoleAppender
log4j.appender.out.layout=org.apache.log4j.SimpleLayout
"""


class Run(NamedTuple):
    """The raw result of a tool by name, and the CPU seconds of its JVM."""

    result: Mapping[str, str]
    cpu_s: float

    def number(self, name: str) -> int:
        """Returns a number of the result."""
        return int(self.result[name])


def provide() -> None:
    """Downloads missing jars, and says how much that is."""
    fetch(say, JARS, VERSION)


def result_of(output: str) -> Mapping[str, str]:
    """Parses the raw line of a tool: ``RESULT [num_ops=10000000, ops_type=both, ...]``; raises ValueError."""
    found = _RESULT.findall(output)
    if not found:
        raise ValueError("the tool printed no RESULT line")
    return dict(pair.split("=", 1) for pair in found[-1].split(", "))


def too_early() -> str | None:
    """Returns why the stores' tools cannot run yet."""
    left_s = UPTIME_S_MIN - time.clock_gettime(time.CLOCK_MONOTONIC)
    if left_s <= 0:
        return None
    return f"{VERSION}: its stores' tools need {UPTIME_S_MIN} s since the machine's start, try again in {left_s:.0f} s"


async def scheduler(folder: Path, operations: int, *, threads: int) -> Run:
    """Runs the scheduler's tool with its default tables, regions and operations."""
    return await _run(SCHEDULER, folder, "-num_ops", str(operations), "-threads", str(threads))


async def store(main: str, folder: Path, procedures: int, *, state_bytes: int, threads: int) -> Run:
    """Runs the tool of a store, which inserts and updates each procedure, with hsync."""
    output = (folder / "store").resolve().as_uri()
    options = ("-procs", procedures, "-state_size", state_bytes, "-threads", threads, "-sync", "hsync")
    return await _run(main, folder, *map(str, options), "-output", output)


async def _run(main: str, folder: Path, *options: str) -> Run:
    conf = folder / "conf"
    conf.mkdir(parents=True, exist_ok=True)
    (conf / "core-site.xml").write_text(_SITE, encoding="utf-8")
    (conf / "log4j.properties").write_text(_LOG4J, encoding="utf-8")
    classes = ":".join(map(str, (conf.resolve(), *fetch(say, JARS, VERSION))))
    command = (find_java().path, f"-Xmx{HEAP_MB}m", "-cp", classes, main, *options)
    log, before_s = folder / "tool.log", _children_s()
    with log.open("w") as out:
        process = await asyncio.create_subprocess_exec(*command, cwd=folder, stdout=out, stderr=out)
        try:
            async with asyncio.timeout(TOOL_S_MAX):
                code = await process.wait()
        finally:
            if process.returncode is None:
                process.kill()
                await process.wait()
    output = log.read_text(errors="replace")
    if code:
        raise ProcessFailed(f"{main} ended with {code}\n{output[-2_000:]}")
    return Run(result_of(output), _children_s() - before_s)


def _children_s() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime
