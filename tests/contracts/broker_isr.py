"""Checks a leader's ISR changes with the same scripts for simulated brokers and for a real one.

The followers of the broker never fetch. So it requests an ISR of itself alone for every partition that it leads.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Protocol

from brokers.wire.calls import AlterPartitionCall, IsrProposal
from brokers.wire.errors import Error
from brokers.wire.replies import AlterPartitionReply, PartitionReply
from tests.contracts.broker_support import Director

FURTHER_REQUESTS = 3
"""Further requests for another partition after which a missing request will not come."""

Judge = Callable[[IsrProposal], PartitionReply]


class Leaders(Protocol):
    """The director's subject, whose leaders send their requests to the controller.

    ``judge`` decides each partition's response; ``not_controller`` is the number of calls with the response 41 before
    that.
    """

    judge: Judge
    not_controller: int
    calls: list[AlterPartitionCall]

    @property
    def epoch(self) -> int:
        """Returns the broker epoch."""

    async def until(self, check: Callable[[], bool]) -> None:
        """Lets the leaders send requests until ``check`` holds."""


def reply(leaders: Leaders, call: AlterPartitionCall) -> AlterPartitionReply:
    """Notes a call and returns the controller's response."""
    leaders.calls.append(call)
    if leaders.not_controller:
        leaders.not_controller -= 1
        return AlterPartitionReply(Error.NOT_CONTROLLER)
    return AlterPartitionReply(0, [leaders.judge(proposal) for proposal in call.proposals])


def granted(proposal: IsrProposal, epoch: int | None = None) -> PartitionReply:
    """Grants a proposal; ``epoch`` is the partition epoch, by default one more than before."""
    version = proposal.partition_epoch + 1 if epoch is None else epoch
    return PartitionReply(proposal.topic, proposal.partition, 0, 1, proposal.leader_epoch, proposal.isr, version)


def refused(proposal: IsrProposal, error: int) -> PartitionReply:
    return PartitionReply(proposal.topic, proposal.partition, error)


class IsrContract:
    """Checks AlterPartition. A subclass needs the fixtures ``director`` and ``leaders``."""

    async def test_a_leader_requests_its_isr_with_its_epochs_until_it_is_granted(
        self, director: Director, leaders: Leaders
    ) -> None:
        leaders.judge = lambda proposal: granted(proposal) if proposal.partition == 0 else refused(proposal, 55)
        await director.update()
        assert (await director.lead({0: 4, 1: 5}, partition_epoch=6)).top == 0
        await leaders.until(lambda: requested(leaders)[1] > FURTHER_REQUESTS and requested(leaders)[0] > 0)
        assert requested(leaders)[0] == 1, "granted"
        first = {proposal.partition: proposal for call in reversed(leaders.calls) for proposal in call.proposals}
        topic = director.topic_id
        assert first[0] == IsrProposal(topic, 0, 4, (1,), 6, recovering=False)
        assert first[1] == IsrProposal(topic, 1, 5, (1,), 6, recovering=False), "rolled back, and requested again"
        assert {(call.version, call.broker_id, call.broker_epoch) for call in leaders.calls} == {(3, 1, leaders.epoch)}

    async def test_a_leader_has_the_partition_epoch_of_the_grant(self, director: Director, leaders: Leaders) -> None:
        leaders.judge = lambda proposal: granted(proposal, 9)
        await director.update()
        await director.lead(4, partition_epoch=6)
        await leaders.until(lambda: requested(leaders)[0] == 1)

        for _ in range(2):
            assert (await director.lead(5, partition_epoch=8)).each == {0: 0}, (
                "no effect: the leader has partition epoch 9"
            )
        assert (await director.lead(5, partition_epoch=9)).each == {0: 0}
        assert (await director.lead(5, partition_epoch=9)).each == {0: 11}

    async def test_after_most_errors_a_leader_waits_for_its_next_leader_epoch(
        self, director: Director, leaders: Leaders
    ) -> None:
        errors = {0: 3, 1: 42, 2: 74, 3: 95, 4: 100, 5: 107, 6: 55}
        leaders.judge = lambda proposal: refused(proposal, errors[proposal.partition])
        await director.update()
        await director.lead(dict.fromkeys(errors, 0))
        await leaders.until(lambda: min(requested(leaders)[5], requested(leaders)[6]) > FURTHER_REQUESTS)
        assert {partition: requested(leaders)[partition] for partition in range(5)} == dict.fromkeys(range(5), 1)
        assert (await director.lead(dict.fromkeys(range(5), 1))).each == dict.fromkeys(range(5), 0)
        await leaders.until(lambda: all(requested(leaders)[partition] == 2 for partition in range(5)))

    async def test_a_leader_repeats_its_request_after_other_errors_and_not_controller(
        self, director: Director, leaders: Leaders
    ) -> None:
        leaders.not_controller = 2
        failures = iter([7, -1])

        def judge(proposal: IsrProposal) -> PartitionReply:
            error = next(failures, None)
            return granted(proposal) if error is None else refused(proposal, error)

        leaders.judge = judge
        await director.update()
        await director.lead(0)
        await leaders.until(lambda: requested(leaders)[0] == 5)
        assert len({call.proposals for call in leaders.calls}) == 1, "the leader sent the same request five times"

    async def test_a_grant_with_an_older_partition_epoch_changes_nothing(
        self, director: Director, leaders: Leaders
    ) -> None:
        leaders.judge = lambda p: granted(p, p.partition_epoch - 1) if p.partition == 0 else refused(p, 107)
        await director.update()
        await director.lead({0: 0, 1: 0}, partition_epoch=6)
        await leaders.until(lambda: requested(leaders)[1] > FURTHER_REQUESTS and requested(leaders)[0] > 0)
        assert requested(leaders)[0] == 1
        assert (await director.lead({0: 1}, partition_epoch=6)).each == {0: 0}
        await leaders.until(lambda: requested(leaders)[0] == 2)


def requested(leaders: Leaders) -> Counter[int]:
    """Counts the requests for each partition."""
    return Counter(proposal.partition for call in leaders.calls for proposal in call.proposals)
