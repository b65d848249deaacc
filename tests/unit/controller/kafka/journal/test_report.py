"""Reports of decisions: the counts of applied changes, and one sentence for the log."""

from __future__ import annotations

import pytest

from controller.kafka.journal.report import BROKERS_SHOWN, UNCLEAN_SHOWN, Report, isr_sentences
from state_machines.decisions.alter_partition import ISR_CHANGED
from state_machines.model.decision import Change, Refusal
from state_machines.model.types import NO_LEADER, PartitionRow, TopicPartition
from tests.kit.model import EPOCH, P, make_cluster


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
