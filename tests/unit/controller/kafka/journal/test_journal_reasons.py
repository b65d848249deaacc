"""Rows of a term's journal and reports of its decisions: reasons, states without a write, writes of others."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import pytest

from controller.kafka.journal.report import BROKERS_SHOWN, UNCLEAN_SHOWN, Reason, Report, isr_sentences
from controller.kafka.journal.term_journal import KafkaJournal
from controller.kafka.procedures.drain import NAME, encode_drain
from metadata_store import paths
from metadata_store.errors import Code, ZkError
from state_machines.decisions.alter_partition import ISR_CHANGED
from state_machines.decisions.drain import Drain
from state_machines.decisions.leader_election import ElectionType
from state_machines.journal.events import OBSERVED, Kind, Row
from state_machines.model.decision import Change, Refusal
from state_machines.model.types import NO_LEADER, PartitionRow, TopicPartition
from state_machines.procedures.record import Caller
from tests.kit.deadlines import in_virtual_time
from tests.kit.kafka.model import EPOCH, P, make_cluster
from tests.kit.kafka.reassignments import alter
from tests.kit.kafka.world import KafkaWorld, in_world, world


async def a_leader_dies(w: KafkaWorld) -> None:
    w.die(1)


async def the_only_replica_returns(w: KafkaWorld) -> None:
    w.die(3)
    await w.propagated()
    await w.boot(3)


async def a_broker_shuts_down(w: KafkaWorld) -> None:
    await w.controlled_shutdown(1)


async def a_topic_appears(w: KafkaWorld) -> None:
    await w.topic("new", (1,))


async def a_leader_shrinks_its_isr(w: KafkaWorld) -> None:
    await w.alter_partition(1, w.proposal("t", 0, isr=(1, 2)))


async def a_term_begins_without_a_leader(w: KafkaWorld) -> None:
    await w.active.crash()
    w.die(1)
    await w.begin_term()


async def a_partition_with_a_history_appears(w: KafkaWorld) -> None:
    row = w.term.cluster.find("t", 0)
    assert row is not None
    w.term.controller.take_up([row])


async def a_replica_is_added(w: KafkaWorld) -> None:
    assert await alter(w, {("alone", 0): (3, 2)}) == {}


async def a_preferred_leader_is_elected(w: KafkaWorld) -> None:
    assert await w.elect(ElectionType.PREFERRED, ("other", 0)) == {("other", 0): 0}


async def an_unclean_election_is_allowed(w: KafkaWorld) -> None:
    w.die(2)
    await w.propagated()
    await w.configure("topics", "behind", unclean_leader_election_enable="true")


async def a_log_directory_fails(w: KafkaWorld) -> None:
    w.wires.lost[1] = {("t", 0)}
    await w.log_directory_fails(1)


async def a_topic_is_deleted(w: KafkaWorld) -> None:
    await w.delete_topics("alone")


async def a_broker_is_drained(w: KafkaWorld) -> None:
    await w.term.procedures.engine.submit(NAME, encode_drain(Drain((1,))), Caller())


EVENTS: dict[Reason, Callable[[KafkaWorld], Awaitable[None]]] = {
    Reason.BROKER_FAILURE: a_leader_dies,
    Reason.BROKER_RETURN: the_only_replica_returns,
    Reason.CONTROLLED_SHUTDOWN: a_broker_shuts_down,
    Reason.NEW_TOPIC: a_topic_appears,
    Reason.ISR_BY_LEADER: a_leader_shrinks_its_isr,
    Reason.FAILOVER: a_term_begins_without_a_leader,
    Reason.TAKEN_UP: a_partition_with_a_history_appears,
    Reason.REASSIGNMENT: a_replica_is_added,
    Reason.ELECTION: a_preferred_leader_is_elected,
    Reason.UNCLEAN_ALLOWED: an_unclean_election_is_allowed,
    Reason.LOG_DIRECTORY: a_log_directory_fails,
    Reason.DELETION: a_topic_is_deleted,
    Reason.DRAIN: a_broker_is_drained,
}


@pytest.mark.parametrize("reason", Reason)
@in_world(1, 2, 3)
async def test_a_row_has_the_reason_of_its_event(w: KafkaWorld, reason: Reason) -> None:
    await w.topic("t", (1, 2, 3), leaders=True)
    await w.topic("alone", (3,), leaders=True)
    await w.topic("other", (1, 2), leaders=True, led_by=2)
    await w.topic("behind", (2, 3), leaders=True, isr=(2,))
    await w.serve()
    before = len(w.book.read())
    await EVENTS[reason](w)
    await w.propagated()
    assert reason.value in {row.reason for row in w.book.read()[before:]}


def test_rows_of_the_journal_keep_their_words() -> None:
    assert [reason.value for reason in Reason] == [
        *("broker_failure", "broker_return", "controlled_shutdown", "new_topic", "isr_by_leader", "failover"),
        *("taken_up", "reassignment", "election", "unclean_allowed", "log_directory", "deletion", "drain"),
    ]


async def running(w: KafkaWorld) -> None:
    await w.topic("t", (1, 2, 3), (2, 3, 1), leaders=True)
    await w.begin_term()
    await w.propagated()


def partitions(w: KafkaWorld) -> list[Row]:
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


def row(leader: int | None, *isr: int) -> PartitionRow:
    return make_cluster(P((1, 2, 3), leader=leader, isr=isr), brokers=(1, 2, 3)).rows[0]


def change(before: PartitionRow, after: PartitionRow, why: str = "a rule", i: int = 0) -> Change:
    return Change(i, before, after, why)


CLEAN = change(row(1, 1, 2), row(2, 2))
UNCLEAN = change(row(1, 1), row(2, 2))


@pytest.mark.parametrize(
    ("found", "moved", "unclean"),
    [
        (CLEAN, 1, 0),
        (UNCLEAN, 1, 1),
        (change(row(1, 1, 2), row(1, 1)), 0, 0),
        (change(row(1, 1), row(NO_LEADER, 1)), 0, 0),
        (change(row(NO_LEADER, 1), row(1, 1)), 1, 0),
        (change(row(NO_LEADER, 1), row(2, 2)), 1, 1),
        (change(row(None), row(1, 1, 2, 3)), 1, 0),
        (change(row(1, 2), row(1, 1, 2)), 0, 0),
    ],
    ids=["clean", "unclean", "same leader", "lost", "returned", "returned uncleanly", "first", "odd ISR"],
)
def test_an_applied_election_is_counted_as_clean_or_unclean(found: Change, moved: int, unclean: int) -> None:
    report = Report("a death")
    report.applied([found])
    assert (report.moved_leaders, report.unclean) == (moved, unclean)
    assert report.sentence() == "a death: 1 x a rule"


def test_isr_changes_are_counted_by_the_brokers_that_joined_and_left() -> None:
    report = Report("ISR changes")
    report.applied([change(row(1, 1, 2), row(1, 1, 3), ISR_CHANGED), change(row(1, 1, 2), row(1, 1), ISR_CHANGED)])
    assert (report.joined, report.left, report.moved_leaders) == ({3: 1}, {2: 2}, 0)
    assert report.sentence() == (
        "ISR changes: broker 2 left the ISR of 2 partitions; broker 3 joined the ISR of 1 partition"
    )


def test_a_sentence_names_the_brokers_with_most_partitions() -> None:
    counts = Report("").left
    counts.update({broker: 10 - broker for broker in range(BROKERS_SHOWN + 2)})
    found = isr_sentences(Report("").joined, counts)
    assert found[0] == "broker 0 left the ISR of 10 partitions"
    assert (len(found), found[-1]) == (BROKERS_SHOWN + 1, "2 more brokers left ISRs")


@pytest.mark.parametrize(("epoch", "unclean"), [(EPOCH - 1, 1), (EPOCH, 0)])
def test_an_unclean_election_with_a_lost_reply_counts_if_its_epoch_is_ours(epoch: int, unclean: int) -> None:
    report = Report("a death")
    report.read_back([UNCLEAN, CLEAN], epoch)
    assert report.unclean == unclean


@pytest.mark.parametrize("count", [1, UNCLEAN_SHOWN, UNCLEAN_SHOWN + 2])
def test_unclean_elections_are_named_up_to_a_bound(count: int) -> None:
    report = Report("a death")
    report.applied(change(UNCLEAN.before, UNCLEAN.after, i=i) for i in range(count))
    found = report.unclean_sentence(lambda i: TopicPartition("t", i))
    assert found.count("t-") == min(count, UNCLEAN_SHOWN)
    assert (" and 2 more are led" in found) == (count > UNCLEAN_SHOWN)


def test_a_sentence_contains_refusals_failures_conflicts_and_lost_replies() -> None:
    report = Report("a death")
    assert report.sentence() == "a death: nothing to change"
    report.refuse([Refusal(0, "ONLINE", "no live replica")] * 2)
    report.failed["denied by an ACL"] = 3
    report.conflicts, report.unknown = 4, 5
    assert report.sentence() == (
        "a death: not done: 2 x no live replica; failed: 3 x denied by an ACL; 4 decided again after a conflict; "
        "5 read back after a lost reply"
    )
