"""Judges a partition's history, in all terms: each row beside the one before (``since``)."""

from __future__ import annotations

from typing import Final

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as fn

from pipeline.schema import OF_PARTITION
from pipeline.violations import Broken, Group, brokers, sentence
from state_machines.journal.events import Kind

EXPLAINED_BY_GAPS = ("A8", "A12")
"""Invariants whose violation may come from rows missing between the two rows. Others are excused only where a topic has
no id: it may have been another one of the same name.
"""


SINCE: Final = {
    "ctl_epoch": "ctl_epoch",
    "seq": "seq",
    "topic_id": "topic_id",
    "leader": "leader1",
    "leader_epoch": "leader_epoch1",
    "pepoch": "pepoch1",
    "replicas": "replicas",
    "removing": "removing",
}
"""Fields of a partition's row before: name in ``since``, field of that row."""


def with_since(rows: DataFrame) -> DataFrame:
    """Adds ``since``, the partition's row before, in all terms (null: there is none, or the row has no leadership)."""
    order = Window.partitionBy("cluster", "topic", "partition").orderBy("ctl_epoch", "seq", "ctl_id")
    tells = fn.col("kind").isin(*OF_PARTITION) & fn.col("pepoch1").isNotNull()
    left = fn.struct(*(fn.col(row).alias(name) for name, row in SINCE.items()))
    before = fn.last(fn.when(tells, left), ignorenulls=True).over(order.rowsBetween(Window.unboundedPreceding, -1))
    return rows.withColumn("since", fn.when(tells, before))


def history() -> Group:
    """Returns A1, A2, A7, A8 and A12, as far as two rows of one partition show them.

    A row without a partition epoch before begins a new history: the topic was created, or is seen for the first time.
    """
    same_topic = fn.col("since.topic_id").eqNullSafe(fn.col("topic_id"))
    follows = fn.col("since").isNotNull() & fn.col("pepoch0").isNotNull() & same_topic
    invariants = {"A1": falling(), "A2": two_leaders(), "A7": overtaken(), "A8": hole(), "A12": removed_early()}
    return Group(follows, invariants, compares=True)


def excusable() -> Column:
    """Checks whether a gap between the rows of a violation (:func:`pipeline.violations.violations`) may excuse it."""
    explained = fn.col("invariant").isin(*EXPLAINED_BY_GAPS)
    return fn.col("compares") & (fn.col("topic_id").isNull() | explained)


def falling() -> Broken:
    """Checks A1: the leader epoch never decreases."""
    before, now = fn.col("since.leader_epoch"), fn.col("leader_epoch1")
    return Broken(now < before, sentence("the leader epoch was", before, "in the row before and is", now))


def two_leaders() -> Broken:
    """Checks A2: a leader epoch has one leader, or none."""
    epoch, before, now = fn.col("leader_epoch1"), fn.col("since.leader"), fn.col("leader1")
    same = epoch == fn.col("since.leader_epoch")
    return Broken(same & (before != now), sentence("leader epoch", epoch, "has the leaders", before, "and", now))


def overtaken() -> Broken:
    """Checks A7: once a later term has written, no earlier one does.

    The znode's version gives the order of two writes, whatever the clocks were.
    """
    before, now = fn.col("since.pepoch"), fn.col("pepoch1")
    written = fn.col("kind") != Kind.PARTITION_STATE.value
    late = (now < before) | (written & (now == before))
    return Broken(
        (fn.col("since.ctl_epoch") < fn.col("ctl_epoch")) & late,
        sentence("term", fn.col("since.ctl_epoch"), "wrote partition epoch", before, "after this one's", now),
    )


def hole() -> Broken:
    """Checks A8: within a term each row begins with the partition epoch that the one before left."""
    before, now = fn.col("since.pepoch"), fn.col("pepoch0")
    return Broken(
        (fn.col("since.ctl_epoch") == fn.col("ctl_epoch")) & (before != now),
        sentence("the row before left partition epoch", before, "and this one begins with", now),
    )


def removed_early() -> Broken:
    """Checks A12: replicas that a reassignment removes go only once those that stay are in sync.

    Those that stay are of the row that removes: an override may have changed the target in the same write.
    """
    had, going, replicas, isr = fn.col("since.replicas"), fn.col("since.removing"), fn.col("replicas"), fn.col("isr0")
    gone = fn.size(fn.array_except(going, replicas)) > 0
    stay = fn.array_except(replicas, brokers("removing"))
    late = fn.size(fn.array_except(stay, isr)) > 0
    return Broken(
        going.isNotNull() & gone & late, sentence("of", had, "there are", replicas, "left while in sync were", isr)
    )
