"""Makes tables of a journal's lines as the report reads them from a bronze folder, without Spark."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Self

import pyarrow as pa

from pipeline.layout import ORDER
from pipeline.report.asking import Beside, Wanted, plans, question
from pipeline.report.bucket import Found, Question, answered
from pipeline.report.merging import Known, merged
from pipeline.report.result import Result
from pipeline.report.told import told
from pipeline.schema import COLUMNS

Line = dict[str, Any]
NO_GAPS: Sequence[Line] = ()
PLAIN = Wanted()
ALONE = Beside()
NOTHING = Known({}, {})


WALL_S = 1_700_000_000
"""Wall clock at second 0 of the monotonic clock of a journal that has no other one."""


class Term:
    """Writes the rows of a term at seconds of its monotonic clock; ``wall_s`` is what the wall clock has at its 0."""

    def __init__(self, epoch: int = 1, daemon: int = 1, wall_s: float = WALL_S) -> None:
        self.lines: list[Line] = []
        self._head = {"v": 1, "cluster": "c", "ctl_id": daemon, "ctl_epoch": epoch}
        self._wall_s = wall_s

    def add(self, at_s: float, kind: str, **fields: Any) -> Self:
        times = {"ts_us": us(self._wall_s + at_s), "mono_us": us(at_s)}
        self.lines.append(self._head | {"seq": len(self.lines) + 1, "kind": kind} | times | fields)
        return self

    def begin(self, at_s: float, *brokers: int, epochs: int = 100) -> Self:
        """Wins the role, and lists brokers with their incarnations."""
        self.add(at_s, "CTL_ELECTED")
        for broker in brokers:
            self.add(at_s, "BROKER_UP", broker=broker, broker_epoch=epochs + broker)
        return self.add(at_s, "CTL_PHASE")

    def leader(
        self, at_s: float, before: int | None, after: int, reason: str, kind: str = "LEADER", **fields: Any
    ) -> Self:
        """Elects a leader; 10 ms from the detection to the decision, 10 ms to the commit."""
        times = {"t_detect": us(at_s), "t_decide": us(at_s + 0.01), "t_committed": us(at_s + 0.02)}
        own = {"topic": "orders", "partition": 0, "from_state": "ONLINE", "to_state": "ONLINE", "replicas": [1, 2, 3]}
        isrs = {"isr0": None if before is None else [1, 2, 3], "isr1": [1, 2, 3]}
        leaders = {"leader0": before, "leader1": after, "reason": reason}
        return self.add(at_s + 0.02, kind, **(own | isrs | leaders | times | fields))

    def told(
        self,
        sent_s: float,
        done_s: float | None,
        broker: int,
        api: str = "LEADER_AND_ISR",
        count: int = 1,
        err: str | None = None,
    ) -> Self:
        """Sends a request, which the broker acknowledges, or refuses with ``err``."""
        done = None if done_s is None else us(done_s)
        times = {"t_sent": us(sent_s), "t_acknowledged": done}
        return self.add(done_s or sent_s, "RPC_BATCH", broker=broker, api=api, partitions=count, err=err, **times)


def us(seconds: float) -> int:
    return round(seconds * 1e6)


def table(lines: Iterable[Line]) -> pa.Table:
    """Makes a table in the order of a bucket."""
    rows = [{name: line.get(name) for name in COLUMNS.names} for line in lines]
    keys = [
        [("", -1)[name not in ("cluster", "topic")] if row[name] is None else row[name] for name in ORDER]
        for row in rows
    ]
    ordered = [row for _, row in sorted(zip(keys, rows, strict=True), key=lambda pair: pair[0])]
    return pa.Table.from_pylist(ordered, COLUMNS)


def parted(lines: Iterable[Line]) -> tuple[pa.Table, pa.Table]:
    """Returns the rows of topics and all other rows."""
    every = list(lines)
    return table(line for line in every if line.get("topic")), table(line for line in every if not line.get("topic"))


def asked(
    lines: Iterable[Line], wanted: Wanted = PLAIN, beside: Beside = ALONE, gaps: Sequence[Line] = NO_GAPS
) -> tuple[Question, Found]:
    """Makes the question and answers it, all partitions in one bucket."""
    topics, rest = parted(lines)
    made = question(rest, [told(rest)], gaps, wanted, beside)
    return made, answered(topics, made)


def reported(
    lines: Iterable[Line],
    wanted: Wanted = PLAIN,
    beside: Beside = ALONE,
    known: Known = NOTHING,
    gaps: Sequence[Line] = NO_GAPS,
) -> Result:
    """Makes the whole result."""
    every = list(lines)
    made, found = asked(every, wanted, beside, gaps)
    return merged("c", [found], made, wanted, known, plans(parted(every)[1], made.terms), [])
