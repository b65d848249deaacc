"""How writes are packed into fenced multis: full up to the bounds, never beyond, and judged by their owners."""

from __future__ import annotations

import asyncio
from itertools import pairwise, permutations
from random import Random

import pytest
from msgspec.structs import replace

from metadata_store import paths
from metadata_store.codecs.topic import encode_state
from metadata_store.errors import Code, MultiFailed, NotConnected
from metadata_store.fencing.bounds import Emit, Job, in_flight, write_bytes
from metadata_store.fencing.fenced import HEAD_BYTES, Batch, batches, judged
from metadata_store.fencing.outcome import Fenced, MultiOutcome
from metadata_store.port import WRITE_BYTES_MAX, Check, Kill, Op, SetData
from state_machines.model.decision import Change
from testing.memory import MemoryZooKeeper
from tests.contracts.kafka_support import elected, kafka, merged, rows_of
from tests.contracts.memory import MemoryBackend
from tests.contracts.support import NthWrite

BYTES_MAX = 4_000


def sized(size: int) -> tuple[Op, ...]:
    """Returns the write of an entity that takes ``size`` bytes."""
    op = SetData("/a", b"", 0)
    return (replace(op, data=b"x" * (size - write_bytes([op]))),)


@pytest.mark.parametrize(
    ("sizes", "writes_max", "counts"),
    [
        ([BYTES_MAX - HEAD_BYTES], 9, [1]),
        ([BYTES_MAX - HEAD_BYTES - 100, 100], 9, [2]),
        ([BYTES_MAX - HEAD_BYTES - 100, 101], 9, [1, 1]),
        ([BYTES_MAX * 2, 100], 9, [1, 1]),
        ([100, BYTES_MAX * 2, 100, 100], 9, [1, 1, 2]),
        ([100] * 6, 3, [3, 3]),
        ([100] * 7, 3, [3, 3, 1]),
        ([], 3, []),
    ],
)
def test_writes_fill_multis_up_to_the_bounds(sizes: list[int], writes_max: int, counts: list[int]) -> None:
    refused: list[tuple[int, Code]] = []
    writes = [(key, f"change {key}", sized(size)) for key, size in enumerate(sizes)]
    found = list(batches(writes, refused, BYTES_MAX, writes_max))
    assert [len(batch.ops) for batch in found] == counts
    assert [key for batch in found for key in batch.keys] == list(range(len(sizes)))
    assert refused == []


@pytest.mark.parametrize("over", [0, 1])
def test_a_write_that_zookeeper_would_hang_up_on_is_refused(over: int) -> None:
    refused: list[tuple[int, Code]] = []
    writes = [(0, "", sized(WRITE_BYTES_MAX - HEAD_BYTES + over)), (1, "", sized(100))]
    sent = [key for batch in batches(writes, refused, BYTES_MAX) for key in batch.keys]
    assert (sent, refused) == (([1], [(0, Code.TOO_BIG)]) if over else ([0, 1], []))


@pytest.mark.parametrize("seed", range(5))
def test_the_operations_of_an_entity_stay_together(seed: int) -> None:
    random = Random(seed)
    writes = [
        (key, str(key), tuple(op for _ in range(random.randint(1, 4)) for op in sized(random.randint(70, 900))))
        for key in range(200)
    ]
    found = list(batches(writes, [], BYTES_MAX, 10))
    for batch in found:
        owned = [(batch.keys[owner], op) for owner, op in zip(batch.owners, batch.ops, strict=True)]
        assert owned == [(key, op) for key, _, ops in writes if key in batch.keys for op in ops]
        assert write_bytes(batch.ops) + HEAD_BYTES <= BYTES_MAX
        assert len(batch.ops) <= 10
    for batch, following in pairwise(found):
        first = writes[following.keys[0]][2]
        full = write_bytes([*batch.ops, *first]) + HEAD_BYTES > BYTES_MAX
        assert full or len(batch.ops) + len(first) > 10


class Narrow(MemoryZooKeeper):
    """A session whose server hangs up at larger batches."""

    @property
    def request_bytes_max(self) -> int:
        """Returns the bytes of one batch."""
        return BYTES_MAX


class NarrowBackend(MemoryBackend):
    """Sessions with narrow batches."""

    def client(self, down: bool = False, **options: object) -> MemoryZooKeeper:
        """Returns a session."""
        return Narrow(self.server, **options)  # type: ignore[arg-type]


def with_isr(row: int, size: int) -> Change:
    change = elected(row)
    return replace(change, after=replace(change.after, isr=tuple(range(1_000, 1_000 + size))))


