"""Journals of two daemons, each broken in one way: one audit of all of them finds every break by its number.

Each log has its own cluster, named by its break, so that one pass is enough over all of them and those of regions.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
import pytest

from state_machines.journal.audit import INVARIANTS, judge
from state_machines.journal.events import Row
from tests.real.pipeline.conftest import Judged
from tests.real.pipeline.logs import Line, Log, Mutation, also, both, change, of, sound, text, without, written

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

BROKEN: dict[str, tuple[set[str], Mutation]] = {
    "the leader epoch falls later": ({"A1"}, change((5, 9), leader_epoch0=4, leader_epoch1=5)),
    "the leader epoch takes no step": ({"A1"}, change((6, 11), leader_epoch1=3)),
    "two leaders of one epoch": ({"A2"}, change((6, 7), leader_epoch0=0, leader_epoch1=1)),
    "a leader out of sync": ({"A3"}, change((5, 12), isr1=[3])),
    "a stranger in sync": ({"A4"}, change((5, 12), isr1=[2, 3, 9])),
    "an empty ISR": ({"A3", "A5"}, change((5, 12), isr1=[])),
    "an illegal transition": ({"A6"}, change((5, 10), from_state="DELETION_STARTED")),
    "an old term goes on writing": ({"A7"}, change((5, 12), pepoch1=9, t_committed=None)),
    "two daemons in one term": ({"A7"}, also(ctl_epoch=6, seq=1)),
    "a write after the fence": ({"A7"}, change((5, 6), kind="FENCED")),
    "a foreign write": ({"A8"}, both(change((6, 10), pepoch0=7, pepoch1=8), change((6, 11), pepoch0=8, pepoch1=9))),
    "a version is skipped": ({"A8"}, change((6, 11), pepoch1=6)),
    "a leader that never came": ({"A9"}, change((6, 2), kind="CTL_PHASE")),
    "a leader that shuts down": ({"A9"}, change((6, 6), broker=1)),
    "a leader that was gone": ({"A9"}, change((6, 6), kind="BROKER_DOWN", broker=1)),
    "a leader that lagged": ({"A10"}, change((5, 9), isr0=[1, 3])),
    "not the first": ({"A11"}, change((6, 7), leader1=3)),
    "those that go come first": ({"A12"}, change((6, 10), replicas=[2, 1, 3])),
    "removed too early": ({"A12"}, change((6, 11), isr0=[1], isr1=[1])),
    "an ended procedure runs": ({"A14"}, change((6, 15), from_state="SUCCESS", to_state="RUNNABLE")),
    "a call is rolled back": ({"A14"}, change((6, 17), from_state="FAILED", to_state="ROLLEDBACK")),
    "a child outlives its parent": (
        {"A14"},
        change((6, 17), pid=2, ppid=1, root=1, from_state="RUNNABLE", step="move"),
    ),
    "many children outlive their parent": (
        {"A14"},
        change((6, 17), pid=None, pids=[2, 4], ppid=1, root=1, from_state="RUNNABLE", step="move"),
    ),
    "two hold one lock": (
        {"A14"},
        change((6, 15), pid=9, ppid=None, root=9, to_state="WAITING", locks=["server reassignments"], locked=True),
    ),
    "a request to no registration": ({"A15"}, change((6, 18), broker_epoch=99)),
    "a request to one that is gone": (
        {"A15"},
        change((6, 18), broker=2, broker_epoch=102),
    ),
    "a response before its request": ({"A15"}, change((6, 18), t_sent=6_000_017_950)),
    "an earlier term goes on sending": (
        {"A15"},
        also(
            seq=14,
            ts_us=1_700_000_000_000_000 + 6_005_000_000,
            mono_us=5_005_000_000,
            kind="RPC_BATCH",
            api="LEADER_AND_ISR",
            broker=3,
            broker_epoch=103,
            t_sent=5_004_999_000,
            t_acknowledged=5_005_000_000,
        ),
    ),
    "all in one rack": ({"A13"}, change((6, 4), rack="a")),
}

MADE_AGAIN: Mutation = both(
    also(ctl_epoch=6, ctl_id=2, seq=19, kind="TOPIC_DELETE", topic="orders"),
    also(ctl_epoch=6, ctl_id=2, seq=20, kind="TOPIC_CREATE", topic="orders"),
    also(
        ctl_epoch=6,
        ctl_id=2,
        seq=21,
        kind="LEADER",
        **written(
            from_state="NON_EXISTENT",
            states=["NEW", "ONLINE"],
            strategy="initial",
            reason="new_topic",
            leader1=3,
            leader_epoch1=0,
            pepoch1=0,
            isr1=[3],
            replicas=[3, 1],
            steps=["new"],
            topic_id="bmV3",
        ),
    ),
    also(
        ctl_epoch=6,
        ctl_id=2,
        seq=22,
        kind="ISR",
        reason="isr_by_leader",
        **written(**of((3, 0, 0, [3]), (3, 0, 1, [3, 1])) | {"replicas": [3, 1], "topic_id": "bmV3"}),
    ),
)
"""At the end of the log the topic is deleted and made again, and its numbers begin again."""

BROKEN["made again, and a version is missing"] = ({"A8"}, both(MADE_AGAIN, change((6, 22), pepoch0=5, pepoch1=6)))

GAPPED: dict[str, tuple[list[tuple[Any, ...]], Mutation]] = {
    "expired": ([("EXPIRED", 5, 1, 5)], without(*((5, seq) for seq in range(1, 6)))),
    "a hole explains": (
        [("HOLE", 6, 8, 2)],
        both(
            without((6, 8), (6, 9)),
            change((6, 10), pepoch0=7, pepoch1=8),
            change((6, 11), pepoch0=8, pepoch1=9),
        ),
    ),
    "rows were lost": (
        [("UNRECORDED", 6, 8, 2)],
        both(
            without((6, 9)),
            change((6, 8), kind="UNRECORDED", lost=2, broker=None),
            change((6, 10), pepoch0=7, pepoch1=8),
            change((6, 11), pepoch0=8, pepoch1=9),
        ),
    ),
    "a broker came unseen": ([("HOLE", 6, 2, 1)], without((6, 2))),
    "a daemon was killed": ([("CUT_SHORT", 5, 13, None)], without((5, 13))),
    "a term without its begin": ([("HOLE", 7, 1, 4)], also(ctl_epoch=7, seq=5, kind="CTL_PHASE")),
    "another controller was elected": ([("NO_JOURNAL", 7, 1, None)], also(ctl_epoch=9, seq=1)),
    "one term without a journal": ([("NO_JOURNAL", 7, 1, None)], also(ctl_epoch=8, seq=1)),
    "the next term, with a journal": ([], also(ctl_epoch=7, seq=1)),
    "the wall clock steps back": ([], change((5, 9), ts_us=1_500_000_000_000_000)),
    "a topic is deleted and made again": ([], MADE_AGAIN),
    "one number twice": ([("SAME_NUMBER", 5, 1, None)], also(why="another")),
}
"""Gaps (kind, epoch, first row, rows), none of which is a violation. The last term of each log goes on."""

MUTATED: dict[str, Mutation] = {name: mutation for name, (_, mutation) in BROKEN.items()} | {
    name: mutation for name, (_, mutation) in GAPPED.items()
}


def logs() -> list[Log]:
    """Makes all logs, the sound one first."""
    return [MUTATED.get(name, list)(sound(name)) for name in ("sound", *MUTATED)]


def test_a_sound_journal_is_clean(judged: Judged) -> None:
    assert "sound" not in judged.broken


@pytest.mark.parametrize("name", BROKEN)
def test_each_break_is_found(judged: Judged, name: str) -> None:
    assert judged.broken.get(name) == BROKEN[name][0]


@pytest.mark.parametrize("name", GAPPED)
def test_a_gap_breaks_no_invariant(judged: Judged, name: str) -> None:
    assert name not in judged.broken


def test_every_invariant_is_broken_or_named_as_unjudged(judged: Judged) -> None:
    summary = judged.audited
    assert summary["broken"].keys() | summary["unjudged"].keys() == INVARIANTS.keys()
    assert summary["violations"] == sum(summary["broken"].values())
    assert not summary["clean"]


@pytest.mark.parametrize("name", ["sound", *GAPPED])
def test_each_gap_is_marked_with_its_place(spark: SparkSession, judged: Judged, name: str) -> None:
    rows = spark.read.parquet(f"{judged.folder}/gaps")
    found = rows.filter(f"cluster = '{name}'").orderBy("ctl_epoch", "seq").collect()
    wanted = GAPPED[name][0] if name in GAPPED else []
    gaps = [(gap.kind, gap.ctl_epoch, gap.seq, gap.rows) for gap in found]
    later = [gap for gap in gaps if gap[0] == "CUT_SHORT" and gap[1] == 6]
    assert [gap for gap in gaps if gap not in later or gap in wanted] == wanted


def test_each_row_is_kept_once_and_none_is_quarantined(judged: Judged) -> None:
    assert judged.ingested["rows"] == judged.rows
    assert judged.ingested["quarantined"] == 0
    assert json.loads((judged.folder / "ingest.json").read_text()) == judged.ingested


BAD: dict[str, str] = {
    "it is torn": '{"v":1,"clus',
    "it is no JSON object with the fields of a row": '{"v":1,"cluster":7 8}',
    "kind is missing": text([{k: v for k, v in sound("c")[0].items() if k != "kind"}]).strip(),
    "unknown version 2": text([sound("c")[0] | {"v": 2}]).strip(),
    "its epoch or number is out of range": text([sound("c")[0] | {"seq": 0}]).strip(),
}


def test_bad_lines_are_quarantined_and_the_others_kept(spark: SparkSession, tmp_path: Path) -> None:
    from pipeline import jobs

    file = tmp_path / "journal" / "0000000005-000000000001.jsonl"
    file.parent.mkdir()
    wrong_type = text([sound("c")[0] | {"seq": "one"}]).strip()
    lines = [*BAD.values(), wrong_type, *text([*sound("c"), sound("c")[0] | {"of_later": 1}]).splitlines()]
    file.write_text("\n".join(lines) + "\n")
    summary = jobs.ingest(spark, [str(file)], str(tmp_path / "bronze"))
    assert (summary["rows"], summary["quarantined"]) == (len(sound("c")) + 1, len(BAD) + 1)
    found = spark.read.parquet(f"{tmp_path}/bronze/quarantine").collect()
    assert {row.why: row.value for row in found if row.value != wrong_type} == BAD
    assert {Path(row.file).name for row in found} == {file.name}
    assert not jobs.audit(spark, str(tmp_path / "bronze"), strict=True)["clean"]


def test_the_fields_are_those_of_the_rows() -> None:
    pytest.importorskip("pyspark")
    from pipeline.schema import EVENT

    assert tuple(EVENT.names) == Row.__struct_fields__


def test_the_log_is_as_the_journal_writes_it() -> None:
    """Each line of the sound log is a row, and sound for the judge without Spark, too."""
    decoded = [msgspec.json.decode(line, type=Row) for line in text(sound("c")).splitlines()]
    assert list(judge(decoded)) == []


def test_each_mutation_changes_the_log() -> None:
    log: list[Line] = sound("c")
    assert all(mutation(sound("c")) != log for mutation in MUTATED.values())
