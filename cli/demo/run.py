"""Sets up the processes of a story, plays it, and removes them (with ``--keep``: at Ctrl-C)."""

from __future__ import annotations

import asyncio
import logging
import signal
import sys
import time
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager, suppress
from enum import StrEnum
from importlib.util import find_spec
from pathlib import Path
from typing import Final

from rich.console import Console
from rich.markup import escape

from cli.demo.process import SESSION_MS, RegentProcess
from cli.demo.reassign_story import BROKER_COUNT, ReassignStory
from cli.demo.reassign_story import PARTITIONS as PLAN_PARTITIONS
from cli.demo.regions_story import on_regions
from cli.demo.story import PARTITIONS, Story
from cli.demo.telling import DemoFailed, Stage
from cli.exit_codes import Exit
from configs.credentials import HANDED_OVER
from controller.kafka.snapshots.writer import folder_in, snapshots_in
from pipeline.session import NOT_INSTALLED, CannotStart, need_java
from testing.embedded.cluster import EmbeddedCluster
from testing.embedded.jars import JarsUnavailable
from testing.embedded.java import JavaMissing
from testing.embedded.process import ChildProcess, ProcessFailed, accepts, free_port

TICK_MS: Final = 1_000
"""Of the demo's ZooKeeper; its brokers' sessions are as long as the daemon's."""
STEP_S_MAX: Final = 180.0


async def audited(console: Console, journal: Path, into: Path) -> bool:
    """Prints what the pipeline finds, and where the report is; returns whether nothing is broken.

    The daemon's snapshots lie beside its ``journal``, and tell the report min ISR. Where Spark cannot start it says
    why, and that breaks nothing.
    """
    try:
        need_java()
        if find_spec("pyspark") is None:
            raise CannotStart(NOT_INSTALLED.format("PySpark"))
    except CannotStart as error:
        console.print(f"No audit and no report: {escape(str(error))}", soft_wrap=True)
        return True
    folder, snapshots = into / "merged", folder_in(journal.parent)
    bounds = ["--session-timeout", str(SESSION_MS), "--zookeeper-tick", str(TICK_MS)]
    if snapshots_in(snapshots):
        bounds += ["--snapshot", str(snapshots)]
    ingest, audit = ("ingest", str(journal), "--into", str(folder)), ("audit", str(folder))
    console.print("Now the pipeline reads the journal on Spark, which takes a minute.", soft_wrap=True)
    for command in (ingest, audit, ("report", str(folder), *bounds)):
        ended, shown, last = await _ran(*command)
        for line in (*shown, last):
            console.print(f"pipeline {command[0]}: {escape(line)}", soft_wrap=True)
        if not ended:
            return False
    return True


async def _ran(*arguments: str) -> tuple[bool, list[str], str]:
    """Runs a command of the pipeline; returns whether it succeeded, the lines of its output, and its last sentence."""
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-P", "-m", "cli.main", "pipeline", *arguments),
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    try:
        printed, errors = await asyncio.wait_for(process.communicate(), STEP_S_MAX)
    except TimeoutError:
        await _end(process)
        return False, [], f"it did not end within {STEP_S_MAX:.0f} s; see the load of this machine, and try again"
    except BaseException:
        await _end(process)
        raise
    lines = _lines(errors)
    return process.returncode == 0, _lines(printed), lines[-1] if lines else "it printed nothing"


def _lines(printed: bytes) -> list[str]:
    return [line for line in printed.decode(errors="replace").split("\n") if line.strip()]


async def _end(process: asyncio.subprocess.Process) -> None:
    with suppress(ProcessLookupError):
        process.kill()
    await process.wait()


class Play(StrEnum):
    """The stories that the demo has."""

    FAILURES = "failures"
    REASSIGN = "reassign"
    REGIONS = "regions"


ON_KAFKA: Final[Mapping[Play, tuple[type[Story], int, int]]] = {
    Play.FAILURES: (Story, 3, PARTITIONS),
    Play.REASSIGN: (ReassignStory, BROKER_COUNT, PLAN_PARTITIONS),
}
"""Those on a Kafka cluster, by name: the story, its brokers, and the partitions of its topic."""


async def run(
    console: Console,
    *,
    keep: bool = False,
    play: Play = Play.FAILURES,
    report: Path | None = None,
    noded: bool = False,
) -> int:
    """Plays a story; returns the exit code. The journal is audited and reported into ``report`` at the end.

    ``noded``: servers of regions answer by znodes.
    SIGTERM cancels it like Ctrl-C, so that nothing is left behind.
    """
    task = asyncio.current_task()
    assert task is not None
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, task.cancel)
    logging.getLogger("aiokafka").setLevel(logging.CRITICAL)  # it logs every attempt to reach a broker that is down
    began = time.monotonic()
    try:
        async with on_regions(console, noded=noded) if play is Play.REGIONS else _on_cluster(console, play) as stage:
            well = await stage.story.play()
            console.print(
                f"[bold]{'The demo succeeded in' if well else 'The demo FAILED after'}[/] "
                f"{time.monotonic() - began:.0f} s, including the start of {stage.includes}."
            )
            if report is not None and stage.journal is not None:
                well = await audited(console, stage.journal, report) and well
            if keep:
                await stage.stay()
    except (DemoFailed, ProcessFailed, JarsUnavailable, JavaMissing) as failed:
        console.print(f"[red]the demo stopped:[/] {failed}")
        return Exit.FAILED
    return Exit.DONE if well else Exit.FAILED


@asynccontextmanager
async def _on_cluster(console: Console, play: Play) -> AsyncIterator[Stage]:
    story, brokers, partitions = ON_KAFKA[play]
    async with EmbeddedCluster(brokers, broker_options={"auto_create_partitions": partitions}) as cluster:
        port = free_port()
        settings = {"admin.host": "127.0.0.1", "admin.port": port, "admin.advertised_host": "127.0.0.1"}
        regent = RegentProcess(cluster.folder / "regent", cluster.connect, flags=["--takeover"], settings=settings)
        try:
            playable = story(console, cluster, regent)
            yield Stage(playable, "the cluster", lambda: _stay(console, cluster, regent, port), regent.journal)
        finally:
            await regent.kill()


async def _stay(console: Console, cluster: EmbeddedCluster, regent: RegentProcess, port: int) -> None:
    """Keeps the cluster up, with an admin endpoint, so that Kafka's tools find their controller, too."""
    command = [sys.executable, "-m", "cli.main", "admin-endpoint", "--config", str(regent.config)]
    endpoint = ChildProcess(
        "admin endpoint", command, cluster.folder / "admin-endpoint.log", {HANDED_OVER: str(regent.folder)}
    )
    await endpoint.start(lambda: accepts(port))
    try:
        _print_addresses(console, cluster, regent, port)
        await asyncio.Event().wait()
    finally:
        await endpoint.kill()


def _print_addresses(console: Console, cluster: EmbeddedCluster, regent: RegentProcess, port: int) -> None:
    console.print("Left up until Ctrl-C, which removes all of it, the logs too:")
    for name, value in (
        ("brokers", ",".join(cluster.bootstrap)),
        ("endpoint", f"127.0.0.1:{port} for Kafka's own tools; any broker serves them, too"),
        ("ZooKeeper", cluster.connect),
        ("regent", f".venv/bin/regent --config {regent.config} status"),
        ("journal", str(regent.journal)),
        ("snapshots", str(folder_in(regent.journal.parent))),
        ("logs", str(cluster.folder)),
    ):
        console.print(f"  {name:<10} {value}", soft_wrap=True)
