"""Deletes the znodes of topics: fenced multis of conditional deletes, children before parents, the marker last.

Paths below a topic are derived from its partitions, because listing every znode would cost a request for each. A topic
that turns out to have others is listed. The last multi of a topic takes its znode, its configuration and its marker
together, so no crash leaves one of them behind. Kafka's controller deletes node by node (``deleteTopicZNode``).
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable, Iterator, Sequence
from functools import partial
from typing import Final, NamedTuple

from metadata_store import paths
from metadata_store.errors import Code, MultiFailed
from metadata_store.fencing.bounds import Emit, Job, in_flight
from metadata_store.fencing.companion import Companion
from metadata_store.fencing.fenced import WRITES_MAX, Batch, Write, attempt, batches, submit
from metadata_store.fencing.outcome import Fence, MultiOutcome
from metadata_store.port import IN_FLIGHT_MAX, Create, Delete, Node, Op, ZooKeeper

ROUNDS_MAX: Final = 6
"""How often the rest is read and tried again: with fewer writes in a multi each time, singly in the fourth."""

UNITS_MAX: Final = 4_000
"""Units whose znodes are deleted before those of the next ones are read: some 40 ms of the loop."""

DeletionOutcome = MultiOutcome[str, str]
"""By name: ``applied`` are gone, ``conflicts`` are other incarnations by now, ``refused`` are left with the reason."""


MarkingOutcome = MultiOutcome[str, str]
"""By name: ``applied`` got a marker now, ``refused`` could not get one; all others had one."""


class TopicToDelete(NamedTuple):
    """One incarnation of a topic, and the partitions that it is known to have."""

    name: str
    czxid: int
    partitions: Sequence[int]


class _Unit(NamedTuple):
    """Znodes of a topic that go in one multi, in this order."""

    name: str
    paths: list[str]


class _Failed(NamedTuple):
    """A multi that was not applied: the topics in it, and the one whose operation failed, where one did."""

    names: list[str]
    culprit: str | None
    code: Code


async def delete_topics(zk: ZooKeeper, topics_to_delete: Sequence[TopicToDelete], fence: Fence) -> DeletionOutcome:
    """Deletes all znodes of topics, their configurations and markers; a znode that is gone counts as deleted.

    Raises ``Fenced`` and ``NotConnected``; a repeated call goes on where the last one ended.
    """
    return await _Deletion(zk, fence).run(topics_to_delete)


class _Deletion:
    def __init__(self, zk: ZooKeeper, fence: Fence) -> None:
        self._zk = zk
        self._fence = fence
        self._outcome: DeletionOutcome = MultiOutcome()
        self._odd: dict[str, Code] = {}
        """Topics that are not as expected, with the last reason: they are listed."""

    async def run(self, topics_to_delete: Sequence[TopicToDelete]) -> DeletionOutcome:
        """Deletes round after round, until no znode is left that can go."""
        left = list(topics_to_delete)
        for round_ in range(ROUNDS_MAX):
            await self._zk.sync("/")
            left = await self._same(left)
            writes_max = max(1, WRITES_MAX >> 3 * round_)
            failed = await self._delete(_some(self._below(left)), writes_max)
            empty = [topic.name for topic in left if topic.name not in failed]
            failed |= await self._delete(_some(_each(map(_last, empty))), writes_max)
            self._outcome.applied += [name for name in empty if name not in failed]
            refused = {name for name, _ in self._outcome.refused}
            left = [topic for topic in left if topic.name in failed and topic.name not in refused]
            if not left:
                return self._outcome
        self._outcome.refused += [(topic.name, self._odd.get(topic.name, Code.BAD_VERSION)) for topic in left]
        return self._outcome

    async def _same(self, topics: Sequence[TopicToDelete]) -> list[TopicToDelete]:
        """Returns the topics that are still the incarnation to be deleted, or whose znode is gone."""
        same: list[TopicToDelete] = []
        found = await self._zk.read_many([paths.topic(topic.name) for topic in topics])
        for topic, node in zip(topics, found, strict=True):
            if isinstance(node, Node) and node.stat.czxid != topic.czxid:
                self._outcome.conflicts.append(topic.name)
            elif isinstance(node, Node) or node is Code.NO_NODE:
                same.append(topic)
            else:
                self._outcome.refused.append((topic.name, node))
        return same

    # -- existing znodes

    async def _below(self, topics: Sequence[TopicToDelete]) -> AsyncIterator[_Unit]:
        """Yields the znodes below topics."""
        for topic in topics:
            for unit in await self._listed(topic.name) if topic.name in self._odd else _expected(topic):
                yield unit

    async def _listed(self, name: str) -> list[_Unit]:
        """Lists each child of ``.../partitions`` with its subtree, and all other znodes of the topic."""
        units: list[_Unit] = []
        for parent, but in ((paths.partitions(name), ""), (paths.topic(name), "partitions")):
            units += [_Unit(name, await self._tree(f"{parent}/{c}")) for c in await self._children(parent) if c != but]
        return units

    async def _tree(self, path: str) -> list[str]:
        """Lists a znode and its subtree, children first."""
        below = [await self._tree(f"{path}/{child}") for child in await self._children(path)]
        return [*(found for tree in below for found in tree), path]

    async def _children(self, path: str) -> list[str]:
        listed = await self._zk.children(path)
        return sorted(listed[0]) if listed is not None else []

    # -- deleting

    async def _delete(self, lists: AsyncIterator[list[_Unit]], writes_max: int) -> set[str]:
        """Deletes the existing znodes, one list after the other; returns the topics of which some are left."""
        too_big: list[tuple[str, Code]] = []
        failed: set[str] = set()
        async for units in lists:
            jobs = self._jobs(await self._writes(units), too_big, writes_max)
            async for names, culprit, code in in_flight(jobs, IN_FLIGHT_MAX):
                failed.update(names)
                if culprit is not None:
                    self._odd[culprit] = code
        final = {name: code for name, code in self._odd.items() if name in failed and code is Code.NO_AUTH}
        self._outcome.refused += (final | dict(too_big)).items()
        return failed | dict(too_big).keys()

    async def _writes(self, units: Sequence[_Unit]) -> list[Write[str, None]]:
        """Yields conditional deletes of those znodes that exist."""
        wanted = [path for unit in units for path in unit.paths]
        found = iter(await self._zk.read_decoded(wanted, lambda _data, version: version))
        writes: list[Write[str, None]] = []
        for name, members in units:
            versions = [(path, next(found)) for path in members]
            ops: list[Op] = [Delete(path, version) for path, version in versions if not isinstance(version, Code)]
            if ops:
                writes.append((name, None, ops))
        return writes

    def _jobs(
        self, writes: Sequence[Write[str, None]], too_big: list[tuple[str, Code]], writes_max: int
    ) -> Iterator[Job[_Failed]]:
        for batch in batches(writes, too_big, self._zk.request_bytes_max, writes_max):
            yield partial(self._submit, batch)

    async def _submit(self, batch: Batch[None, str], emit: Emit[_Failed]) -> None:
        """Submits a batch and emits only failures.

        After an unknown outcome the next round reads the result, once connected.
        """
        found = await attempt(self._zk, self._fence, batch)
        if isinstance(found, MultiFailed):
            emit(_Failed(batch.keys, batch.keys[batch.owners[found.index - 1]], found.code))
        elif found.unknown:
            emit(_Failed(batch.keys, None, Code.CONNECTION_LOSS))
        elif found.refused:
            emit(_Failed(batch.keys, *found.refused[0]))


def _expected(topic: TopicToDelete) -> Iterator[_Unit]:
    name = topic.name
    return (_Unit(name, [paths.state(name, p), paths.partition(name, p)]) for p in topic.partitions)


async def _each(units: Iterable[_Unit]) -> AsyncIterator[_Unit]:
    for unit in units:
        yield unit


async def _some(units: AsyncIterator[_Unit]) -> AsyncIterator[list[_Unit]]:
    """Yields the units in lists, so that neither the reads nor the deletes of a large topic take a long turn."""
    some: list[_Unit] = []
    async for unit in units:
        some.append(unit)
        if len(some) == UNITS_MAX:
            yield some
            some = []
    if some:
        yield some


def _last(name: str) -> _Unit:
    """Returns the paths that go together, once the partitions are empty: a crash leaves all of them or none."""
    return _Unit(name, [paths.partitions(name), paths.topic(name), paths.topic_config(name), paths.deletion(name)])


async def mark_topics(
    zk: ZooKeeper, names: Sequence[str], fence: Fence, companion: Companion | None = None
) -> MarkingOutcome:
    """Creates markers, as DeleteTopics does; one that is there is fine. ``companion`` goes with the first of them."""
    total: MarkingOutcome = MultiOutcome()
    left: Sequence[str] = names
    code = Code.OK
    companions = dict.fromkeys(names, companion) if companion is not None else None
    for round_ in range(ROUNDS_MAX):
        found = await zk.read_many([paths.deletion(name) for name in left])
        writes = [
            (name, None, [Create(paths.deletion(name), None)])
            for name, node in zip(left, found, strict=True)
            if node is Code.NO_NODE
        ]
        left = []
        for batch in batches(writes, [], zk.request_bytes_max, max(1, WRITES_MAX >> 3 * round_), companions):
            if (failed := await submit(zk, fence, batch.ops, batch.companions)) is not None:
                left, code = [*left, *batch.keys], failed.code
                for waiting in batch.companions:
                    waiting.in_multi = False
            else:
                total.applied += batch.keys
        if not left:
            return total
        await zk.sync("/")
    total.refused += [(name, code) for name in left]
    return total
