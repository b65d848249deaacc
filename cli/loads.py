"""Reads the loads of a cluster without a daemon, and writes them to a file that is whole or not there."""

from __future__ import annotations

import csv
import os
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import IO, Final, Self

import msgspec

from brokers.client import BrokerCallFailed, ClusterMetadata
from brokers.loads import BrokerLoads, Hosted, Name, ReplicaLoad, hosted_by, read_loads
from brokers.queries import Dial, dial_for
from cli.exit_codes import Exit, Failure
from cli.offline import role_at
from configs.settings import Settings
from metadata_store.reads import read_brokers, topic_names
from state_machines.model.types import Broker

NAMED_MAX: Final = 20
"""Partitions that a sentence and a document name; the others are counted."""
MODE: Final = 0o640
JSON_LINES: Final = (".jsonl", ".json")
FIELDS: Final = ReplicaLoad.__struct_fields__


class Lacking(msgspec.Struct, rename="camel"):
    """Partitions of which a broker's replica is not in the file. ``named``: some of them."""

    broker: int
    why: str
    partitions: int
    named: Sequence[str]


class Result(msgspec.Struct, rename="camel"):
    """The end of a reading. ``silent``: registered brokers that did not respond."""

    file: str
    rows: int
    brokers: int
    silent: Sequence[int]
    lacking: Sequence[Lacking]


async def write_loads(settings: Settings, into: Path, *, partial: bool = False) -> Result:
    """Writes the loads of all brokers; raises :class:`Failure` where there is no file then.

    Where a registered broker does not respond the file is another one, :func:`partial_of`, unless ``partial`` is set.
    """
    async with role_at(settings) as role:
        brokers = (await read_brokers(role.zk)).brokers
        topics = await topic_names(role.zk)
    dial = dial_for(settings)
    hosted = hosted_by(await _metadata(dial, brokers, topics))
    lacking: list[Lacking] = []
    try:
        with _Draft(into) as draft:
            write = draft.writer()
            rows = 0

            def take(broker: int, found: BrokerLoads) -> None:
                nonlocal rows
                rows += len(found.rows)
                for row in found.rows:
                    write(row)
                lacking.extend(_lacking(broker, found))

            failed = await read_loads(dial, brokers, hosted, take)
            _refuse_nothing(hosted, brokers, failed)
            written = draft.complete(into if partial or not failed else partial_of(into))
    except OSError as error:
        remedy = "give --into a file in a folder that this user may write to, and free space"
        raise Failure(Exit.FAILED, f"{into} cannot be written: {error.strerror or error}", remedy) from error
    whys = dict.fromkeys(hosted.keys() - brokers.keys(), "it is not registered")
    whys |= {broker: str(why) for broker, why in failed.items()}
    lacking += [_lack(broker, why, hosted[broker].replicas) for broker, why in whys.items()]
    order = sorted(lacking, key=lambda one: (one.broker, one.why))
    return Result(str(written), rows, len(brokers) - len(failed), sorted(failed), order)


def partial_of(into: Path) -> Path:
    """Returns the name of a file that lacks brokers; it ends as the whole one, so that its form is known."""
    return into.with_name(f"{into.stem}.partial{into.suffix}")


def _refuse_nothing(
    hosted: Mapping[int, Hosted], brokers: Mapping[int, Broker], failed: Mapping[int, BrokerCallFailed]
) -> None:
    """Raises :class:`Failure` where there are replicas, and none of their brokers responded."""
    queried = hosted.keys() & brokers.keys()
    if queried and failed.keys() >= queried:
        raise _no_broker(failed)
    if hosted and not queried:
        raise Failure(Exit.UNREACHABLE, "no broker that has replicas is registered", "start the brokers")


async def _metadata(dial: Dial, brokers: Mapping[int, Broker], topics: Sequence[str]) -> ClusterMetadata:
    """Returns the metadata of the first broker that responds."""
    failed: dict[int, BrokerCallFailed] = {}
    for broker in brokers.values():
        try:
            async with dial(broker) as queries:
                return await queries.metadata(topics)
        except BrokerCallFailed as error:
            failed[broker.id] = error
    if failed:
        raise _no_broker(failed)
    raise Failure(Exit.FAILED, "no broker is registered", "start the brokers, and check zookeeper.connect")


def _no_broker(failed: Mapping[int, BrokerCallFailed]) -> Failure:
    broker, error = min(failed.items())
    return Failure(Exit.UNREACHABLE, f"no broker responds; broker {broker}: {error}", "see 'regent preflight'")


def _lacking(broker: int, found: BrokerLoads) -> Iterator[Lacking]:
    if found.missing:
        yield _lack(broker, "it has no log, or its log directory is offline", found.missing)
    for error in sorted(set(found.refused.values())):
        names = [name for name, why in found.refused.items() if why == error]
        yield _lack(broker, f"their offsets are not known ({error})", names)


def _lack(broker: int, why: str, names: Sequence[Name]) -> Lacking:
    return Lacking(broker, why, len(names), [f"{topic}-{number}" for topic, number in names[:NAMED_MAX]])


class _Write:
    """Appends a row to a CSV with a header, or to JSON lines."""

    def __init__(self, file: IO[str], *, json: bool) -> None:
        self._file = file
        self._csv = csv.writer(file, lineterminator="\n")
        self._json = json
        if not json:
            self._csv.writerow(FIELDS)

    def __call__(self, row: ReplicaLoad) -> None:
        if self._json:
            self._file.write(msgspec.json.encode(row).decode() + "\n")
            return
        values = msgspec.structs.astuple(row)
        self._csv.writerow([str(each).lower() if isinstance(each, bool) else each for each in values])


class _Draft:
    """A file aside, which takes its name once it is whole and on the disk; nobody can plant a link in its place."""

    def __init__(self, into: Path) -> None:
        handle, name = tempfile.mkstemp(".tmp", f".{into.name}-", into.parent)
        self._path = Path(name)
        self._json = into.suffix in JSON_LINES
        self._file = os.fdopen(handle, "w", encoding="utf-8", newline="")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, _: type[BaseException] | None, __: BaseException | None, ___: TracebackType | None) -> None:
        with suppress(OSError):
            self._file.close()
        with suppress(FileNotFoundError):
            self._path.unlink()

    def writer(self) -> _Write:
        """Returns what writes rows, after the header where there is one."""
        return _Write(self._file, json=self._json)

    def complete(self, into: Path) -> Path:
        """Gives the file its name; returns that."""
        self._file.flush()
        os.fchmod(self._file.fileno(), MODE)
        os.fsync(self._file.fileno())
        self._file.close()
        return self._path.replace(into)
