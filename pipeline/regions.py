"""Judges the histories of regions (A16, A18, A19), their opens (A20, A21), and the key space of tables (A17).

A region's rows are compared with the one of its latest open, and with those of that process of a server.
"""

from __future__ import annotations

from typing import Final

from pyspark.sql import Column, DataFrame, Window, WindowSpec
from pyspark.sql import functions as fn

from pipeline.schema import VIOLATIONS
from pipeline.violations import sentence, unexcused
from regent_agent.protocol import OPENED
from state_machines.journal.events import Kind
from state_machines.regions.states import RegionState, TableState

OPENING, OPEN, CLOSED = RegionState.OPENING.name, RegionState.OPEN.name, RegionState.CLOSED.name
STILL_OPEN: Final = (OPEN, RegionState.SPLITTING.name, RegionState.MERGING.name)
CRASHED: Final = RegionState.ABNORMALLY_CLOSED.name
BEFORE: Final = {"FENCED": "CRASHED", "RELEASED": "FENCED", "GONE": "RELEASED"}
"""States of a process whose crash is dealt with, and the one that comes before each."""

JUDGED: Final = (
    *VIOLATIONS.names[2:],
    *("pid", "from_state", "to_state", "server0", "incarnation0", "incarnation", "token"),
    *("start", "end", "regions", "operations", "pids", "outcome"),
)
"""Columns of the rows of regions, tables and servers that are compared."""


def owned_once(rows: DataFrame, gaps: DataFrame) -> DataFrame:
    """Returns violations of A16, A18 and A19."""
    found = of_regions(rows)
    ends = fn.broadcast(ends_of(rows))
    every = _two_owners(found, ends).unionByName(_tokens(found))
    every = every.unionByName(_past_a_fence(found, ends)).unionByName(_order(rows))
    return unexcused(every.withColumn("excusable", fn.lit(True)), gaps)


def of_regions(rows: DataFrame) -> DataFrame:
    """Returns the rows of regions with ``latest``, the open before, ``closed``, and ``holder``, which may have it.

    ``closed``: where it was closed last. ``holder``: the process that it was last with, empty once that gave it up.
    """
    found = rows_of(rows, Kind.REGION_STATE)
    before = earlier("region")
    state = fn.col("to_state")
    changed = ~state.eqNullSafe(fn.col("from_state"))
    opened = fn.when((state == OPEN) & changed, fn.struct("at", "server", "incarnation", "token"))
    left = fn.col("server").isNull() & changed & (state != CRASHED)
    left = left | (fn.col("server").isNull() & fn.col("server0").isNotNull() & (state == OPENING))
    holder = fn.when(fn.col("server").isNotNull(), fn.struct("at", "server", "incarnation")).when(
        left, fn.struct("at", fn.lit("").alias("server"), fn.lit(0).cast("long").alias("incarnation"))
    )
    return found.withColumns(
        {
            "latest": fn.last(opened, ignorenulls=True).over(before),
            "closed": fn.last(fn.when(state == CLOSED, fn.col("at")), ignorenulls=True).over(before),
            "holder": fn.last(holder, ignorenulls=True).over(before),
        }
    )


def ends_of(rows: DataFrame) -> DataFrame:
    """Returns when each process crashed, and when its regions could go elsewhere; null: it did not, or could not."""
    seen = rows_of(rows, Kind.SERVER_STATE)
    first = {
        name: fn.min(fn.when(fn.col("to_state").isin(*states), fn.col("at"))).alias(name)
        for name, states in {"crashed": ["CRASHED"], "fenced": ["FENCED", "RELEASED"], "released": ["RELEASED"]}.items()
    }
    return seen.groupBy(
        fn.col("cluster").alias("of_cluster"),
        fn.col("server").alias("of_server"),
        fn.col("incarnation").alias("of_incarnation"),
    ).agg(*first.values())


def _two_owners(found: DataFrame, ends: DataFrame) -> DataFrame:
    """Finds opens of a region that another process has, which neither closed it nor was fenced."""
    latest = fn.col("latest")
    other = ~latest["server"].eqNullSafe(fn.col("server")) | ~latest["incarnation"].eqNullSafe(fn.col("incarnation"))
    opens = found.filter(_opens() & latest.isNotNull() & other)
    kept = ~fn.coalesce(fn.col("closed") > latest["at"], fn.lit(False))
    what = sentence("it is open at", _process(), "and at", latest["server"], latest["incarnation"], "as well")
    joined = opens.filter(kept).join(ends, _same(latest), "left")
    return _compared("A16", joined.filter(~_past("fenced")), what, latest["at"])


