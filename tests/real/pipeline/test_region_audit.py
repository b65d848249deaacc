"""Journals of regions, each broken in one way: one audit of all of them finds every break by its number."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import msgspec
import pytest

from controller.regions.journal.lines import TOGETHER_MAX
from controller.regions.procedures import merge, split
from metadata_store.records.port import StoreFailed
from regent_agent import protocol
from state_machines.journal.audit import judge
from state_machines.journal.events import MAYBE_INDEPENDENT, Row
from state_machines.procedures.record import Record
from state_machines.regions.states import RegionState
from tests.kit.journals import Desk
from tests.kit.regions.term import Stage, stage
from tests.real.pipeline.conftest import Judged
from tests.real.pipeline.logs import Log, Mutation, both, change, text, without
from tests.real.pipeline.region_logs import FIRST, LEFT, OF_REGIONS, A, B, sound_regions

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

E = 3
SOUND: Final = "sound regions"
IN_BULK: Final = "sound regions in bulk"


def at(seq: int, **fields: Any) -> Mutation:
    return change((E, seq), **fields)


def swapped(one: int, other: int) -> Mutation:
    """Has two rows change places."""

    def mutate(log: Log) -> Log:
        places = {one: other, other: one}
        moved = [row | {"seq": places.get(row["seq"], row["seq"])} for row in log]
        return sorted(moved, key=lambda row: row["seq"])

    return mutate


BROKEN: dict[str, tuple[set[str], Mutation]] = {
    "open out of nothing": ({"A6"}, at(7, from_state="OPEN")),
    "a new region is open": ({"A6"}, at(6, from_state="CLOSING")),
    "two owners, and no close between": ({"A16"}, at(19, to_state="CLOSING")),
    "two incarnations are owners": (
        {"A16"},
        both(at(19, to_state="CLOSING"), *(at(seq, **A | {"incarnation": 1799}) for seq in range(20, 24))),
    ),
    "a hole between the keys": ({"A17", "A22"}, at(6, start="90")),
    "an overlap of keys": ({"A17", "A22"}, at(6, start="")),
    "no first key": ({"A17", "A22"}, at(5, start="10")),
    "no last key": ({"A17", "A22"}, at(6, end="f0")),
    "a hole between the keys of a truncated table": ({"A17"}, at(74, start="q")),
    "a region of a truncated table is not made anew": ({"A17"}, at(75, regions=3)),
    "a region was not made": ({"A17"}, at(15, regions=3)),
    "not frozen": ({"A18"}, at(24, to_state="ONLINE")),
    "released before the fence": ({"A18"}, swapped(25, 26)),
    "taken off before the release": ({"A18"}, swapped(26, 27)),
    "opened elsewhere before the fence": ({"A18"}, both(swapped(25, 28), swapped(27, 25))),
    "the end before the release": ({"A18"}, swapped(26, 32)),
    "the token falls": ({"A19"}, both(at(20, token=2), at(23, token=2))),
    "the token stays": ({"A19"}, both(at(28, token=4), at(31, token=4))),
    "opened by another one": ({"A20"}, at(22, **A)),
    "open without a report": ({"A20"}, at(22, outcome="failed_open")),
    "open where nobody reported it": ({"A20"}, at(14, **B)),
    "sent before it is stored": ({"A21"}, swapped(20, 21)),
    "sent to another one": ({"A21"}, at(21, **A)),
    "split before it was closed": ({"A6"}, at(38, from_state="OPEN")),
    "a hole between the heirs of a split": ({"A22"}, at(40, start="50")),
    "the heirs of a split share keys": ({"A22"}, at(40, start="")),
    "the end of the second heir is lost": ({"A22"}, at(40, end="")),
    "the heirs have the keys of another region": ({"A22"}, both(at(39, start="80"), at(40, end="90"))),
    "no heir of a merge": ({"A22"}, at(64, pid=18)),
    "a merge of regions that are no neighbours": ({"A22"}, at(62, region=LEFT, from_state="CLOSED")),
    "the heir of a merge lacks keys": ({"A22"}, at(64, start="80")),
    "a parent is opened after its heirs have its keys": ({"A23"}, at(41, region=FIRST)),
    "discarded before the second heir is independent": ({"A24"}, swapped(50, 51)),
    "discarded, and no heir is independent": ({"A24"}, both(at(69, region=LEFT))),
}

EXCUSED: dict[str, Mutation] = {
    "the close is missing": without((E, 19)),
    "the fence is missing": without((E, 25)),
    "the release is missing": without((E, 26)),
    "the report is missing": without((E, 22)),
    "a new region is missing": without((E, 6)),
    "the begin is missing": without(*((E, seq) for seq in range(1, 8))),
    "an heir is missing": without((E, 40)),
    "the word of an heir is missing": without((E, 50)),
    "the word of an heir may be stored": at(50, outcome=MAYBE_INDEPENDENT),
    "the begin of a truncation is missing": both(*(at(seq, table="kv") for seq in range(73, 76)), without((E, 72))),
}
"""Rows that are missing leave a gap, which explains what the others show; so does a word that may be stored."""

FOLDED: Mutation = both(at(22, pid=None, pids=[7]), at(30, pid=None, pids=[10]))
"""Reports in bulk."""
BROKEN |= {
    "in bulk, opened by another one": ({"A20"}, both(FOLDED, at(22, **A))),
    "in bulk, open without a report": ({"A20"}, both(FOLDED, at(22, pids=[6]))),
}

MUTATED: dict[str, Mutation] = {name: mutation for name, (_, mutation) in BROKEN.items()} | EXCUSED


def logs() -> list[Log]:
    """Makes all logs, the sound ones first and last."""
    made = [MUTATED.get(name, list)(sound_regions(name)) for name in (SOUND, *MUTATED)]
    return [*made, FOLDED(sound_regions(IN_BULK))]


def test_a_sound_journal_of_regions_is_clean(judged: Judged) -> None:
    assert SOUND not in judged.broken
    assert IN_BULK not in judged.broken


@pytest.mark.parametrize("name", BROKEN)
def test_each_break_is_found(judged: Judged, name: str) -> None:
    assert judged.broken.get(name) == BROKEN[name][0]


@pytest.mark.parametrize("name", EXCUSED)
def test_a_gap_excuses_what_it_explains(judged: Judged, name: str) -> None:
    assert name not in judged.broken


def test_every_invariant_of_regions_is_broken_here() -> None:
    assert set().union(*(invariants for invariants, _ in BROKEN.values())) == OF_REGIONS | {"A6"}


def test_the_log_is_as_the_journal_writes_it() -> None:
    decoded = [msgspec.json.decode(line, type=Row) for line in text(sound_regions("c")).splitlines()]
    assert list(judge(decoded)) == []


def test_each_mutation_changes_the_log() -> None:
    assert all(mutation(sound_regions("c")) != sound_regions("c") for mutation in MUTATED.values())


async def _reshape(s: Stage) -> None:
    """Splits a region, merges its heirs, and has the data of all of them discarded."""
    member = await s.join("kv-2", 1796, (protocol.INHERIT, protocol.DISCARD))
    regions = s.term.env.model.tables["kv"].regions
    await s.until(lambda: all(one.state is RegionState.OPEN for one in regions))
    before = len(regions)
    key = regions[0].end[:-1] + b"!"
    await s.run("split", await split.splitting(s.term.env, regions[0], key, "a test"))
    heirs = regions[:2]
    await member.independent(*heirs)
    await s.until(lambda: not s.term.env.model.parents)
    await s.run("merge", await merge.merging(s.term.env, heirs, "a test"))
    await member.independent(regions[0])
    await s.until(lambda: not s.term.env.model.parents)
    assert len(regions) == before


async def _play(s: Stage) -> None:
    dies = await s.join("kv-1", 1795)
    await s.create("kv", TOGETHER_MAX + 20)
    await s.join("kv-2", 1796)
    await s.move("kv", min(s.term.env.model.regions), "kv-2")
    dies.kill()
    await s.until(lambda: len(s.term.env.model.servers) == 1)


def _lose_one_response(s: Stage, monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Has the store apply the next write of an assignment, and give no response: the term ends by it.

    Returns the pids of those writes.
    """
    pids: list[int] = []
    store = s.term.engine._store
    write = store.write

    async def lost(puts: Sequence[Record], deletes: Sequence[int], rows: Sequence[object]) -> None:
        await write(puts, deletes, rows)
        pids.extend(one.pid for one in puts if one.kind == "assign")
        if pids:
            raise StoreFailed("no response")

    monkeypatch.setattr(store, "write", lost)
    return pids


