"""Reads the loads of a cluster without a daemon, and writes them to a file that is whole or not there."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final

import msgspec

from brokers.client import BrokerCallFailed, ClusterMetadata
from brokers.loads import BrokerLoads, Hosted, Name, ReplicaLoad, hosted_by, read_loads
from brokers.queries import Dial, dial_for
from cli.drafts import Draft
from cli.exit_codes import Exit, Failure
from cli.offline import role_at
from configs.settings import Settings
from metadata_store.reads import read_brokers, topic_names
from state_machines.model.types import Broker

NAMED_MAX: Final = 20
"""Partitions that a sentence and a document name; the others are counted."""
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
        with Draft(into) as draft:
            write = draft.writer(FIELDS)
            rows = 0

            def take(broker: int, found: BrokerLoads) -> None:
                nonlocal rows
                rows += len(found.rows)
                for row in found.rows:
                    write(msgspec.structs.astuple(row))
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
