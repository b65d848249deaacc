"""What a server has and lists over many operations, and what its service is given."""

from __future__ import annotations

import asyncio

import pytest

from regent_agent.outbox import Outbox
from regent_agent.protocol import CLOSED, FAILED, FAILED_OPEN, OPENED, Close, Open, Owned, Result, Task
from regent_agent.service import OpenedRegion
from regent_agent.work import Work
from tests.kit.polling import eventually
from tests.unit.regent_agent.kit import Recorded, closes, opens


class Bench:
    """The work of one server without a daemon. ``may_begin``: whether its lease is valid."""

    def __init__(self, service: Recorded | None = None) -> None:
        self.service = service or Recorded()
        self.results = Outbox(lambda: 0.0, lambda: None)
        self.may_begin = True
        self.work = Work(self.service, self.results, lambda: self.may_begin, side_by_side_max=4, queue_max=10)

    async def done(self, *operations: Open | Close | Task) -> list[Result]:
        """Has operations done, and returns their results."""
        for operation in operations:
            self.work.add(operation)
        await eventually(lambda: not self.work.running)
        return self.results.due()

    def owned(self) -> list[tuple[int, int]]:
        return sorted((one.region, one.token) for one in self.work.owned())


class Given(Recorded):
    """A service that notes all that it is given."""

    def __init__(self) -> None:
        super().__init__()
        self.opens: list[OpenedRegion] = []
        self.closes: list[OpenedRegion] = []
        self.splits: list[tuple[str, int, str]] = []

    async def open(self, region: OpenedRegion) -> int:
        self.opens.append(region)
        return 8

    async def close(self, region: OpenedRegion) -> None:
        self.closes.append(region)

    async def split(self, server: str, incarnation: int, part: str) -> None:
        self.splits.append((server, incarnation, part))


async def test_a_service_is_given_all_that_the_daemon_says_of_a_region_and_of_a_log() -> None:
    """The next open needs the sequence number of the last one, and a split the process whose log it is."""
    service = Given()
    bench = Bench(service)
    options = {"ttl": "1"}
    [opened] = await bench.done(Open(7, 1, 70, "t", b"b", b"m", 5, options))
    assert (opened.outcome, opened.sequence) == (OPENED, 8)
    [again] = await bench.done(Open(8, 1, 70, "t", b"b", b"m", 5, options))
    assert (again.outcome, again.sequence) == (OPENED, 8), "of this open, not of the one before"
    await bench.done(closes(9, 1, 70), Task(10, "split", "s9", 3, "s9/1"))
    assert service.opens == [OpenedRegion(1, "t", b"b", b"m", 70, 5, options)]
    assert service.closes == [OpenedRegion(1, "t", b"b", b"m", 70, 8, options)]
    assert service.splits == [("s9", 3, "s9/1")]


async def test_a_close_with_a_later_token_closes_the_region() -> None:
    bench = Bench()
    await bench.done(opens(7, 1))
    assert [one.outcome for one in await bench.done(closes(9, 1, 8))] == [CLOSED]
    assert bench.service.calls == [("open", 1, 7), ("close", 1, 7)]
    assert not bench.owned()


async def test_a_close_that_raised_is_done_when_it_is_sent_again_and_no_other_close_ends_it() -> None:
    """A region that the service still has is listed until the service has closed it."""
    bench = Bench()
    await bench.done(opens(1, 1), opens(2, 2))
    bench.service.failures["close"] = [OSError("disk"), OSError("disk")]
    assert [one.outcome for one in await bench.done(closes(3, 1, 1))] == [FAILED]
    assert [one.outcome for one in await bench.done(closes(3, 1, 1))] == [FAILED]
    assert [one.outcome for one in await bench.done(closes(4, 2, 2))] == [CLOSED]
    assert bench.owned() == [(1, 1)]
    assert [one.outcome for one in await bench.done(closes(3, 1, 1))] == [CLOSED]
    assert bench.service.calls.count(("close", 1, 1)) == 3
    assert not bench.owned()


async def test_a_region_is_listed_with_the_highest_token_of_what_is_open_and_what_waits() -> None:
    bench = Bench()
    await bench.done(opens(9, 1))
    bench.may_begin = False
    bench.work.add(opens(7, 1))
    assert bench.work.owned() == [Owned(1, 9)]
    bench.work.add(opens(11, 1))
    assert bench.work.owned() == [Owned(1, 11)]


async def test_a_server_with_the_most_regions_refuses_a_further_open_and_goes_on_closing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """One region is open, one could not be closed, and one is about to be opened: all of them count."""
    monkeypatch.setattr("regent_agent.work.OWNED_MAX", 3)
    bench = Bench()
    service, results, work = bench.service, bench.results, bench.work
    service.failures["close"] = [OSError("disk")]
    for operation in (opens(1, 1), opens(2, 2)):
        work.add(operation)
    await eventually(lambda: len(work.opened) == 2)
    work.add(closes(3, 2, 2))
    await eventually(lambda: len(work.opened) == 1 and not work.running)
    service.hold[3] = asyncio.Event()
    work.add(opens(4, 3))
    assert [result.outcome for result in results.due()][-1] != FAILED_OPEN, "the third one is admitted"
    work.add(opens(5, 4))
    [refused] = results.due()
    assert (refused.pid, refused.outcome) == (5, FAILED_OPEN)
    work.add(closes(6, 1, 1))
    service.hold[3].set()
    await eventually(lambda: ("close", 1, 1) in service.calls and not work.running)
    work.add(opens(7, 5))
    await eventually(lambda: not work.running)
    assert {one.pid: one.outcome for one in results.due()}[7] == OPENED