async def test_an_open_whose_write_had_no_response_is_sent_by_the_next_term_and_is_in_doubt(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from pipeline import jobs

    desk = Desk(tmp_path / "events", queue_rows_max=100_000)
    async with stage(tmp_path, desk.term) as s:
        await s.join("kv-1", 1795)
        unanswered = _lose_one_response(s, monkeypatch)
        s.submit_table("kv", 1)
        await s.until(lambda: bool(unanswered))
    async with stage(tmp_path, desk.term) as s:
        await s.join("kv-1", 1795)
        await s.until(lambda: all(one.state is RegionState.OPEN for one in s.term.env.model.regions.values()))
    desk.write()
    ingested = jobs.ingest(spark, [str(desk.folder)], str(tmp_path / "bronze"))
    summary = jobs.audit(spark, str(tmp_path / "bronze"))
    assert summary["first"] == []
    assert (ingested["terms"], ingested["gaps"]) == (2, {"IN_DOUBT": 1})


async def test_the_journal_of_a_term_that_was_played_is_clean(spark: SparkSession, tmp_path: Path) -> None:
    from pipeline import jobs

    desk = Desk(tmp_path / "events", queue_rows_max=100_000)
    for _ in range(2):
        async with stage(tmp_path, desk.term) as s:
            await (_play(s) if not s.term.env.model.tables else _reshape(s))
    desk.write()
    ingested = jobs.ingest(spark, [str(desk.folder)], str(tmp_path / "bronze"))
    summary = jobs.audit(spark, str(tmp_path / "bronze"), strict=True)
    assert summary["first"] == []
    assert summary["clean"]
    assert (ingested["terms"], ingested["gaps"]) == (2, {})
