"""Judges A14 beyond single rows: a procedure ends after its children, and no two hold one exclusive lock at once."""

from __future__ import annotations

from typing import Final

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as fn

from pipeline.violations import VIOLATIONS, sentence
from state_machines.journal.events import Kind
from state_machines.procedures.states import ENDS
from state_machines.procedures.transition import SHARED

_ENDED: Final = [state.name for state in ENDS]


def family_and_locks(rows: DataFrame) -> DataFrame:
    """Returns violations of A14 that compare rows. No missing row can excuse them: all that is compared is there."""
    # Rows of procedures name no topic and come first in their files, so that the rest of those is not read.
    found = each(rows.filter(fn.col("topic").isNull() & (fn.col("kind") == Kind.PROC_STATE.value))).withColumn(
        "at", _at()
    )
    return children_left(found).unionByName(locks_shared(found))


def each(rows: DataFrame) -> DataFrame:
    """Returns a row for each procedure of ``pids`` where a row has many."""
    return rows.withColumn("pid", fn.explode(fn.coalesce("pids", fn.array("pid"))))


def children_left(found: DataFrame) -> DataFrame:
    """Returns rows of children that follow the end of their parent."""
    ended = (
        found.filter(fn.col("to_state").isin(_ENDED))
        .groupBy(fn.col("cluster").alias("of_cluster"), fn.col("pid").alias("of_pid"))
        .agg(fn.min("at").alias("ended"))
    )
    late = (
        (fn.col("cluster") == fn.col("of_cluster"))
        & (fn.col("ppid") == fn.col("of_pid"))
        & (fn.col("at") > fn.col("ended"))
    )
    what = sentence("child", fn.col("pid"), "goes on after its parent", fn.col("ppid"), "has ended")
    return _violations(found.join(ended, late), what)


def locks_shared(found: DataFrame) -> DataFrame:
    """Returns first rows of holders of an exclusive lock between two rows of another family that holds it.

    A procedure that keeps its locks has them from its first row with ``locked`` to its last row.
    """
    holders = found.filter(fn.col("locked") & fn.col("locks").isNotNull())
    each = holders.select("cluster", "root", "at", fn.explode("locks").alias("lock"))
    exclusive = each.filter(~fn.col("lock").endswith(SHARED))
    held = exclusive.groupBy("cluster", "lock", "root").agg(fn.min("at").alias("since"), fn.max("at").alias("until"))
    other = held.select(
        fn.col("cluster").alias("of_cluster"),
        fn.col("lock").alias("of_lock"),
        fn.col("root").alias("other"),
        fn.col("since").alias("from"),
        fn.col("until").alias("to"),
    )
    inside = (
        (fn.col("cluster") == fn.col("of_cluster"))
        & (fn.col("lock") == fn.col("of_lock"))
        & (fn.col("root") != fn.col("other"))
        & (fn.col("from") <= fn.col("since"))
        & (fn.col("since") < fn.col("to"))
    )
    taken = held.join(other, inside).select("cluster", "lock", "other", fn.col("since").alias("at"))
    what = sentence("pid", fn.col("pid"), "holds", fn.col("lock"), "while pid", fn.col("other"), "holds it")
    return _violations(found.join(taken, ["cluster", "at"]), what)


def _at() -> Column:
    return fn.struct("ctl_epoch", "seq")


def _violations(broken: DataFrame, what: Column) -> DataFrame:
    found = broken.withColumns({"invariant": fn.lit("A14"), "what": what})
    return found.select(*VIOLATIONS.names)
