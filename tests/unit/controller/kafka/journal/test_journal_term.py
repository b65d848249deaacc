"""Rows of a term's journal: reasons, states without a write, writes of others, and times."""

from __future__ import annotations

from controller.kafka.journal.term_journal import KafkaJournal
from metadata_store import paths
from metadata_store.errors import Code, ZkError
from state_machines.journal.events import OBSERVED, Kind, Row
from tests.kit.controller_world import World, world
from tests.kit.virtual_time import in_virtual_time


async def running(w: World) -> None:
    await w.topic("t", (1, 2, 3), (2, 3, 1), leaders=True)
    await w.begin_term()
    await w.propagated()


def partitions(w: World) -> list[Row]:
    return [row for row in w.book.read() if row.partition is not None]


def test_without_a_sink_no_row_is_kept() -> None:
    journal = KafkaJournal()
    journal.event(Kind.CTL_ELECTED)
    assert not journal.kept


@in_virtual_time
async def test_an_isr_that_its_leader_wrote_has_the_leader_as_its_reason() -> None:
    """Brokers with an old protocol write ISRs themselves, and notify the controller afterwards."""
    async with world() as w:
        await running(w)
        await w.leader_writes("t", 0, (1, 3), notify=True)
        await w.settle()
        [row] = partitions(w)
        assert (row.kind, row.reason, row.isr0, row.isr1) == (Kind.ISR, "isr_by_leader", [1, 2, 3], [1, 3])
        assert row.t_committed is None, "the daemon did not write it"


@in_virtual_time
async def test_an_isr_that_a_leader_requested_has_times_and_epochs() -> None:
    async with world() as w:
        await running(w)
        await w.alter_partition(1, w.proposal("t", 0, isr=(1, 2)))
        [row] = partitions(w)
        assert (row.kind, row.reason, row.steps) == (Kind.ISR, "isr_by_leader", None)
        assert (row.leader_epoch0, row.pepoch1) == (row.leader_epoch1, (row.pepoch0 or 0) + 1)
        assert (row.t_detect or 0) <= (row.t_decide or 0) <= (row.t_committed or 0)


@in_virtual_time
async def test_a_refused_write_leaves_a_state_that_is_recorded() -> None:
    """The partition is Offline under a dead leader, although no state znode says so."""
    async with world() as w:
        await running(w)

        def refuse() -> None:
            raise ZkError(Code.TOO_BIG, paths.state("t", 0))

        w.active.script.at("t/partitions/0/state", refuse)
        w.die(1)
        await w.propagated()
        [row] = [row for row in partitions(w) if row.partition == 0]
        found = row.kind, row.reason, row.from_state, row.to_state
        assert found == (Kind.PARTITION_STATE, OBSERVED, "ONLINE", "OFFLINE")
        assert row.pepoch0 == row.pepoch1


@in_virtual_time
async def test_a_write_with_a_lost_reply_is_recorded_once_as_observed() -> None:
    async with world() as w:
        await running(w)
        w.server.lose_replies(w.active.zk.session_id)
        w.die(1)
        await w.propagated()
        rows = partitions(w)
        assert [(row.partition, row.leader1, row.reason) for row in rows] == [(0, 2, OBSERVED), (1, 2, OBSERVED)]


@in_virtual_time
async def test_stopped_replicas_have_rows() -> None:
    async with world() as w:
        await running(w)
        await w.controlled_shutdown(2)
        stopped = [row for row in partitions(w) if row.kind == Kind.REPLICA_STATE]
        assert [(row.partition, row.broker, row.from_state, row.to_state) for row in stopped] == [
            (0, 2, "ONLINE", "OFFLINE")
        ]
        begin, end = (row for row in w.book.read() if row.kind.startswith("BROKER_SHUTDOWN"))
        assert (begin.kind, end.kind) == (Kind.BROKER_SHUTDOWN_BEGIN, Kind.BROKER_SHUTDOWN_END)
        assert begin.broker == end.broker == 2
