"""Makes moves of a plan, and writes them as files of ``regent reassign apply`` or of Kafka's tool, in parts."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any, Final, TypeAlias

from pipeline.planner.arrays import np
from pipeline.planner.disks import OnDisks
from pipeline.planner.goals import DISKS_EVEN, DISKS_FULL, WORDS
from pipeline.planner.parting import Parts
from pipeline.planner.planning import Planned
from state_machines.planning.json_files import ANY, encode_kafka, encode_plan
from state_machines.planning.plan import Move, Plan, Summary

GOAL_WORDS: Final = "balance all brokers"
LogDirs: TypeAlias = Mapping[tuple[str, int], tuple[Sequence[str], Sequence[str]]]


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


def write_kafka(out: Path, parts: Sequence[Sequence[Move]], log_dirs: LogDirs | None = None) -> list[Path]:
    """Writes files for Kafka's tool, and for each a file with ``rollback`` in its name that restores its partitions.

    ``log_dirs``: directories of replicas before and after, by topic and partition.
    """
    files = []
    for at, part in enumerate(parts, start=1):
        name = out if len(parts) == 1 else _numbered(out, at, len(parts))
        back = [Move(one.topic, one.partition, one.target, one.origin) for one in part]
        before, after = (
            zip(*(log_dirs[one.topic, one.partition] for one in part), strict=True) if log_dirs else (None,) * 2
        )
        files += [
            (name, encode_kafka(part, after)),
            (name.with_name(f"{name.stem}.rollback{name.suffix}"), encode_kafka(back, before)),
        ]
    return _written(files)


def moves_within(found: Planned, placed: OnDisks) -> list[ExplainedMove]:
    """Returns partitions that change nothing but log directories, as moves that end where they begin."""
    problem, ids = found.problem, found.problem.brokers.ids
    moves = []
    for row in np.setdiff1d(placed.rows, found.rows).tolist():
        replicas = tuple(int(ids[at]) for at in problem.replicas[row] if at >= 0)
        topic, number = problem.topics[problem.topic[row]], int(problem.partition[row])
        moves.append(ExplainedMove(topic, number, replicas, replicas, 0, DISKS_EVEN))
    return moves


def log_dirs_of(found: Planned, placed: OnDisks) -> LogDirs:
    """Returns the log directories of all partitions that change, before and after; of replicas that stay, none."""
    problem = found.problem
    sides = ((problem.replicas, placed.disks.at), (found.best.replicas, placed.at))
    named = {}
    for row in np.union1d(placed.rows, found.rows).tolist():
        before, after = (
            {at: disk for at, disk in zip(replicas[row].tolist(), disks[row].tolist(), strict=True) if at >= 0}
            for replicas, disks in sides
        )
        partition = problem.topics[problem.topic[row]], int(problem.partition[row])
        named[partition] = (_paths(placed, before, after), _paths(placed, after, before))
    return named


def _paths(placed: OnDisks, here: Mapping[int, int], there: Mapping[int, int]) -> tuple[str, ...]:
    """Returns the directories of replicas, by broker; "any" where the other side has the same one, or none is known."""
    paths = placed.disks.paths
    return tuple(ANY if disk < 0 or there.get(broker) == disk else paths[disk] for broker, disk in here.items())


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


def goal_rows(found: Planned, placed: OnDisks | None = None) -> Iterator[dict[str, Any]]:
    """Yields each goal with its counts before and after, for people and programs."""
    for before, after in zip(found.before.counts, found.best.certificate.counts, strict=True):
        yield {
            "goal": before.words,
            "hard": before.hard,
            "broken": f"{before.broken} -> {after.broken}",
            "highest": f"{before.worst:.2f} -> {after.worst:.2f}" if before.worst or after.worst else "",
        }
    if placed is not None:
        one, other = placed.before, placed.after
        highest = f"{one.highest:.2f} -> {other.highest:.2f}"
        full = f"{len(one.full)} -> {len(other.full)}"
        yield {"goal": DISKS_FULL, "hard": True, "broken": full, "highest": highest}
        yield {"goal": DISKS_EVEN, "hard": False, "broken": f"{one.uneven} -> {other.uneven}", "highest": ""}
