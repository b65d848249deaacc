"""Reads what a report takes from files beside the journal: snapshots of the daemon, and loads of partitions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from msgspec import Struct

from pipeline.inputs import NONE, BadInput, Loads, Snapshot
from pipeline.loads_file import read_loads
from pipeline.report.asking import Beside
from pipeline.report.merging import Known
from pipeline.report.replication import MinIsr
from pipeline.report.terms import NONE as UNKNOWN
from pipeline.snapshot_file import SNAPSHOTS_MAX, read_snapshot, snapshots_of
from state_machines.planning.json_files import UnusableFile, decode_plan
from state_machines.planning.plan import Move


class Files(Struct, frozen=True):
    """What is beside the journal. ``snapshot``: the latest one, with its ``loads``.

    ``min_isr``: by topic, from each snapshot on. ``session_ms``: time-outs of brokers, as the latest snapshot with one
    has them. ``sizes``: bytes of a replica, by topic and number. ``planned``: the moves of a plan's files.
    """

    snapshot: Snapshot | None = None
    loads: Loads | None = None
    min_isr: MinIsr = {}
    session_ms: Mapping[int, int] = {}
    sizes: Mapping[tuple[str, int], int] = {}
    planned: Sequence[Move] = ()

    def beside(self) -> Beside:
        """Returns the settings that the snapshots have."""
        return Beside(self.min_isr, self.session_ms)

    def known(self) -> Known:
        """Returns how many partitions topics have, and the sizes."""
        counts: dict[str, int] = {}
        if self.snapshot is not None:
            for topic in self.snapshot.partitions.topic.tolist():
                name = self.snapshot.partitions.topics[topic]
                counts[name] = counts.get(name, 0) + 1
        return Known(counts, self.sizes, self.planned, self.snapshot, self.loads)


def read_files(snapshots: Sequence[Path], loads: Path | None) -> Files:
    """Reads snapshots, each a file or a folder of them, and loads, which are of the latest. Raises :class:`BadInput`.

    Of each but the latest one only its settings are kept.
    """
    if not (paths := _listed(snapshots)):
        return Files()
    latest: Snapshot | None = None
    settings: list[tuple[int, dict[str, int], dict[int, int]]] = []
    for path in paths:
        found = read_snapshot(path)
        if latest is not None and found.cluster != latest.cluster:
            raise BadInput(f"{path} is of cluster {found.cluster}, another one of {latest.cluster}: give those of one")
        settings.append((found.ts_us, least_of(found), _sessions(found)))
        latest = found if latest is None or found.ts_us >= latest.ts_us else latest
    assert latest is not None
    settings.sort(key=lambda one: one[0])
    session_ms = {broker: session for _, _, sessions in settings for broker, session in sessions.items()}
    files = Files(latest, None, steps_of([(ts_us, least) for ts_us, least, _ in settings]), session_ms)
    return files if loads is None else _with_loads(files, latest, loads)


def read_plans(paths: Sequence[Path], cluster: str) -> list[Move]:
    """Reads the moves of a plan's file, or of its parts, which are of the cluster. Raises :class:`BadInput`."""
    moves: dict[str, Move] = {}
    for path in paths:
        try:
            saved = decode_plan(path.read_bytes())
        except OSError as error:
            raise BadInput(f"{path} cannot be read: {error.strerror or error}") from None
        except UnusableFile as error:
            raise BadInput(f"{path}: {error}") from None
        if saved.cluster_id != cluster:
            raise BadInput(f"{path} is a plan for cluster {saved.cluster_id}, the journal is of {cluster}")
        if twice := next((move.name for move in saved.moves if move.name in moves), None):
            raise BadInput(f"{path} moves {twice}, as another file does: give the parts of one plan")
        moves |= {move.name: move for move in saved.moves}
    return list(moves.values())


def least_of(of: Snapshot) -> dict[str, int]:
    """Returns ``min.insync.replicas`` of the topics of a snapshot, unknown where it does not have it."""
    table = of.partitions
    pairs = zip(table.topic.tolist(), table.min_isr.tolist(), strict=True)
    return {table.topics[topic]: UNKNOWN if least == NONE else least for topic, least in pairs}


def steps_of(settings: Sequence[tuple[int, Mapping[str, int]]]) -> dict[str, list[tuple[int, int]]]:
    """Returns the steps of each topic's setting: a setting counts from its snapshot on, until another one differs."""
    steps: dict[str, list[tuple[int, int]]] = {}
    for ts_us, settings_then in settings:
        for topic, least in settings_then.items():
            before = steps.setdefault(topic, [])
            if not before or before[-1][1] != least:
                before.append((ts_us, least))
    return steps


def _listed(snapshots: Sequence[Path]) -> list[Path]:
    """Returns the files, of folders those of snapshots in the order of their names."""
    paths = [path for given in snapshots for path in snapshots_of(given)]
    if len(paths) > SNAPSHOTS_MAX:
        raise BadInput(f"{len(paths)} snapshots are more than {SNAPSHOTS_MAX}: name fewer")
    return paths


def _sessions(of: Snapshot) -> dict[int, int]:
    pairs = zip(of.brokers.ids.tolist(), of.brokers.session_ms.tolist(), strict=True)
    return {broker: session for broker, session in pairs if session != NONE}


def _with_loads(files: Files, of: Snapshot, path: Path) -> Files:
    loads = read_loads(of.partitions, path)
    table = of.partitions
    known = zip(table.topic.tolist(), table.partition.tolist(), loads.size_bytes.tolist(), strict=True)
    sizes = {(table.topics[topic], number): size for topic, number, size in known if size >= 0}
    return Files(files.snapshot, loads, files.min_isr, files.session_ms, sizes)
