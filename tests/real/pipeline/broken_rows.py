"""Breaks single rows of a large sound journal, and judges all of it by the rules in Python: the audit's oracle."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import msgspec

from benchmarks import made_journal
from state_machines.journal.audit import judge
from state_machines.journal.checks import COMPARISONS, follows, tells
from state_machines.journal.events import Row
from tests.real.pipeline.logs import Mutation, write
from tests.real.pipeline.region_logs import copy_of, many_regions

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

Line = dict[str, Any]
Found = tuple[int, int, str]
"""Term and number of a row, and an invariant that it breaks."""


class Break(NamedTuple):
    """A change of one row by which an invariant is broken. ``of``: the strategy of rows that it may change.

    ``later``: the next row of the partition shows it. ``beyond``: a rule that needs more than a partition's rows.
    """

    invariant: str
    of: str
    change: Callable[[Line], Line]
    later: bool = False
    beyond: bool = False


OFFLINE, PREFERRED, BY_LEADER, REQUEST = "offline", "preferred", "isr_by_leader", "request"
OF_REGIONS: Final = 33
"""Term of the rows of regions."""
LATE: Final = 1_000
"""More than the partition epochs of a journal."""


def _in_its_rack(broker: int) -> list[int]:
    """Returns three brokers of the rack of a broker, and that broker first."""
    return [(broker + number * made_journal.RACKS) % made_journal.BROKERS for number in range(3)]


BREAKS: Final[dict[str, Break]] = {
    "a step counts twice": Break("A1", PREFERRED, lambda row: {"leader_epoch1": row["leader_epoch1"] + 1}),
    "the epoch falls in the next row": Break(
        "A1", OFFLINE, lambda row: {name: row[name] + 9 for name in ("leader_epoch0", "leader_epoch1")}, later=True
    ),
    "another leads in that epoch": Break("A2", OFFLINE, lambda row: {"leader1": row["replicas"][2]}, later=True),
    "the leader is out of sync": Break("A3", BY_LEADER, lambda row: {"isr1": row["replicas"][2:]}),
    "a stranger is in sync": Break("A4", BY_LEADER, lambda row: {"isr1": [*row["isr1"], 99]}),
    "one is in sync twice": Break("A4", BY_LEADER, lambda row: {"isr1": [*row["isr1"], row["isr1"][0]]}),
    "nobody is in sync": Break("A5", OFFLINE, lambda _: {"isr1": []}),
    "an illegal state": Break("A6", OFFLINE, lambda _: {"states": ["NON_EXISTENT", "ONLINE"]}),
    "an earlier term wrote more": Break("A7", BY_LEADER, lambda _: {"pepoch1": LATE, "t_committed": None}, True),
    "a version is skipped": Break("A8", PREFERRED, lambda row: {"pepoch1": row["pepoch1"] + 1}),
    "a version is missing": Break(
        "A8", BY_LEADER, lambda row: {"pepoch1": row["pepoch1"] + 1, "t_committed": None}, later=True
    ),
    "an absent leader": Break("A9", PREFERRED, lambda row: {"absent": [row["leader1"]]}),
    "a leader that never came": Break(
        "A9", PREFERRED, lambda row: {"leader1": 77, "isr0": [77], "isr1": [77], "replicas": [77]}, beyond=True
    ),
    "a leader that lagged": Break("A10", OFFLINE, lambda row: {"isr0": row["replicas"][:1]}),
    "not the first": Break("A11", OFFLINE, lambda row: {"leader1": row["replicas"][2]}),
    "those that go are first": Break("A12", BY_LEADER, lambda row: {"removing": row["replicas"][:1]}),
    "removed too early": Break("A12", OFFLINE, lambda _: {"removing": [99]}, later=True),
    "in one rack of five": Break(
        "A13",
        BY_LEADER,
        lambda row: {"isr0": [row["leader1"]], "isr1": [row["leader1"]], "replicas": _in_its_rack(row["leader1"])},
        beyond=True,
    ),
    "an ended procedure runs": Break(
        "A14",
        REQUEST,
        lambda _: {"kind": "PROC_STATE", "api": None, "pid": 1, "from_state": "SUCCESS", "to_state": "RUNNABLE"},
    ),
    "a response before its request": Break("A15", REQUEST, lambda row: {"t_sent": row["t_acknowledged"] + 1}),
    "a request to no registration": Break("A15", REQUEST, lambda _: {"broker_epoch": 9}, beyond=True),
}  # fmt: skip


class Place(NamedTuple):
    """Where a break is: the changed row, and the one that shows it."""

    changed: tuple[int, int]
    shown: tuple[int, int]


def write_broken(folder: Path, events: int, partitions: int) -> dict[str, Place]:
    """Writes a sound journal of two daemons into ``folder``, breaks one row of it for each of :data:`BREAKS`.

    Each broken row is of a partition of its own. Returns the places by break.
    """
    made_journal.write(folder, events, partitions)
    rows = {(row.ctl_epoch, row.seq): row for row in rows_in(folder)}
    places: dict[str, Place] = {}
    used: set[tuple[str | None, int | None]] = set()
    pairs = list(_pairs(list(rows.values())))
    # The places are spread over the journal, so that they are in many segments and buckets.
    for number, (name, each) in enumerate(BREAKS.items()):
        begun = len(pairs) * number // len(BREAKS)
        for row, following in pairs[begun:] + pairs[:begun]:
            if (row.topic, row.partition) not in used and _fits(each, row, following):
                shown = following if each.later and following is not None else row
                places[name] = Place((row.ctl_epoch, row.seq), (shown.ctl_epoch, shown.seq))
                if row.topic is not None:
                    used.add((row.topic, row.partition))
                break
    _change(folder, {place.changed: BREAKS[name] for name, place in places.items()})
    return places


def rows_in(folder: Path) -> Iterator[Row]:
    """Yields the rows of all daemons."""
    decoder = msgspec.json.Decoder(Row)
    for file in sorted(folder.glob("*/*.jsonl")):
        yield from decoder.decode_lines(file.read_bytes())


def by_rules(rows: Sequence[Row]) -> set[Found]:
    """Judges each row by itself, and beside the one before of its partition."""
    found = {(each.row.ctl_epoch, each.row.seq, each.invariant) for each in judge(rows)}
    for before, row in _pairs(rows):
        if row is not None and follows(before, row):
            found |= {(row.ctl_epoch, row.seq, name) for name, broken in COMPARISONS.items() if broken(before, row)}
    return found


def _pairs(rows: Sequence[Row]) -> Iterator[tuple[Row, Row | None]]:
    """Yields rows with the next row of their partition; requests, which have none, with None."""
    told = sorted((row for row in rows if tells(row)), key=_history)
    for row, following in pairwise([*told, None]):
        if row is not None:
            yield row, following if following is not None and _history(following)[:2] == _history(row)[:2] else None
    yield from ((row, None) for row in rows if row.api is not None)


def _history(row: Row) -> tuple[str, int, int, int]:
    return row.topic or "", row.partition or 0, row.ctl_epoch, row.seq


def _fits(each: Break, row: Row, following: Row | None) -> bool:
    if (REQUEST if row.api is not None else row.strategy or row.reason) != each.of or row.pepoch0 == 0:
        return False
    if not each.later:
        return True
    # A8 compares rows of one term, and A7 those of two.
    wanted = {"A7": True, "A8": False}.get(each.invariant)
    return following is not None and wanted in (None, following.ctl_epoch > row.ctl_epoch)


def _change(folder: Path, changes: dict[tuple[int, int], Break]) -> None:
    """Changes the lines of rows in place."""
    for file in folder.glob("*/*.jsonl"):
        lines = file.read_text().splitlines(keepends=True)
        for at, line in enumerate(lines):
            epoch, seq = (int(line.split(f'"{name}":', 1)[1].split(",", 1)[0]) for name in ("ctl_epoch", "seq"))
            if (epoch, seq) in changes:
                row = json.loads(line)
                changed = row | changes[epoch, seq].change(row)
                lines[at] = json.dumps({name: value for name, value in changed.items() if value is not None}) + "\n"
        file.write_text("".join(lines))


class Audited(NamedTuple):
    """An audit of a journal and its oracle. ``by_audit``: all that the audit found. ``places``: of breaks, by name.

    ``of_regions``: the table and the invariant of each break among the rows of regions, which are not in the others.
    """

    places: dict[str, Place]
    by_audit: set[Found]
    by_rules: set[Found]
    of_regions: set[tuple[int, str]]

    def table(self) -> str:
        """Formats a line for each break: where it is, and who found it."""
        lines = [f"{'break':34} {'':4} {'changed row':>14} {'shown by row':>14}  audit rules"]
        for name, (changed, shown) in self.places.items():
            found = (*shown, BREAKS[name].invariant)
            rules = "-" if BREAKS[name].beyond else _yes(found in self.by_rules)
            lines.append(
                f"{name:34} {BREAKS[name].invariant:4} {_at(changed):>14} {_at(shown):>14}  "
                f"{_yes(found in self.by_audit):5} {rules}"
            )
        return "\n".join(lines)


def audited(
    spark: SparkSession,
    folder: Path,
    events: int,
    partitions: int,
    *,
    breaks: bool = True,
    tables: int = 0,
    of_tables: Mapping[int, Mutation] | None = None,
) -> Audited:
    """Makes a journal, with or without breaks, and has it judged by the pipeline and by the rules.

    ``tables``: of regions, in a journal of their own beside it; ``of_tables`` breaks some of them.
    """
    from pipeline import jobs

    journal, bronze = folder / "journal", folder / "bronze"
    places = write_broken(journal, events, partitions) if breaks else {}
    if not breaks:
        made_journal.write(journal, events, partitions)
    if tables:
        write(journal / "of-regions", [many_regions("regions", OF_REGIONS, tables, of_tables or {})])
    journals = [str(path) for path in sorted(journal.rglob("daemon-*"))]
    jobs.ingest(spark, journals, str(bronze))
    jobs.audit(spark, str(bronze), racks=True)
    rows = spark.read.parquet(f"{bronze}/violations").select("ctl_epoch", "seq", "invariant").collect()
    found = {tuple(row) for row in rows}
    return Audited(
        places,
        {each for each in found if each[0] != OF_REGIONS},
        by_rules([row for row in rows_in(journal) if row.ctl_epoch != OF_REGIONS]),
        {(copy_of(seq), invariant) for epoch, seq, invariant in found if epoch == OF_REGIONS},
    )


def beyond(places: dict[str, Place]) -> set[Found]:
    """Returns what only a comparison with rows of brokers shows."""
    return {(*place.shown, BREAKS[name].invariant) for name, place in places.items() if BREAKS[name].beyond}


def _at(place: tuple[int, int]) -> str:
    return f"{place[0]}, {place[1]}"


def _yes(found: bool) -> str:
    return "yes" if found else "NO"
