"""Reads a snapshot of the daemon into arrays; a torn file is refused, never taken for a smaller cluster."""

from __future__ import annotations

import gzip
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from io import BufferedReader
from pathlib import Path
from typing import Any, Final, cast

import msgspec
import numpy as np

from pipeline.inputs import NONE, BadInput, Bools, Brokers, Int32s, Partitions, Snapshot, brokers_of, matrix
from state_machines.journal.snapshot import (
    FORMAT,
    VERSION,
    BrokerLine,
    Header,
    Line,
    PartitionsLine,
    Trailer,
)

_GZIP: Final = b"\x1f\x8b"
_DECODER: Final = msgspec.json.Decoder(Line)
_KINDS: Final = frozenset({"HEADER", "BROKER", "PARTITIONS", "TRAILER"})
ELSEWHERE: Final = "take another snapshot ('regent snapshot') or an older file"


def read_snapshot(path: Path | str) -> Snapshot:
    """Reads a snapshot of the daemon; raises :class:`BadInput` where it is torn, malformed or of another version.

    Partitions of topics that are queued for deletion are left out, and those of a topic that was created anew while
    the daemon read it: the later one counts.
    """
    file = Path(path)
    reading = _Reading(file)
    with _opened(file) as lines:
        for number, line in enumerate(lines, 1):
            reading.take(number, line)
    return reading.result()


def read_header(path: Path) -> Header:
    """Reads the first line of a snapshot; raises :class:`BadInput` as :func:`read_snapshot` does."""
    reading = _Reading(path)
    with _opened(path) as lines:
        reading.take(1, lines.readline())
    return reading.header


@contextmanager
def _opened(file: Path) -> Iterator[BufferedReader | gzip.GzipFile]:
    """Opens a file, zipped or not; makes :class:`BadInput` of its errors."""
    try:
        with file.open("rb") as peek:
            zipped = peek.read(2) == _GZIP
        with gzip.open(file, "rb") if zipped else file.open("rb") as lines:
            yield lines
    except (EOFError, zlib.error) as error:
        raise BadInput(f"{file} is torn ({error}): {ELSEWHERE}") from None
    except OSError as error:
        raise BadInput(f"{file} cannot be read: {error.strerror or error}") from None


