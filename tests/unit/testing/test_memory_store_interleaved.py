"""Each operation of the store, with a fault or another client's write before each of its requests in turn."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Mapping
from contextlib import AsyncExitStack, suppress
from functools import partial
from typing import Any, NamedTuple

import pytest

from metadata_store import paths
from metadata_store.codecs.base import MalformedNode
from metadata_store.codecs.cluster import (
    Config,
    FeatureRange,
    Features,
    ProducerIdBlock,
    encode_config,
    encode_features,
)
from metadata_store.commits.topic_commit import create_topics
from metadata_store.commits.topic_deletion import TopicToDelete, delete_topics, mark_topics
from metadata_store.errors import Code, NotConnected, OutcomeUnknown, ZkError
from metadata_store.fencing.fenced import confirm
from metadata_store.fencing.outcome import Fenced, MultiOutcome
from metadata_store.nodes.cluster_nodes import (
    allocate_producer_ids,
    delete_as_read,
    delete_children,
    delete_features,
    delete_fresh_topic,
    set_up_features,
)
from metadata_store.nodes.delegation_tokens import delete_tokens, read_tokens
from metadata_store.nodes.entity_configs import ConfigChange, commit_entities
from metadata_store.nodes.reassignment_node import Request, encode_reassignments, write_reassignments
from metadata_store.port import ANY_VERSION, Node
from state_machines.admin_rules.create_topics import NewTopic
from state_machines.model.decision import Change, TopicChange
from state_machines.model.types import TopicPartition
from testing.znodes import create_topic, read_topic
from tests.contracts.kafka_support import ASSIGNMENT, ContractWorld, created, elected, kafka, merged
from tests.contracts.memory import MemoryBackend
from tests.contracts.support import Session, session
from tests.kit.deadlines import in_exact_time

FOREIGN = b"{ another client wrote this"
TOKEN = b'{"version":3,"expiryTimestamp":1,"maxTimestamp":2}'
BOTH = {TopicPartition("a", 0): (1, 2), TopicPartition("b", 0): (2, 3)}
REQUESTS_MAX = 100

Run = Callable[[], Awaitable[Any]]


async def elections(k: ContractWorld, changes: list[Change]) -> Any:
    outcomes, error = await k.commit(changes, writes_max=4)
    if error is not None and not isinstance(error, NotConnected):
        raise error
    return merged(outcomes)


async def electing(k: ContractWorld) -> Run:
    await k.make_topics(8)
    return lambda: elections(k, [elected(row) for row in range(8)])


async def starting(k: ContractWorld) -> Run:
    await k.make_topics(8, parents=False, states=False)
    return lambda: elections(k, [created(row) for row in range(8)])


async def rewriting(k: ContractWorld) -> Run:
    for name in "ab":
        await create_topic(k.zk, name, {0: [1, 2]})
    found = [await read_topic(k.zk, name) for name in "ab"]
    changes = [TopicChange(topic.name, 0, topic.czxid, {1: ASSIGNMENT}, None, "added") for topic in found]
    return lambda: k.store.commit_topics(changes, k.fence, writes_max=1)


async def creating(k: ContractWorld) -> Run:
    await k.zk.create(paths.topic_config("b"), encode_config({}))
    topics = [(NewTopic(name, None, {0: ASSIGNMENT}, {"x": "y"}), 0 if name == "b" else None) for name in "abc"]
    return lambda: create_topics(k.zk, topics, k.fence, writes_max=3)


async def deleting(k: ContractWorld) -> Run:
    await k.make_topics(8)
    every = {name: await k.s.node(paths.topic(name)) for name in ("t0", "t1")}
    going = [TopicToDelete(name, node.stat.czxid, range(k.per_topic)) for name, node in every.items()]
    return lambda: delete_topics(k.zk, going, k.fence)


async def marking(k: ContractWorld) -> Run:
    return lambda: mark_topics(k.zk, ["a", "b"], k.fence)


async def enabling(k: ContractWorld) -> Run:
    await k.zk.create(paths.FEATURE, encode_features(Features(1, False)))
    return lambda: set_up_features(k.zk, 2, True, k.fence)


async def disabling(k: ContractWorld) -> Run:
    await k.zk.create(paths.FEATURE, encode_features(Features(2, True, {"f": FeatureRange(3)})))
    return lambda: delete_features(k.zk, ["f"], k.fence)


async def allocating(k: ContractWorld) -> Run:
    return lambda: allocate_producer_ids(k.zk, 1, k.fence)


async def clearing(k: ContractWorld) -> Run:
    made = [(await k.zk.create(f"{paths.ISR_CHANGES}/{n}", b"")).path for n in range(3)]
    return lambda: delete_children(k.zk, made, k.fence)


async def settling(k: ContractWorld) -> Run:
    await k.zk.create(paths.PREFERRED_ELECTION, b"")
    return lambda: delete_as_read(k.zk, paths.PREFERRED_ELECTION, 0, k.fence)


async def withdrawing(k: ContractWorld) -> Run:
    await create_topic(k.zk, "a", {0: [1]})
    return lambda: delete_fresh_topic(k.zk, "a", 0, k.fence)


async def shrinking(k: ContractWorld) -> Run:
    await k.zk.create(paths.REASSIGN_PARTITIONS, encode_reassignments(BOTH))
    left = Request(dict(list(BOTH.items())[:1]), {}, 0)
    return lambda: write_reassignments(k.zk, left, k.fence)


async def confirming(k: ContractWorld) -> Run:
    return lambda: confirm(k.zk, k.fence)


async def ending(k: ContractWorld) -> Run:
    for path in ("/delegation_token", paths.DELEGATION_TOKENS, "/delegation_token/token_changes"):
        if await k.zk.exists(path) is None:
            await k.zk.create(path, None)
    for name in "ab":
        await k.zk.create(paths.delegation_token(name), TOKEN)
    tokens = [token for token in await read_tokens(k.zk, ["a", "b"]) if not isinstance(token, MalformedNode)]
    return lambda: delete_tokens(k.zk, tokens, k.fence, ops_max=2)


async def configuring(k: ContractWorld) -> Run:
    await k.zk.create(paths.config("topics", "a"), encode_config({}))
    changes = [ConfigChange(name, Config({"x": "y"}), 0 if name == "a" else None) for name in "ab"]
    return lambda: commit_entities(k.zk, "topics", changes, k.fence)


class Operation(NamedTuple):
    """How it is prepared, the znode that another client writes, and the znode of each entity of its outcome."""

    prepare: Callable[[ContractWorld], Awaitable[Run]]
    contested: str
    entities: Mapping[object, str] = {}


def states(rows: Collection[int]) -> dict[object, str]:
    return {row: paths.state(f"t{row // 4}", row % 4) for row in rows}


OPERATIONS = {
    "elections": Operation(electing, paths.state("t0", 1), states(range(8))),
    "creations of states": Operation(starting, paths.state("t0", 1), states(range(8))),
    "rewrites of topics": Operation(rewriting, paths.topic("b"), {name: paths.topic(name) for name in "ab"}),
    "creations of topics": Operation(creating, paths.topic("b"), {name: paths.topic(name) for name in "abc"}),
    "deletions of topics": Operation(deleting, paths.state("t0", 1)),
    "markers": Operation(marking, paths.deletion("b")),
    "features": Operation(enabling, paths.FEATURE),
    "deletions of features": Operation(disabling, paths.FEATURE),
    "producer ids": Operation(allocating, paths.PRODUCER_IDS),
    "notifications": Operation(clearing, f"{paths.ISR_CHANGES}/1"),
    "a request": Operation(settling, paths.PREFERRED_ELECTION),
    "a fresh topic": Operation(withdrawing, paths.topic("a")),
    "reassignments": Operation(shrinking, paths.REASSIGN_PARTITIONS),
    "a confirmation": Operation(confirming, paths.CONTROLLER_EPOCH),
    "tokens": Operation(ending, paths.delegation_token("b"), {name: paths.delegation_token(name) for name in "ab"}),
    "configurations": Operation(
        configuring, paths.config("topics", "a"), {name: paths.config("topics", name) for name in "ab"}
    ),
}
WITH_OUTCOMES = [name for name, operation in OPERATIONS.items() if operation.entities]
DELETED_THOUGH_CHANGED = ("deletions of topics", "notifications")


class Attempt(NamedTuple):
    """One run of an operation: before which request something happened, its result or error, and the znodes."""

    number: int
    result: Any
    before: dict[str, Node]
    at_act: dict[str, Node]
    after: dict[str, Node]


Act = Callable[[MemoryBackend, ContractWorld, Session], object]


async def attempts(operation: Operation, act: Act, *, lags: bool = False) -> AsyncIterator[Attempt]:
    """Runs an operation anew, with ``act`` before its first request, its second, and so on to its last."""
    for number in range(REQUESTS_MAX):
        backend = MemoryBackend(lags)
        async with AsyncExitStack() as stack:
            k = await stack.enter_async_context(kafka(backend, per_topic=4))
            other = await stack.enter_async_context(session(backend))
            run = await operation.prepare(k)
            before, at_act = backend.server.tree.every(), dict[str, Node]()
            happening = happens(partial(act, backend, k, other), number, backend, at_act)
            backend.server.between(k.zk.session_id, happening)
            try:
                result = await run()
            except (Fenced, NotConnected, OutcomeUnknown, ZkError) as error:
                result = error
            if not at_act:
                assert number, "the operation sent nothing"
                return
            yield Attempt(number, result, before, at_act, backend.server.tree.every())
    pytest.fail("the operation does not end")


def happens(
    act: Callable[[], object], number: int, backend: MemoryBackend, at_act: dict[str, Node]
) -> Callable[[int], Awaitable[None]]:
    """Returns a call before each request, which acts before one and notes the znodes after that."""

    async def between(request: int) -> None:
        if request == number:
            acted = act()
            if isinstance(acted, Awaitable):
                await acted
            at_act.update(backend.server.tree.every())

    return between


def data(nodes: dict[str, Node]) -> dict[str, tuple[bytes | None, int]]:
    return {path: (node.data, node.stat.czxid) for path, node in nodes.items()}


@pytest.mark.kafka("KafkaZkClientTest.testDeleteRecursiveWithControllerEpochVersionCheck")
@pytest.mark.seed("S4-86", "S4-78")
@pytest.mark.parametrize("lags", [False, True])
@pytest.mark.parametrize("name", OPERATIONS)
@in_exact_time
async def test_nothing_is_written_once_another_controller_was_elected(name: str, lags: bool) -> None:
    def elect(_: MemoryBackend, __: ContractWorld, other: Session) -> object:
        return other.zk.set(paths.CONTROLLER_EPOCH, b"2", ANY_VERSION)

    async for attempt in attempts(OPERATIONS[name], elect, lags=lags):
        assert data(attempt.after) == data(attempt.at_act)
        assert attempt.number or isinstance(attempt.result, Fenced)


@pytest.mark.parametrize("lags", [False, True])
@pytest.mark.parametrize("name", OPERATIONS)
@in_exact_time
async def test_what_another_client_writes_meanwhile_is_never_overwritten(name: str, lags: bool) -> None:
    operation, wrote = OPERATIONS[name], list[bool]()

    async def write(_: MemoryBackend, __: ContractWorld, other: Session) -> None:
        wrote.clear()
        try:
            await other.zk.set(operation.contested, FOREIGN, ANY_VERSION)
        except ZkError:
            try:
                await other.zk.create(operation.contested, FOREIGN)
            except ZkError:
                return
        wrote.append(True)

    async for attempt in attempts(operation, write, lags=lags):
        if wrote and name in DELETED_THOUGH_CHANGED:
            assert operation.contested not in attempt.after or attempt.after == attempt.at_act
        elif wrote:
            assert attempt.after[operation.contested].data == FOREIGN


@pytest.mark.parametrize("deletes", [False, True])
@pytest.mark.parametrize(
    ("name", "parent"), [("deletions of topics", paths.TOPICS), ("notifications", paths.ISR_CHANGES)]
)
@in_exact_time
async def test_a_deletion_leaves_nothing_though_another_client_changes_or_deletes_a_znode_meanwhile(
    name: str, parent: str, deletes: bool
) -> None:
    operation = OPERATIONS[name]

    async def write(_: MemoryBackend, __: ContractWorld, other: Session) -> None:
        with suppress(ZkError):
            if deletes:
                await other.zk.delete(operation.contested, ANY_VERSION)
            else:
                await other.zk.set(operation.contested, FOREIGN, ANY_VERSION)

    async for attempt in attempts(operation, write):
        assert not isinstance(attempt.result, Exception)
        assert [path for path in attempt.after if path.startswith(f"{parent}/")] == []


def lose_connection(backend: MemoryBackend, k: ContractWorld, _: Session) -> None:
    backend.suspend(k.zk)


def lose_reply(backend: MemoryBackend, k: ContractWorld, _: Session) -> None:
    backend.lose_reply(k.zk)


def lose_request(backend: MemoryBackend, k: ContractWorld, _: Session) -> None:
    backend.server.lose_requests(k.zk.session_id)


def reply_with_timeout(backend: MemoryBackend, k: ContractWorld, _: Session) -> None:
    backend.reply_with(k.zk, Code.OPERATION_TIMEOUT)


def carry_out_and_reply_with_timeout(backend: MemoryBackend, k: ContractWorld, _: Session) -> None:
    backend.server.reply_with(k.zk.session_id, Code.OPERATION_TIMEOUT, carried_out=True)


def key_of(change: Any) -> object:
    if isinstance(change, Change):
        return change.entity
    if isinstance(change, TopicChange):
        return change.topic
    return change.name if isinstance(change, (NewTopic, ConfigChange)) else change.id


@pytest.mark.parametrize(
    "fault", [lose_connection, lose_reply, lose_request, reply_with_timeout, carry_out_and_reply_with_timeout]
)
@pytest.mark.parametrize("name", WITH_OUTCOMES)
@in_exact_time
async def test_an_outcome_says_of_each_entity_what_became_of_it(name: str, fault: Act) -> None:
    """A change is in one list at most: applied ones are written, unknown ones perhaps, and the others are not."""
    operation = OPERATIONS[name]
    async for _, result, before, _, after in attempts(operation, fault):
        if not isinstance(result, MultiOutcome):
            assert isinstance(result, NotConnected), "a read before the first write"
            assert data(after) == data(before)
            continue
        applied = [key_of(change) for change in result.applied]
        listed = [*applied, *result.conflicts, *result.gone, *(key for key, _ in result.refused), *result.unknown]
        assert len(listed) == len(set(listed))
        if "states" not in name and name != "elections":  # those leave out what was not sent
            assert set(listed) == set(operation.entities)
        for key, path in operation.entities.items():
            if key not in result.unknown:
                assert (after.get(path) != before.get(path)) == (key in applied)


@in_exact_time
async def test_two_allocations_never_share_a_producer_id() -> None:
    blocks: list[Any] = []

    async def allocate(_: MemoryBackend, k: ContractWorld, other: Session) -> None:
        blocks[:] = [await allocate_producer_ids(other.zk, 2, k.fence)]

    async for attempt in attempts(OPERATIONS["producer ids"], allocate):
        assert isinstance(attempt.result, ProducerIdBlock)
        assert {attempt.result.start, blocks[0].start} == {0, 1_000}
