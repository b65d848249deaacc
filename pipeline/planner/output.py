"""Makes moves of a plan, and writes them as files of ``regent reassign apply`` or of Kafka's tool, in parts."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any, Final

from pipeline.planner.goals import WORDS
from pipeline.planner.parting import Parts
from pipeline.planner.planning import Planned
from state_machines.planning.kafka_json import encode_kafka
from state_machines.planning.plan import Move, Plan, Summary
from state_machines.planning.plan_file import encode_plan

GOAL_WORDS: Final = "balance all brokers"


class ExplainedMove(Move, frozen=True, gc=False):
    """A move with the goal that it serves in words; readers that do not know the field pass over it."""

    reason: str = ""


def moves_of(found: Planned) -> list[ExplainedMove]:
    """Returns the moves in the order of ``found.rows``, without bytes where no size is known."""
    problem, rows = found.problem, found.rows
    ids = problem.brokers.ids
    before, after = problem.replicas[rows], found.best.replicas[rows]
    added = ((after[:, :, None] != before[:, None, :]).all(axis=2) & (after >= 0)).sum(axis=1)
    known = found.sizes_known
    sizes = (added * problem.size[rows]).round().astype(int).tolist() if known else [None] * len(rows)
    lengths = (before >= 0).sum(axis=1).tolist()
    origins, targets = ids[before].tolist(), ids[after].tolist()
    reasons = [WORDS[found.reason(row)] for row in rows]
    topics, numbers = problem.topic[rows].tolist(), problem.partition[rows].tolist()
    return [
        ExplainedMove(problem.topics[t], n, tuple(origin[:k]), tuple(target[:k]), size, why)
        for t, n, origin, target, k, size, why in zip(
            topics, numbers, origins, targets, lengths, sizes, reasons, strict=True
        )
    ]


def moves_by_part(cut: Parts) -> list[list[ExplainedMove]]:
    """Returns the moves of each part, in their order."""
    moves = moves_of(cut.found)
    return [moves[begin:end] for begin, end in pairwise((0, *cut.ends))]


def write_plan(out: Path, cluster_id: str, parts: Sequence[Sequence[Move]]) -> list[Path]:
    """Writes files for ``regent reassign apply``: ``out`` itself, or with several parts ``out`` with their numbers."""
    nothing = Summary(0, 0, (), 0, 0)
    files = []
    for at, part in enumerate(parts, start=1):
        words = GOAL_WORDS if len(parts) == 1 else f"{GOAL_WORDS}, part {at} of {len(parts)}"
        data = encode_plan(Plan(cluster_id, words, tuple(part), (), nothing))
        files.append((out if len(parts) == 1 else _numbered(out, at, len(parts)), data))
    return _written(files)


def write_kafka(out: Path, parts: Sequence[Sequence[Move]]) -> list[Path]:
    """Writes files for Kafka's tool, and for each a file with ``rollback`` in its name that restores its partitions."""
    files = []
    for at, part in enumerate(parts, start=1):
        name = out if len(parts) == 1 else _numbered(out, at, len(parts))
        back = [Move(one.topic, one.partition, one.target, one.origin) for one in part]
        files += [
            (name, encode_kafka(part)),
            (name.with_name(f"{name.stem}.rollback{name.suffix}"), encode_kafka(back)),
        ]
    return _written(files)


def left_over(out: Path, files: Sequence[Path]) -> list[Path]:
    """Returns files beside ``files`` that have the names of further parts: an earlier plan may have had more."""
    named = re.compile(rf"{re.escape(out.stem)}-\d+(\.rollback)?{re.escape(out.suffix)}")
    return sorted(each for each in out.parent.iterdir() if named.fullmatch(each.name) and each not in files)


def _numbered(out: Path, at: int, count: int) -> Path:
    return out.with_name(f"{out.stem}-{at:0{len(str(count))}d}{out.suffix}")


def _written(files: Sequence[tuple[Path, bytes]]) -> list[Path]:
    """Writes all files aside before it renames the first one; raises ``OSError``."""
    aside = [(path.with_name(f".{path.name}.{os.getpid()}"), path) for path, _ in files]
    try:
        for (temporary, _), (_, data) in zip(aside, files, strict=True):
            with temporary.open("wb") as file:
                file.write(data)
                file.flush()
                os.fsync(file.fileno())
        for temporary, path in aside:
            temporary.replace(path)
    finally:
        for temporary, _ in aside:
            temporary.unlink(missing_ok=True)
    return [path for _, path in aside]


def goal_rows(found: Planned) -> Iterator[dict[str, Any]]:
    """Yields each goal with its counts before and after, for people and programs."""
    for before, after in zip(found.before.counts, found.best.certificate.counts, strict=True):
        yield {
            "goal": before.words,
            "hard": before.hard,
            "broken": f"{before.broken} -> {after.broken}",
            "highest": f"{before.worst:.2f} -> {after.worst:.2f}" if before.worst or after.worst else "",
        }