class _Reading:
    """Collects the lines of one file and checks that they are whole."""

    def __init__(self, file: Path) -> None:
        self._file = file
        self._header: Header | None = None
        self._trailer: Trailer | None = None
        self._lines = 0
        self._brokers: list[BrokerLine] = []
        self._ids: dict[str, str | None] = {}
        self._topics: dict[str, _TopicLine] = {}
        self._counted = 0
        self._columns = _Columns()

    def take(self, number: int, line: bytes) -> None:
        """Takes one line; raises :class:`BadInput`."""
        where = f"{self._file}:{number}"
        if self._trailer is not None:
            raise BadInput(f"{where} follows the trailer, which ends a snapshot: {ELSEWHERE}")
        found = self._decoded(where, line)
        if number == 1:
            self._begin(where, found)
        elif isinstance(found, Header):
            raise BadInput(f"{where} is a second header: pass the files of several snapshots one by one")
        elif isinstance(found, BrokerLine):
            self._brokers.append(found)
        elif isinstance(found, PartitionsLine):
            self._partitions(where, found)
        if isinstance(found, Trailer):
            self._trailer = found
        else:
            self._lines += 1

    def _decoded(self, where: str, line: bytes) -> Line | None:
        try:
            return cast(Line, _DECODER.decode(line))
        except msgspec.ValidationError as error:
            kind = _kind_of(line)
            if kind is not None and kind not in _KINDS:
                return None
            raise BadInput(f"{where}: {error}: {ELSEWHERE}") from None
        except msgspec.DecodeError as error:
            raise BadInput(f"{where} is no JSON object ({error}): the file is torn, {ELSEWHERE}") from None

    def _begin(self, where: str, found: Line | None) -> None:
        if not isinstance(found, Header) or found.format != FORMAT:
            raise BadInput(f"{where}: format is not {FORMAT!r}: pass a file that 'regent snapshot' wrote")
        if found.v != VERSION:
            raise BadInput(f"{where}: v = {found.v} is not known, {VERSION} is: use a newer regent to read the file")
        self._header = found

    def _partitions(self, where: str, line: PartitionsLine) -> None:
        count = len(line.partition)
        for name in ("replicas", "leader", "leader_epoch", "partition_epoch", "isr", "adding", "removing"):
            column = getattr(line, name)
            if column is not None and len(column) != count:
                raise BadInput(f"{where}: {name} has {len(column)} items, partition has {count}: {ELSEWHERE}")
        self._counted += count
        if self._ids.setdefault(line.topic, line.topic_id) != line.topic_id:
            self._ids[line.topic] = line.topic_id
            self._topics.pop(line.topic, None)
            self._columns.drop(line.topic)
        if not line.deleting:
            self._topics.setdefault(line.topic, _TopicLine(line.topic_id, line.min_isr))
            self._columns.add(line)

    @property
    def header(self) -> Header:
        """Returns the first line, once it was taken."""
        assert self._header is not None
        return self._header

    def result(self) -> Snapshot:
        """Returns the whole snapshot; raises :class:`BadInput` where its end is missing."""
        header, trailer = self._header, self._trailer
        if header is None or trailer is None:
            raise BadInput(f"{self._file} is torn, it has no trailer after {self._lines} lines: {ELSEWHERE}")
        for field, told, seen in (
            ("lines", trailer.lines, self._lines),
            ("partitions", trailer.partitions, self._counted),
            ("brokers", trailer.brokers, len(self._brokers)),
        ):
            if told != seen:
                raise BadInput(f"{self._file} is torn, {field} = {told} in its trailer, {seen} in it: {ELSEWHERE}")
        try:
            partitions = self._columns.table(self._topics)
            brokers = _brokers(self._brokers, partitions)
        except OverflowError as error:
            raise BadInput(f"{self._file}: a number does not fit 32 bits ({error}): {ELSEWHERE}") from None
        return Snapshot(
            brokers,
            self._unique(partitions),
            header.cluster,
            header.ctl_epoch,
            header.seq,
            trailer.seq,
            header.ts_us,
        )

    def _unique(self, found: Partitions) -> Partitions:
        same = (found.topic[1:] == found.topic[:-1]) & (found.partition[1:] == found.partition[:-1])
        if same.any():
            name = found.name(int(np.flatnonzero(same)[0]))
            raise BadInput(f"{self._file} has partition {name} twice: {ELSEWHERE}")
        return found


class _Kind(msgspec.Struct, frozen=True):
    kind: str


class _TopicLine(msgspec.Struct, frozen=True):
    topic_id: str | None
    min_isr: int | None


