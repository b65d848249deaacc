"""Simulated brokers keep to the contract that a real one keeps to."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from brokers.wire.calls import AlterPartitionCall, read_call, read_header
from brokers.wire.primitives import Reader
from brokers.wire.replies import encode_reply
from testing.simulated.broker import SimulatedBroker
from tests.contracts.broker_isr import IsrContract, Judge, granted, reply
from tests.contracts.broker_support import NEW, Director, Known
from tests.contracts.brokers import BrokerContract

ROUNDS_MAX = 50


class Simulated:
    """Implements the subject of the contract."""

    def __init__(self) -> None:
        self.broker = SimulatedBroker(1, 10)

    @property
    def epoch(self) -> int:
        return self.broker.epoch

    async def exchange(self, frame: bytes) -> bytes:
        return self.broker.receive(frame)

    async def restart(self) -> None:
        self.broker.restart(self.broker.epoch + 5)

    async def metadata(self, topic: str) -> tuple[bytes | None, dict[int, Known]]:
        found = {
            partition: Known(entry.leader, entry.leader_epoch, entry.isr, entry.replicas)
            for (name, partition), entry in self.broker.metadata.items()
            if name == topic
        }
        return self.broker.cache.topic_ids.get(topic), found

    async def live(self) -> tuple[int, frozenset[int]]:
        return self.broker.controller_id, frozenset(self.broker.live)

    async def fail_log(self, topic: str, partition: int) -> None:
        self.broker.fail_partition(topic, partition)

    async def repair_logs(self) -> None:
        self.broker.recover()
        await self.restart()


class SimulatedLeaders(Simulated):
    """Implements the subject with leaders, and its controller."""

    def __init__(self) -> None:
        super().__init__()
        self.judge: Judge = granted
        self.not_controller = 0
        self.calls: list[AlterPartitionCall] = []

    async def until(self, check: Callable[[], bool]) -> None:
        for correlation in range(ROUNDS_MAX):
            if check():
                return
            self.broker.isr.wish(lambda key: ())
            self._request(correlation)
        raise AssertionError("the leaders send no further request")

    def _request(self, correlation: int) -> None:
        self.broker.isr.alter_partition(correlation)
        request = self.broker.isr.in_flight
        if request is not None:
            reader = Reader(request.frame)
            call = read_call(read_header(reader), reader)
            assert isinstance(call, AlterPartitionCall)
            self.broker.isr.take_response(encode_reply(call, request.correlation, reply(self, call))[4:])


@pytest.fixture
def leaders() -> SimulatedLeaders:
    return SimulatedLeaders()


@pytest.fixture
def director(leaders: SimulatedLeaders) -> Director:
    return Director(leaders, "orders", 5, NEW)


class TestSimulatedBroker(BrokerContract):
    """Checks the contract of requests in memory."""


class TestSimulatedLeader(IsrContract):
    """Checks the contract of leaders in memory."""