def _tokens(found: DataFrame) -> DataFrame:
    """Finds opens whose token is not higher than that of the open before."""
    latest = fn.col("latest")
    begun = (fn.col("to_state") == OPENING) & fn.col("server").isNotNull()
    low = found.filter((_opens() | begun) & (fn.col("token") <= latest["token"]))
    what = sentence("token", fn.col("token"), "follows token", latest["token"])
    return _compared("A19", low, what, latest["at"])


def _past_a_fence(found: DataFrame, ends: DataFrame) -> DataFrame:
    """Finds regions that leave a crashed process before its crash was dealt with as far as that."""
    holder = fn.col("holder")
    elsewhere = (fn.col("to_state") == OPENING) & fn.col("server").isNotNull() & (holder["server"] != "")
    other = (holder["server"] != fn.col("server")) | (holder["incarnation"] != fn.col("incarnation"))
    leaves = (fn.col("to_state") == CRASHED) & fn.col("server0").isNotNull()
    since = fn.coalesce(holder["at"], fn.col("at")).alias("at")  # rows of its crash may be missing since it came there
    gone = fn.when(
        leaves, fn.struct(since, fn.col("server0").alias("server"), fn.col("incarnation0").alias("incarnation"))
    )
    moved = found.withColumn("holder", fn.coalesce(gone, holder)).filter(leaves | (elsewhere & other))
    holder = fn.col("holder")
    joined = moved.join(ends, _same(holder), "left")
    early = fn.when(leaves, ~_past("released")).otherwise(_past("crashed") & ~_past("released"))
    what = sentence("it leaves", holder["server"], holder["incarnation"], "which crashed, and is not released yet")
    return _compared("A18", joined.filter(early), what, holder["at"])


def _order(rows: DataFrame) -> DataFrame:
    """Finds crashes whose steps are out of order: freeze, fence, release, end."""
    seen = rows_of(rows, Kind.SERVER_STATE)
    window = earlier("server", "incarnation")
    due = fn.create_map(*(fn.lit(text) for pair in BEFORE.items() for text in pair))[fn.col("to_state")]
    states = fn.collect_set("to_state").over(window)
    placed = seen.withColumns({"due": due, "states": states, "begun": fn.min("at").over(window)})
    early = placed.filter(fn.col("due").isNotNull() & ~fn.array_contains("states", fn.col("due")))
    what = sentence(_process(), "is", fn.col("to_state"), "and was not", fn.col("due"), "before")
    return _compared("A18", early, what, fn.coalesce("begun", nothing()))


def rows_of(rows: DataFrame, *kinds: Kind) -> DataFrame:
    """Returns rows of the domain with the columns that are judged, and ``at``, their place."""
    # Such rows name no topic and come first in their files, so that the rest of those is not read.
    wanted = rows.filter(fn.col("topic").isNull() & fn.col("kind").isin(*(kind.value for kind in kinds)))
    return wanted.select(*JUDGED, fn.struct("ctl_epoch", "seq").alias("at"))


def earlier(*by: str) -> WindowSpec:
    """Returns the rows before a row, of the same cluster and the same values of ``by``; ``at`` is their place."""
    return Window.partitionBy("cluster", *by).orderBy("at").rowsBetween(Window.unboundedPreceding, -1)


def nothing() -> Column:
    """Returns the place before all rows."""
    return fn.struct(fn.lit(0).alias("ctl_epoch"), fn.lit(0).cast("long").alias("seq"))


def _opens() -> Column:
    """Finds opens; a split or a merge that is taken back before its close was sent leaves its regions open."""
    was_open = fn.coalesce(fn.col("from_state").isin(*STILL_OPEN), fn.lit(False))
    return (fn.col("to_state") == OPEN) & ~was_open


def _process() -> Column:
    return fn.concat_ws(",", "server", fn.col("incarnation").cast("string"))


def _past(name: str) -> Column:
    return fn.coalesce(fn.col(name) < fn.col("at"), fn.lit(False))


def _same(process: Column) -> Column:
    return (
        (fn.col("cluster") == fn.col("of_cluster"))
        & (process["server"] == fn.col("of_server"))
        & (process["incarnation"] == fn.col("of_incarnation"))
    )


