"""Judges opens by the rows of their procedure: stored before they are sent (A21), reported by the target (A20)."""

from __future__ import annotations

from pyspark.sql import DataFrame
from pyspark.sql import functions as fn

from pipeline.regions import OPEN, OPENING, earlier, nothing, rows_of
from pipeline.schema import VIOLATIONS
from pipeline.violations import sentence, unexcused
from regent_agent.protocol import OPENED
from state_machines.journal.events import Kind


def opens_kept(rows: DataFrame, gaps: DataFrame) -> DataFrame:
    """Returns violations of A20 and A21."""
    before = earlier("pid")
    process = fn.struct("at", "server", "incarnation")
    events = _events(rows)
    told = events.withColumns(
        {
            "stored": fn.last(fn.when(fn.col("event") == OPENING, process), ignorenulls=True).over(before),
            "reported": fn.last(fn.when(fn.col("event") == OPENED, process), ignorenulls=True).over(before),
        }
    )
    stored, reported, event = fn.col("stored"), fn.col("reported"), fn.col("event")
    here = fn.struct("server", "incarnation")
    elsewhere = ~fn.struct("stored.server", "stored.incarnation").eqNullSafe(here)
    unsaid = ~fn.struct("reported.server", "reported.incarnation").eqNullSafe(here)
    what = (
        fn.when(
            (event == "open") & elsewhere,
            sentence(
                "pid", fn.col("pid"), "was sent to", fn.col("server"), "and stored as opening at", stored["server"]
            ),
        )
        .when(
            (event == OPENED) & elsewhere,
            sentence("pid", fn.col("pid"), "was opened by", fn.col("server"), "and sent to", stored["server"]),
        )
        .when(
            (event == OPEN) & unsaid,
            sentence("pid", fn.col("pid"), "is open at", fn.col("server"), "as reported by", reported["server"]),
        )
    )
    found = told.withColumn("what", what).filter(fn.col("what").isNotNull())
    since = fn.coalesce("stored.at", nothing())
    named = found.withColumns(
        {
            "invariant": fn.when(event == "open", "A21").otherwise("A20"),
            "since_epoch": since["ctl_epoch"],
            "since_seq": since["seq"],
            "excusable": fn.lit(True),
        }
    )
    return unexcused(named.select(*VIOLATIONS.names, "since_epoch", "since_seq", "excusable"), gaps)


def _events(rows: DataFrame) -> DataFrame:
    """Returns what happened to opens: OPENING and OPEN were stored, an "open" was sent, it was reported "opened"."""
    seen = rows_of(rows, Kind.REGION_STATE, Kind.REGION_DISPATCH, Kind.REGION_REPORT)
    kept = [*VIOLATIONS.names[2:], "incarnation", "pid", "at", "event"]
    state = fn.col("to_state")
    stored = seen.filter(
        (fn.col("kind") == Kind.REGION_STATE.value)
        & state.isin(OPENING, OPEN)
        & fn.col("server").isNotNull()
        & fn.col("pid").isNotNull()
    ).withColumn("event", state)
    reported = _each(seen.filter((fn.col("kind") == Kind.REGION_REPORT.value) & (fn.col("outcome") == OPENED)))
    sent = (
        seen.filter(fn.col("kind") == Kind.REGION_DISPATCH.value)
        .withColumn("one", fn.explode(fn.arrays_zip("pids", "operations")))
        .withColumns({"pid": fn.col("one.pids"), "event": fn.col("one.operations")})
        .filter(fn.col("event") == "open")
    )
    return (
        stored.select(*kept)
        .unionByName(reported.withColumn("event", fn.lit(OPENED)).select(*kept))
        .unionByName(sent.select(*kept))
    )


def _each(rows: DataFrame) -> DataFrame:
    """Returns a row for each procedure of ``pids`` where a row has many."""
    return rows.withColumn("pid", fn.explode(fn.coalesce("pids", fn.array("pid"))))
