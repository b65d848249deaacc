"""A real broker fulfils the contracts that simulated brokers fulfil."""

from __future__ import annotations

import itertools
import uuid
from collections.abc import AsyncIterator, Callable

import pytest
import pytest_asyncio
from msgspec import Struct

from brokers.listener.controller_listener import ControllerListener, NotController
from brokers.listener.envelopes import CarriedCall
from brokers.wire.calls import AllocateProducerIdsCall, AlterPartitionCall, ControlledShutdownCall
from brokers.wire.errors import Error
from brokers.wire.replies import AllocateProducerIdsReply, AlterPartitionReply, ControlledShutdownReply
from tests.contracts.broker_isr import IsrContract, Judge, granted, reply
from tests.contracts.broker_support import CONTROLLER, NEW, Director
from tests.contracts.brokers import BrokerContract
from tests.kit.cluster.lone_broker import LoneBroker, lone_broker
from tests.kit.deadlines import eventually

pytestmark = pytest.mark.asyncio(loop_scope="module")

EPOCHS_PER_TEST = 100
ISR_AS_IT_IS = {"replica.lag.time.max.ms": "600000"}
ISR_SHRINKS_SOON = {"replica.lag.time.max.ms": "1000"}

_tests = itertools.count(1)


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def broker() -> AsyncIterator[LoneBroker]:
    """Runs one broker for all tests of requests."""
    async with lone_broker(CONTROLLER, ISR_AS_IT_IS) as found:
        yield found


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def leading() -> AsyncIterator[tuple[LoneBroker, ControllerListener]]:
    """Runs one broker for all tests of leaders."""
    listener = ControllerListener("127.0.0.1", 0)
    await listener.start()
    try:
        async with lone_broker(CONTROLLER, ISR_SHRINKS_SOON) as found:
            yield found, listener
    finally:
        await listener.stop()


class RealLeaders:
    """Responds as controller to a broker whose leaders soon shrink their ISRs."""

    def __init__(self, broker: LoneBroker, topic_id: bytes) -> None:
        self.judge: Judge = granted
        self.not_controller = 0
        self.calls: list[AlterPartitionCall] = []
        self.broker = broker
        self.topic_id = topic_id

    @property
    def epoch(self) -> int:
        return self.broker.epoch

    async def until(self, check: Callable[[], bool]) -> None:
        await eventually(check)

    # -- called by the controller listener

    async def alter_partition(self, call: AlterPartitionCall) -> AlterPartitionReply:
        assert {proposal.topic for proposal in call.proposals} == {self.topic_id}
        return reply(self, call)

    async def controlled_shutdown(self, call: ControlledShutdownCall) -> ControlledShutdownReply:
        return ControlledShutdownReply(Error.NONE)

    async def allocate_producer_ids(self, call: AllocateProducerIdsCall) -> AllocateProducerIdsReply:
        return AllocateProducerIdsReply(Error.BROKER_ID_NOT_REGISTERED)

    def registered(self, broker: int, epoch: int) -> bool:
        return True

    async def admits(self, principal: str, client_host: str) -> bool:
        return True

    async def carried(self, call: CarriedCall) -> Struct:
        raise NotController


class TestRealBroker(BrokerContract):
    """Sends requests to Kafka 3.9."""

    @pytest.fixture
    def director(self, broker: LoneBroker) -> Director:
        number = next(_tests)
        return Director(broker, f"topic-{number}", number * EPOCHS_PER_TEST, NEW)


class TestRealLeader(IsrContract):
    """Receives ISR changes from Kafka 3.9."""

    @pytest.fixture
    def leaders(self, leading: tuple[LoneBroker, ControllerListener]) -> RealLeaders:
        found = RealLeaders(leading[0], uuid.uuid4().bytes)
        leading[1].serve(found)
        return found

    @pytest_asyncio.fixture(loop_scope="module")
    async def director(
        self, leaders: RealLeaders, leading: tuple[LoneBroker, ControllerListener]
    ) -> AsyncIterator[Director]:
        number = next(_tests)
        found = Director(
            leaders.broker,
            f"topic-{number}",
            number * EPOCHS_PER_TEST,
            NEW,
            topic_id=leaders.topic_id,
            controller_port=leading[1].port,
        )
        yield found
        await found.stop(dict.fromkeys(range(10), -2), delete=True)
