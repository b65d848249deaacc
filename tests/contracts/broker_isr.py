"""How a leader asks for its ISR and takes the answers: the same scripts for simulated brokers and for a real one.

The followers of the broker never fetch, so that it wants an ISR of itself alone for whatever it leads.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Protocol

from brokers.wire.calls import AlterPartitionCall, IsrProposal
from brokers.wire.errors import Error
from brokers.wire.replies import AlterPartitionReply, PartitionReply
from tests.contracts.broker_support import Director

ASKED_AGAIN = 3
"""After so many further requests for another partition, one that was not asked for will not be."""

Judge = Callable[[IsrProposal], PartitionReply]


class Asking(Protocol):
    """The director's subject as its leaders ask the controller.

    ``judge`` answers for each partition; ``not_controller`` is how many calls are answered with 41 before that.
    """

    judge: Judge
    not_controller: int
    calls: list[AlterPartitionCall]

    @property
    def epoch(self) -> int:
        """Broker epoch."""

    async def until(self, check: Callable[[], bool]) -> None:
        """Lets the leaders ask until ``check`` holds."""


def reply(asking: Asking, call: AlterPartitionCall) -> AlterPartitionReply:
    """The controller's answer to a call, which is noted."""
    asking.calls.append(call)
    if asking.not_controller:
        asking.not_controller -= 1
        return AlterPartitionReply(Error.NOT_CONTROLLER)
    return AlterPartitionReply(0, [asking.judge(proposal) for proposal in call.proposals])


def granted(proposal: IsrProposal, epoch: int | None = None) -> PartitionReply:
    """As asked; ``epoch`` is the partition epoch, by default one more than before."""
    version = proposal.partition_epoch + 1 if epoch is None else epoch
    return PartitionReply(proposal.topic, proposal.partition, 0, 1, proposal.leader_epoch, proposal.isr, version)


def refused(proposal: IsrProposal, error: int) -> PartitionReply:
    return PartitionReply(proposal.topic, proposal.partition, error)


class IsrContract:
    """AlterPartition. A subclass needs the fixtures ``director`` and ``asking``."""

    async def test_a_leader_asks_in_its_epochs_and_for_nothing_more_once_it_has_it(
        self, director: Director, asking: Asking
    ) -> None:
        asking.judge = lambda proposal: granted(proposal) if proposal.partition == 0 else refused(proposal, 55)
        await director.update()
        assert (await director.lead({0: 4, 1: 5}, partition_epoch=6)).top == 0
        await asking.until(lambda: asked(asking)[1] > ASKED_AGAIN and asked(asking)[0] > 0)
        assert asked(asking)[0] == 1, "granted"
        first = {proposal.partition: proposal for call in reversed(asking.calls) for proposal in call.proposals}
        topic = director.topic_id
        assert first[0] == IsrProposal(topic, 0, 4, (1,), 6, recovering=False)
        assert first[1] == IsrProposal(topic, 1, 5, (1,), 6, recovering=False), "rolled back, and wanted again"
        assert {(call.version, call.broker_id, call.broker_epoch) for call in asking.calls} == {(3, 1, asking.epoch)}

    async def test_what_was_granted_is_what_the_leader_has(self, director: Director, asking: Asking) -> None:
        asking.judge = lambda proposal: granted(proposal, 9)
        await director.update()
        await director.lead(4, partition_epoch=6)
        await asking.until(lambda: asked(asking)[0] == 1)

        for _ in range(2):
            assert (await director.lead(5, partition_epoch=8)).each == {0: 0}, "passed over: it has partition epoch 9"
        assert (await director.lead(5, partition_epoch=9)).each == {0: 0}
        assert (await director.lead(5, partition_epoch=9)).each == {0: 11}

    async def test_after_most_errors_a_leader_waits_for_its_next_leader_epoch(
        self, director: Director, asking: Asking
    ) -> None:
        errors = {0: 3, 1: 42, 2: 74, 3: 95, 4: 100, 5: 107, 6: 55}
        asking.judge = lambda proposal: refused(proposal, errors[proposal.partition])
        await director.update()
        await director.lead(dict.fromkeys(errors, 0))
        await asking.until(lambda: min(asked(asking)[5], asked(asking)[6]) > ASKED_AGAIN)
        assert {partition: asked(asking)[partition] for partition in range(5)} == dict.fromkeys(range(5), 1)
        assert (await director.lead(dict.fromkeys(range(5), 1))).each == dict.fromkeys(range(5), 0)
        await asking.until(lambda: all(asked(asking)[partition] == 2 for partition in range(5)))

    async def test_other_errors_and_another_controller_are_tried_again(
        self, director: Director, asking: Asking
    ) -> None:
        asking.not_controller = 2
        answers = iter([7, -1])

        def judge(proposal: IsrProposal) -> PartitionReply:
            error = next(answers, None)
            return granted(proposal) if error is None else refused(proposal, error)

        asking.judge = judge
        await director.update()
        await director.lead(0)
        await asking.until(lambda: asked(asking)[0] == 5)
        assert len({call.proposals for call in asking.calls}) == 1, "the same was asked five times"

    async def test_a_grant_older_than_what_the_leader_knows_settles_nothing(
        self, director: Director, asking: Asking
    ) -> None:
        asking.judge = lambda p: granted(p, p.partition_epoch - 1) if p.partition == 0 else refused(p, 107)
        await director.update()
        await director.lead({0: 0, 1: 0}, partition_epoch=6)
        await asking.until(lambda: asked(asking)[1] > ASKED_AGAIN and asked(asking)[0] > 0)
        assert asked(asking)[0] == 1
        assert (await director.lead({0: 1}, partition_epoch=6)).each == {0: 0}
        await asking.until(lambda: asked(asking)[0] == 2)


def asked(asking: Asking) -> Counter[int]:
    """How often each partition was asked for."""
    return Counter(proposal.partition for call in asking.calls for proposal in call.proposals)