def _compared(invariant: str, broken: DataFrame, what: Column, since: Column) -> DataFrame:
    """Returns violations with the place of the row that they were compared with."""
    place = {"since_epoch": since["ctl_epoch"], "since_seq": since["seq"]}
    named = broken.withColumns({"invariant": fn.lit(invariant), "what": what} | place)
    return named.select(*VIOLATIONS.names, *place)


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
        & ((state == OPENING) | _opens())
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


_TABLE = ["cluster", "table", "made"]
_WHOLE = [*_TABLE, "by"]
"""What names a row by which a table has all of its regions: there are two where the row of a truncation is lost."""
BEGINS: Final = (TableState.CREATING.name, TableState.TRUNCATING.name)
"""States of a table in which it gets all of its regions anew."""
ENDS: Final = (
    f"{TableState.CREATING.name} {TableState.ENABLED.name}",
    f"{TableState.TRUNCATING.name} {TableState.DISABLED.name}",
)
"""The states before and after, once it has all of them."""


def keys_covered(rows: DataFrame, gaps: DataFrame) -> DataFrame:
    """Returns violations of A17: holes, overlaps, and regions that are too few or too many.

    Keys are text whose order is another one than that of their bytes, so ends are looked up among starts.
    """
    seen = _since_creation(rows)
    ends = fn.concat_ws(" ", "from_state", "to_state").isin(*ENDS)
    whole = seen.filter((fn.col("kind") == Kind.TABLE_STATE.value) & ends).withColumn("by", fn.col("at"))
    by = whole.select(*_TABLE, "by")  # later ones have the keys of others: see pipeline.shapes
    born = seen.filter(fn.col("start").isNotNull()).join(by, _TABLE).filter(fn.col("at") < fn.col("by"))
    new = born.select(*_WHOLE, "start", "end")
    counts = new.groupBy(*_WHOLE).agg(
        fn.count("*").alias("count"),
        fn.countDistinct("start").alias("starts"),
        fn.countDistinct("end").alias("ends"),
        fn.count(fn.when(fn.col("start") == "", 1)).alias("first"),
        fn.count(fn.when(fn.col("end") == "", 1)).alias("last"),
    )
    starts = new.select(*_WHOLE, fn.col("start").alias("end"))
    loose = (
        new.filter(fn.col("end") != "").join(starts, [*_WHOLE, "end"], "left_anti").groupBy(*_WHOLE)
        .agg(fn.count("*").alias("loose"), fn.min("end").alias("key"))
    )  # fmt: skip
    joined = whole.join(counts, _WHOLE, "left").join(loose, _WHOLE, "left").fillna(0, ["count", "loose", "starts"])
    count, key = fn.col("count"), fn.col("key")
    what = (
        fn.when(count != fn.col("regions"), sentence("it has", fn.col("regions"), "regions and", count, "were made"))
        .when(fn.col("loose") > 0, sentence("no region begins at", key, "where one ends"))
        .when((fn.col("starts") != count) | (fn.col("ends") != count), sentence("two regions have the same key"))
        .when((fn.col("first") != 1) | (fn.col("last") != 1), sentence("no region has the first key, or the last one"))
    )
    found = joined.withColumn("what", what).filter(fn.col("what").isNotNull())
    return unexcused(
        found.withColumns(
            {
                "invariant": fn.lit("A17"),
                "since_epoch": fn.col("made.ctl_epoch"),
                "since_seq": fn.col("made.seq"),
                "excusable": fn.lit(True),
            }
        ).select("invariant", *VIOLATIONS.names[1:], "since_epoch", "since_seq", "excusable"),
        gaps,
    )


def _since_creation(rows: DataFrame) -> DataFrame:
    """Returns rows of tables and of new regions with ``made``, where the table was created or truncated last."""
    seen = rows_of(rows, Kind.TABLE_STATE, Kind.REGION_STATE).filter(
        (fn.col("kind") == Kind.TABLE_STATE.value) | fn.col("start").isNotNull()
    )
    so_far = Window.partitionBy("cluster", "table").orderBy("at").rowsBetween(Window.unboundedPreceding, 0)
    creates = (fn.col("kind") == Kind.TABLE_STATE.value) & fn.col("to_state").isin(*BEGINS)
    made = fn.last(fn.when(creates, fn.col("at")), ignorenulls=True).over(so_far)
    return seen.withColumn("made", made).filter(fn.col("made").isNotNull())
