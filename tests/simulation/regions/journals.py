"""Judges each row of the daemons' journals by itself as it is made, and leaves all rows for the audit of histories."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from controller.journal.entries import Entry
from controller.journal.journal import J
from state_machines.journal.audit import judge
from state_machines.journal.events import Row
from tests.real.pipeline.fast import FAST
from tests.simulation.kafka.recording import write

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from tests.simulation.regions.world import SimulatedRegions


class SimJournal:
    """Takes the rows of one daemon. Those of a turn in which it dies are lost, as they are where a file is written."""

    def __init__(self, world: SimulatedRegions) -> None:
        self._world = world

    def term(self, ctl_id: int, epoch: int, of: type[J]) -> J:
        """Creates the part of a term that begins."""
        return of(self._put, ctl_id, epoch, self._clock)

    def _clock(self) -> tuple[int, int]:
        return self._world.wall_ms() * 1_000, int(self._world.loop.now_s * 1e6)

    def _put(self, entry: Entry) -> None:
        rows = list(entry.rows())
        self._world.rows += rows
        for found in judge(rows):
            self._world.violated(found.invariant, str(found))


def cluster_of(seed: int) -> str:
    """Returns the name of a seed's cluster in an audit of many seeds."""
    return f"seed-{seed}"


def leave(rows: list[Row], seed: int, folder: Path) -> None:
    """Writes the journals of a seed's daemons, each into its folder."""
    cluster = cluster_of(seed)
    for daemon in sorted({row.ctl_id for row in rows}):
        written = [msgspec.structs.replace(row, cluster=cluster) for row in rows if row.ctl_id == daemon]
        write(folder / f"{cluster}-{daemon}", written)


def spark_here() -> SparkSession | None:
    """Starts Spark; prints why where it does not start."""
    from pipeline.session import CannotStart, start

    try:
        return start("local[1]", FAST)
    except CannotStart as error:
        print(f"no journal is audited: {error}", file=sys.stderr, flush=True)
        return None


def audited(spark: SparkSession, journals: Path, into: Path) -> dict[str, list[str]]:
    """Runs both jobs over journals of many seeds; returns the violations of each cluster that has some."""
    from pipeline import jobs
    from pipeline.schema import VIOLATIONS

    jobs.ingest(spark, [str(_in_one(journals, into.with_name("all.jsonl")))], str(into))
    jobs.audit(spark, str(into))
    violations = spark.read.schema(VIOLATIONS).parquet(f"{into}/violations").orderBy("ctl_epoch", "seq")
    found: dict[str, list[str]] = {}
    for row in violations.collect():
        where = f"table {row.table}, region {row.region}, server {row.server}: epoch {row.ctl_epoch}, row {row.seq}"
        found.setdefault(row.cluster, []).append(f"{row.invariant}: {row.what} ({where})")
    return found


def _in_one(journals: Path, file: Path) -> Path:
    """Copies all journals into one file: an audit takes about as long for one file as for ten thousand rows."""
    with file.open("wb") as all_of_them:
        for one in sorted(journals.glob("*/*")):
            all_of_them.write(one.read_bytes())
    return file
