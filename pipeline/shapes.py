"""Judges splits and merges of regions: who has the keys after them (A22, A23), and when data is discarded (A24)."""

from __future__ import annotations

from typing import Final

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as fn

from pipeline.regions import earlier, nothing, rows_of
from pipeline.schema import VIOLATIONS
from pipeline.violations import sentence, unexcused
from state_machines.journal.checks import DISCARDED, FORGOTTEN
from state_machines.journal.events import INDEPENDENT, MAYBE_INDEPENDENT, Kind
from state_machines.regions.states import RegionState

GONE: Final = (RegionState.SPLIT.name, RegionState.MERGED.name)
"""Last states of a region whose keys others have got."""
OVER: Final = (DISCARDED, FORGOTTEN)
"""States of such a region once nothing is known of it any more."""
FAMILY_MAX: Final = 12
"""Rows of one split or merge, which follow each other: of at most ten regions that are gone, and of two new ones."""
_COLUMNS: Final = [*VIOLATIONS.names, "since_epoch", "since_seq", "excusable"]
_FAMILY: Final = ["cluster", "pid"]


def shapes_kept(rows: DataFrame, gaps: DataFrame) -> DataFrame:
    """Returns violations of A22 to A24."""
    seen = rows_of(rows, Kind.REGION_STATE, Kind.REGION_REPORT)
    states = seen.filter(fn.col("kind") == Kind.REGION_STATE.value)
    born = states.filter(fn.col("start").isNotNull())
    gone = states.filter(fn.col("to_state").isin(*GONE))
    found = _moved_on(states).unionByName(_discarded(seen, gone, born))
    return unexcused(_other_keys(gone, born), gaps, FAMILY_MAX).unionByName(unexcused(found, gaps))


def _other_keys(gone: DataFrame, born: DataFrame) -> DataFrame:
    """Finds splits and merges whose new regions have other keys, and merges of regions that are no neighbours."""
    keys = born.select("cluster", "region", "start", "end")
    parents = _chain(gone.drop("start", "end").join(keys, ["cluster", "region"], "left"), "parents")
    heirs = _chain(born.join(gone.select(*_FAMILY).distinct(), _FAMILY, "left_semi"), "heirs")
    first = fn.min("region").over(Window.partitionBy(*_FAMILY))
    told = gone.withColumn("first", first).filter(fn.col("first") == fn.col("region"))
    joined = told.join(parents, _FAMILY).join(heirs, _FAMILY, "left").filter(fn.col("parents.known"))
    had, got = fn.col("parents"), fn.col("heirs")
    what = (
        fn.when(~had["whole"], sentence("it has become one with regions that are not its neighbours"))
        .when(got.isNull(), sentence("no region has got its keys"))
        .when(~got["whole"], sentence("the regions that have got its keys have a hole between them, or share keys"))
        .when(
            (had["first"] != got["first"]) | (had["last"] != got["last"]),
            sentence(
                "the keys", had["first"], "to", had["last"], "went to regions from", got["first"], "to", got["last"]
            ),
        )
    )
    return _broken("A22", joined, what, fn.col("at"))


def _chain(regions: DataFrame, name: str) -> DataFrame:
    """Returns for each family the first and the last key of its regions, and whether these lie side by side.

    Keys are text whose order is another one than that of their bytes, so ends are looked up among starts.
    """
    start = fn.when(fn.col("start") == "", "the first key").otherwise(fn.concat(fn.lit("'"), "start", fn.lit("'")))
    end = fn.when(fn.col("end") == "", "the last key").otherwise(fn.concat(fn.lit("'"), "end", fn.lit("'")))
    starts, ends = fn.collect_set(start), fn.collect_set(end)
    grouped = regions.groupBy(*_FAMILY).agg(
        starts.alias("starts"), ends.alias("ends"), fn.count("*").alias("count"), fn.count("start").alias("with_keys")
    )
    firsts, lasts = fn.array_except("starts", "ends"), fn.array_except("ends", "starts")
    count = fn.col("count")
    whole = (fn.size(firsts) == 1) & (fn.size(lasts) == 1) & (fn.size("starts") == count) & (fn.size("ends") == count)
    return grouped.select(
        *_FAMILY,
        fn.struct(
            whole.alias("whole"),
            (fn.col("with_keys") == count).alias("known"),
            fn.get(firsts, fn.lit(0)).alias("first"),
            fn.get(lasts, fn.lit(0)).alias("last"),
        ).alias(name),
    )


def _moved_on(states: DataFrame) -> DataFrame:
    """Finds regions that go to a server, or come from one, although others have got their keys."""
    before = earlier("region")
    gone = fn.last(fn.when(fn.col("to_state").isin(*GONE), fn.col("at")), ignorenulls=True).over(before)
    found = states.withColumn("gone", gone).filter(fn.col("gone").isNotNull() & ~fn.col("to_state").isin(*OVER))
    what = sentence("it is", fn.col("to_state"), "although other regions have its keys")
    return _broken("A23", found.withColumn("what", what), fn.col("what"), fn.col("gone"))


def _discarded(seen: DataFrame, gone: DataFrame, born: DataFrame) -> DataFrame:
    """Finds regions whose data is discarded while the data of one that got their keys begins in it."""
    states = seen.filter(fn.col("kind") == Kind.REGION_STATE.value)
    words = fn.col("outcome").isin(INDEPENDENT, MAYBE_INDEPENDENT)
    independent = seen.filter((fn.col("kind") == Kind.REGION_REPORT.value) & words)
    since = independent.groupBy("cluster", fn.col("region").alias("heir")).agg(fn.min("at").alias("independent"))
    families = gone.select("cluster", "region", fn.col("pid").alias("family"))
    heirs = born.filter(fn.col("regions") > 0).select(
        "cluster", fn.col("pid").alias("family"), fn.col("region").alias("heir"), fn.col("at").alias("born")
    )
    discards = states.filter(fn.col("to_state") == DISCARDED).join(families, ["cluster", "region"])
    joined = discards.join(heirs, ["cluster", "family"]).join(since, ["cluster", "heir"], "left")
    early = joined.filter(~fn.coalesce(fn.col("independent") < fn.col("at"), fn.lit(False)))
    what = sentence("its data is discarded, and that of region", fn.col("heir"), "begins in it")
    return _broken("A24", early, what, fn.col("born"))


def _broken(invariant: str, found: DataFrame, what: Column, since: Column) -> DataFrame:
    """Returns violations with the place of the row that they were compared with."""
    place = fn.coalesce(since, nothing())
    named = {"invariant": fn.lit(invariant), "since_epoch": place["ctl_epoch"], "since_seq": place["seq"]}
    told = found.withColumn("what", what).filter(fn.col("what").isNotNull())
    return told.withColumns(named | {"excusable": fn.lit(True)}).select(*_COLUMNS)