@pytest.mark.parametrize("seed", range(5))
async def test_elections_fill_multis_up_to_the_bytes_of_a_request(seed: int) -> None:
    random = Random(seed)
    changes = [with_isr(row, random.randint(1, 400)) for row in range(150)]
    async with kafka(NarrowBackend()) as k:
        await k.make_topics(150)
        hooks = k.zk.hooks = NthWrite(at=-1)
        outcomes, error = await k.commit(changes)
    assert error is None
    assert rows_of(merged(outcomes).applied) == list(range(150))
    rows = {k.path(row): row for row in range(150)}
    multis = [[op for op in ops if not isinstance(op, Check)] for ops in hooks.writes]
    multis.sort(key=lambda ops: rows[ops[0].path])
    for ops, following in pairwise(multis):
        assert write_bytes([*ops, following[0]]) + HEAD_BYTES > BYTES_MAX, "one more would have been too many"
    assert all(write_bytes(ops) + HEAD_BYTES <= BYTES_MAX for ops in multis)


@pytest.mark.parametrize("over", [0, 1])
async def test_a_multi_of_elections_holds_exactly_the_bytes_of_a_request(over: int) -> None:
    def cost(change: Change) -> int:
        after = change.after
        data = encode_state(after.leader, after.leader_epoch, after.isr, after.controller_epoch)
        return write_bytes([SetData(paths.state("t0", change.entity), data, 0)])

    first = with_isr(0, 300)
    left = BYTES_MAX - HEAD_BYTES - cost(first) + over
    sizes = [size for size in range(1, 800) if cost(with_isr(1, size)) <= left]
    second = with_isr(1, sizes[-1])
    # digits of the leader epoch fill up what an ISR cannot: its ids take five bytes each
    second = replace(second, after=replace(second.after, leader_epoch=10 ** (left - cost(second))))
    assert cost(second) == left
    async with kafka(NarrowBackend()) as k:
        await k.make_topics(2)
        hooks = k.zk.hooks = NthWrite(at=-1)
        await k.commit([first, second])
        assert hooks.count == 1 + over


BATCH = Batch(["a", "b", "c"], [1, 2, 3], list(sized(100)) * 5, [0, 0, 1, 2, 2])


@pytest.mark.parametrize(
    ("index", "code", "outcome"),
    [
        (1, Code.NO_NODE, MultiOutcome(gone=["a"], conflicts=["b", "c"])),
        (2, Code.NO_NODE, MultiOutcome(gone=["a"], conflicts=["b", "c"])),
        (3, Code.NO_NODE, MultiOutcome(gone=["b"], conflicts=["a", "c"])),
        (5, Code.NO_NODE, MultiOutcome(gone=["c"], conflicts=["a", "b"])),
        (3, Code.NO_AUTH, MultiOutcome(refused=[("b", Code.NO_AUTH)], conflicts=["a", "c"])),
        *((4, code, MultiOutcome(conflicts=["a", "b", "c"])) for code in (Code.BAD_VERSION, Code.NODE_EXISTS)),
        (4, Code.NOT_EMPTY, MultiOutcome(conflicts=["a", "b", "c"])),
    ],
)
def test_a_failure_is_judged_by_its_code_and_the_owner_of_its_operation(
    index: int, code: Code, outcome: MultiOutcome[int, str]
) -> None:
    codes = [Code.OK] * index + [code] + [Code.RUNTIME_INCONSISTENCY] * (5 - index)
    assert judged(BATCH, MultiFailed(index, codes, "/a")) == outcome


@pytest.mark.parametrize(
    "kinds", [*permutations((NotConnected, Fenced, Kill)), (NotConnected, Fenced), (Fenced, NotConnected)]
)
async def test_of_several_failed_jobs_a_kill_is_raised_before_fenced_and_that_before_the_others(
    kinds: tuple[type[BaseException], ...],
) -> None:
    begun: list[int] = []

    def job(number: int, kind: type[BaseException] | None) -> Job[int]:
        async def run(emit: Emit[int]) -> None:
            begun.append(number)
            await asyncio.sleep(0)
            emit(number)
            if kind is not None:
                raise kind(f"job {number}")

        return run

    jobs = [job(number, kind) for number, kind in enumerate((*kinds, None, None, None))]
    emitted: list[int] = []
    worst = next(kind for kind in (Kill, Fenced, NotConnected) if kind in kinds)

    async def collect() -> None:
        async for number in in_flight(jobs, len(kinds)):
            emitted.append(number)  # noqa: PERF401 - those before the error count

    with pytest.raises(worst):
        await collect()
    assert emitted == begun == list(range(len(kinds))), "all results come first, and no further job begins"