class _Columns:
    """Concatenates the columns of lines."""

    def __init__(self) -> None:
        self._topics: list[tuple[str, int]] = []
        self._numbers: list[list[int]] = [[], [], [], []]
        self._replicas: list[Any] = []
        self._isr: list[Any] = []
        self._moving: list[tuple[int, Any, Any]] = []
        self._dropped: dict[str, int] = {}

    def add(self, line: PartitionsLine) -> None:
        """Takes the partitions of one line."""
        if line.adding is not None or line.removing is not None:
            nothing: list[list[int]] = [[]] * len(line.partition)
            moves = zip(line.adding or nothing, line.removing or nothing, strict=True)
            start = len(self._replicas)
            self._moving += [(i, more, less) for i, (more, less) in enumerate(moves, start) if more or less]
        self._topics.append((line.topic, len(line.partition)))
        columns = (line.partition, line.leader, line.leader_epoch, line.partition_epoch)
        for known, column in zip(self._numbers, columns, strict=True):
            known.extend(column)
        self._replicas.extend(line.replicas)
        self._isr.extend(line.isr)

    def drop(self, topic: str) -> None:
        """Leaves out what came of a topic so far."""
        self._dropped[topic] = len(self._topics)

    def table(self, topics: dict[str, _TopicLine]) -> Partitions:
        """Returns all of it, sorted by topic and number."""
        names = tuple(sorted(topics))
        index = {name: at for at, name in enumerate(names)}
        counts = [count for _, count in self._topics]
        of_lines: Int32s = np.array([index.get(name, NONE) for name, _ in self._topics], dtype=np.int32)
        of_kept: Bools = np.array(
            [at >= self._dropped.get(name, 0) for at, (name, _) in enumerate(self._topics)], dtype=np.bool_
        )
        topic: Int32s = np.repeat(of_lines, counts)
        partition, leader, leader_epoch, epoch = (np.array(each, dtype=np.int32) for each in self._numbers)
        replicas, isr = matrix(self._replicas), matrix(self._isr)
        adding: Bools = np.zeros(replicas.shape, np.bool_)
        removing: Bools = np.zeros(replicas.shape, np.bool_)
        for i, more, less in self._moving:
            adding[i], removing[i] = np.isin(replicas[i], more), np.isin(replicas[i], less)
        known = (topics[name].min_isr for name in names)
        least = np.array([NONE if value is None else value for value in known], dtype=np.int32)
        order = np.lexsort((partition, topic))
        order = order[np.repeat(of_kept, counts)[order]]
        return Partitions(
            names,
            tuple(topics[name].topic_id for name in names),
            topic[order],
            partition[order],
            replicas[order],
            adding[order],
            removing[order],
            leader[order],
            leader_epoch[order],
            epoch[order],
            isr[order],
            least[topic[order]] if names else np.zeros(0, np.int32),
        )


def _brokers(lines: list[BrokerLine], partitions: Partitions) -> Brokers:
    """Returns the table of brokers, with those that hold replicas and have no line as not live."""
    named = set(np.unique(partitions.replicas).tolist()) - {NONE}
    return brokers_of(
        named | {line.broker for line in lines},
        {line.broker: line.rack for line in lines},
        [line.broker for line in lines if line.live],
        {line.broker: line.broker_epoch for line in lines if line.broker_epoch is not None},
        {line.broker: line.session_ms for line in lines if line.session_ms is not None},
    )


def _kind_of(line: bytes) -> str | None:
    try:
        return msgspec.json.decode(line, type=_Kind).kind
    except msgspec.DecodeError:
        return None


SNAPSHOTS_MAX: Final = 1_000
"""Snapshots that one command reads."""
ENDINGS: Final = (".jsonl", ".jsonl.gz")


def snapshots_of(given: Path) -> list[Path]:
    """Returns the snapshots of a folder by name, or the file that is given; raises :class:`BadInput` for none."""
    if not given.is_dir():
        return [given]
    try:
        inside = sorted(path for path in given.iterdir() if path.name.endswith(ENDINGS) and path.is_file())
    except OSError as error:
        raise BadInput(f"{given} cannot be read: {error.strerror or error}") from None
    if not inside:
        raise BadInput(f"{given} has no snapshots (*.jsonl.gz): name the folder 'snapshots' of a daemon, or a file")
    if len(inside) > SNAPSHOTS_MAX:
        raise BadInput(f"{given} has {len(inside)} snapshots, more than {SNAPSHOTS_MAX}: name a file of it")
    return inside


def newest_of(given: Path) -> Path:
    """Returns the newest snapshot of a folder by the time in its header, or the file that is given.

    Raises :class:`BadInput` where the folder has none, has those of several clusters, or where a header is torn.
    """
    if len(paths := snapshots_of(given)) == 1:
        return paths[0]
    headers = [(read_header(path), path) for path in paths]
    first = headers[0][0].cluster
    if other := next((path for header, path in headers if header.cluster != first), None):
        raise BadInput(f"{other} is of another cluster than {paths[0]}: name one file")
    return max(headers, key=lambda one: (one[0].ts_us, one[1].name))[1]
