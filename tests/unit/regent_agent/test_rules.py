"""Rules that a server keeps, one after the other: 1 to 4 and 8."""

from __future__ import annotations

import asyncio

import pytest

from regent_agent.outbox import Outbox
from regent_agent.protocol import (
    BUSY,
    CLOSED,
    DONE,
    FAILED,
    FAILED_OPEN,
    NOT_RUNNING,
    OPENED,
    SEQUENCE_MAX,
    Owned,
    Poll,
    Regions,
    Register,
    Report,
    Result,
)
from regent_agent.service import NotRunning
from regent_agent.work import Work
from tests.kit.deadlines import eventually
from tests.unit.regent_agent.kit import Recorded, StandIn, closes, opens, started, task


@pytest.mark.seed("S1-72", "S1-80")
async def test_a_region_is_opened_and_closed() -> None:
    service = Recorded()
    async with StandIn().running() as daemon, started(service, daemon) as agent:
        assert not agent.owned
        daemon.send(opens(7, 1, sequence=3, options={"ttl": "1"}))
        assert await daemon.result(7) == Result(7, OPENED, 101)
        assert daemon.seen(Report)[0].taken >= 1
        region = agent.owned[1]
        assert (region.table, region.token, region.sequence, region.options) == ("t", 7, 101, {"ttl": "1"})
        assert agent.owns(1)
        assert agent.owns(1, 7)
        assert not agent.owns(1, 6)
        assert not agent.owns(2)
        daemon.send(closes(8, 1, 7))
        assert await daemon.result(8) == Result(8, CLOSED)
        assert not agent.owned
    assert service.calls == [("open", 1, 7), ("close", 1, 7), ("suspend",)]


async def test_a_poll_names_the_operations_that_arrived() -> None:
    async with StandIn(hold_ms=50).running() as daemon, started(Recorded(), daemon):
        polls = [await daemon.arrived(Poll, count) for count in (1, 2, 3)]
    assert [poll.taken for poll in polls] == [0, 1, 2]
    assert {(poll.server, poll.incarnation, poll.epoch) for poll in polls} == {("s1", 5, 1)}


class TestRule1:
    @pytest.mark.seed("S1-75", "S1-76", "S1-79")
    async def test_an_operation_in_progress_is_not_done_again(self) -> None:
        service = Recorded()
        service.hold[1] = asyncio.Event()
        async with StandIn().running() as daemon, started(service, daemon):
            daemon.send(opens(7, 1))
            await eventually(lambda: service.calls)
            daemon.send(opens(7, 1), opens(8, 2))
            await daemon.result(8)
            service.hold[1].set()
            await daemon.result(7)
        assert service.calls[:-1] == [("open", 1, 7), ("open", 2, 8)]
        assert [result.pid for result in daemon.results()] == [8, 7]

    @pytest.mark.seed("S1-75")
    async def test_the_result_of_a_known_operation_is_sent_again(self) -> None:
        service = Recorded()
        async with StandIn().running() as daemon, started(service, daemon):
            daemon.again = {7}
            daemon.send(opens(7, 1))
            await daemon.result(7, 3)
            daemon.send(opens(7, 1))
            await daemon.result(7, 5)
        assert service.calls[:-1] == [("open", 1, 7)]
        assert {result.sequence for result in daemon.results()} == {101}


class TestRule2:
    async def test_a_higher_token_closes_the_stale_owner_first(self) -> None:
        service = Recorded()
        async with StandIn().running() as daemon, started(service, daemon) as agent:
            daemon.send(opens(7, 1), opens(9, 1))
            assert (await daemon.result(9)).outcome == OPENED
            assert agent.owned[1].token == 9
        assert service.calls[:-1] == [("open", 1, 7), ("close", 1, 7), ("open", 1, 9)]

    async def test_the_same_token_is_opened_again_without_a_call(self) -> None:
        service = Recorded()
        async with StandIn().running() as daemon, started(service, daemon):
            daemon.send(opens(7, 1))
            await daemon.result(7)
            daemon.send(opens(8, 1, token=7))
            assert await daemon.result(8) == Result(8, OPENED, 101)
        assert service.calls[:-1] == [("open", 1, 7)]

    async def test_a_stale_open_fails(self) -> None:
        service = Recorded()
        async with StandIn().running() as daemon, started(service, daemon) as agent:
            daemon.send(opens(9, 1), opens(7, 1))
            result = await daemon.result(7)
            assert (result.outcome, result.text) == (FAILED_OPEN, "region 1 is here with the higher token 9")
            assert agent.owns(1, 9)


class TestRule3:
    async def test_a_region_that_is_not_here_is_closed(self) -> None:
        service = Recorded()
        async with StandIn().running() as daemon, started(service, daemon):
            daemon.send(closes(8, 1, 7))
            assert await daemon.result(8) == Result(8, CLOSED)
        assert service.calls == [("suspend",)]

    async def test_a_close_of_an_old_token_closes_nothing(self) -> None:
        service = Recorded()
        async with StandIn().running() as daemon, started(service, daemon) as agent:
            daemon.send(opens(9, 1), closes(10, 1, 7))
            assert await daemon.result(10) == Result(10, CLOSED)
            assert agent.owns(1, 9)

    @pytest.mark.seed("S1-76", "S1-79")
    async def test_a_close_waits_for_the_open_of_its_region(self) -> None:
        service = Recorded()
        service.hold[1] = asyncio.Event()
        async with StandIn().running() as daemon, started(service, daemon) as agent:
            daemon.send(opens(7, 1), closes(8, 1, 7), opens(9, 1), opens(10, 2))
            await daemon.result(10)
            assert service.calls == [("open", 1, 7), ("open", 2, 10)]
            service.hold[1].set()
            await daemon.result(9)
            assert agent.owned[1].token == 9
        assert service.calls[2:-1] == [("close", 1, 7), ("open", 1, 9)]

    @pytest.mark.parametrize("token", [7, 9])
    async def test_an_open_behind_a_close_that_raised_closes_once_more_first(self, token: int) -> None:
        service = Recorded()
        service.failures["close"] = [OSError("disk")]
        async with StandIn().running() as daemon, started(service, daemon) as agent:
            daemon.send(opens(7, 1), closes(8, 1, 7))
            assert (await daemon.result(8)).outcome == FAILED
            daemon.send(opens(10, 1, token))
            assert (await daemon.result(10)).outcome == OPENED
            assert agent.owns(1, token)
        assert service.calls[:4] == [("open", 1, 7), ("close", 1, 7), ("close", 1, 7), ("open", 1, token)]

    async def test_a_close_that_raises_is_done_again_and_the_region_is_not_served(self) -> None:
        service = Recorded()
        service.failures["close"] = [OSError("disk")]
        async with StandIn().running() as daemon, started(service, daemon) as agent:
            daemon.send(opens(7, 1), closes(8, 1, 7))
            assert await daemon.result(8) == Result(8, FAILED, text="OSError: disk")
            assert not agent.owns(1)
            daemon.send(list_regions=True)
            assert (await daemon.arrived(Regions)).owned == [Owned(1, 7)]
            daemon.send(closes(8, 1, 7))
            assert await daemon.result(8, 2) == Result(8, CLOSED)


class TestRule4:
    async def test_results_are_repeated_until_accepted(self) -> None:
        async with StandIn().running() as daemon, started(Recorded(), daemon):
            daemon.again = {7}
            daemon.send(opens(7, 1), opens(8, 2))
            await daemon.result(7, 3)
            daemon.again = set()
            await daemon.result(7, 4)
        assert sum(result.pid == 8 for result in daemon.results()) == 1

    async def test_results_survive_a_lost_connection(self) -> None:
        async with StandIn().running() as daemon, started(Recorded(), daemon):
            lost = 0

            async def respond(request: object) -> None:
                nonlocal lost
                lost += 1
                if lost == 2:
                    del daemon.responses[Report]

            daemon.responses[Report] = respond
            daemon.send(opens(7, 1))
            assert (await daemon.result(7, 3)).outcome == OPENED

    async def test_an_open_whose_part_was_cancelled_fails(self) -> None:
        service = Recorded()
        service.failures["open"] = [asyncio.CancelledError("the pool ended")]
        async with StandIn().running() as daemon, started(service, daemon) as agent:
            daemon.send(opens(7, 1))
            assert await daemon.result(7) == Result(7, FAILED_OPEN, text="a part of it was cancelled: the pool ended")
            daemon.send(opens(8, 1))
            assert (await daemon.result(8)).outcome == OPENED, "the region is free again"
            assert agent.owned[1].token == 8

    async def test_an_open_that_raises_fails(self) -> None:
        service = Recorded()
        service.failures["open"] = [ValueError("no such file")]
        async with StandIn().running() as daemon, started(service, daemon) as agent:
            daemon.send(opens(7, 1))
            assert await daemon.result(7) == Result(7, FAILED_OPEN, text="ValueError: no such file")
            assert not agent.owned

    async def test_tasks(self) -> None:
        service = Recorded()
        service.failures["split"] = [OSError("disk")]
        async with StandIn().running() as daemon, started(service, daemon):
            daemon.send(task(7, "fence"), task(8, "split", "s9/1"), task(9, "dance"))
            assert await daemon.result(7) == Result(7, DONE, parts=["s9/1", "s9/2"])
            assert (await daemon.result(8)).outcome == FAILED
            assert "dance" in (await daemon.result(9)).text
            daemon.send(task(8, "split", "s9/1"))
            assert (await daemon.result(8, 2)).outcome == DONE
        assert ("fence", "s9", 3) in service.calls
        assert ("split", "s9", "s9/1") in service.calls


class TestRule8:
    @pytest.mark.seed("S1-45")
    async def test_operations_run_side_by_side_up_to_the_bound(self) -> None:
        service = Recorded()
        service.hold = {region: asyncio.Event() for region in range(10)}
        async with StandIn().running() as daemon, started(service, daemon, side_by_side_max=3):
            daemon.send(*(opens(100 + region, region) for region in range(10)))
            await eventually(lambda: service.inside == 3)
            for event in service.hold.values():
                event.set()
            for region in range(10):
                await daemon.result(100 + region)
        assert service.inside_max == 3

    async def test_operations_that_wait_for_the_bound_go_on_without_a_word_of_the_daemon(self) -> None:
        service, results = Recorded(), Outbox(lambda: 0.0, lambda: None)
        work = Work(service, results, lambda: True, side_by_side_max=1, queue_max=100)
        for region in range(20):
            work.add(opens(100 + region, region))
        await eventually(lambda: len(results) == 20)
        assert service.inside_max == 1

    async def test_operations_of_a_region_keep_their_order_where_others_are_in_between(self) -> None:
        service = Recorded()
        service.hold = {region: asyncio.Event() for region in (1, 2, 3)}
        async with StandIn().running() as daemon, started(service, daemon, side_by_side_max=2):
            daemon.send(opens(7, 1), opens(8, 2), opens(9, 1), opens(10, 3), opens(11, 1))
            await eventually(lambda: service.inside == 2)
            service.hold[2].set()
            await eventually(lambda: ("open", 3, 10) in service.calls)
            service.hold[1].set()
            for pid in (7, 9, 11):
                assert (await daemon.result(pid)).outcome == OPENED

    async def test_a_region_that_is_busy_is_closed_and_opened_again_in_the_order_of_the_operations(self) -> None:
        """Three wait behind the first one: the region ends as the last of them wants it."""
        service = Recorded()
        service.hold[1] = asyncio.Event()
        async with StandIn().running() as daemon, started(service, daemon, side_by_side_max=4) as agent:
            daemon.send(opens(7, 1), closes(8, 1, 7), opens(9, 1), closes(10, 1, 9), opens(11, 1))
            await eventually(lambda: service.inside == 1)
            service.hold[1].set()
            for pid, outcome in ((7, OPENED), (8, CLOSED), (9, OPENED), (10, CLOSED), (11, OPENED)):
                assert (await daemon.result(pid)).outcome == outcome
            assert agent.owns(1, 11)
        assert [call for call in service.calls if call[0] != "suspend"] == [
            ("open", 1, 7),
            ("close", 1, 7),
            ("open", 1, 9),
            ("close", 1, 9),
            ("open", 1, 11),
        ]

    async def test_work_on_a_log_goes_ahead_of_opens(self) -> None:
        service = Recorded()
        service.hold[0] = asyncio.Event()
        async with StandIn().running() as daemon, started(service, daemon, side_by_side_max=1):
            daemon.send(opens(7, 0), opens(8, 1), task(9, "split", "s9/1"))
            await eventually(lambda: service.inside == 1)
            service.hold[0].set()
            assert (await daemon.result(8)).outcome == OPENED
        assert [call[0] for call in service.calls if call[0] != "suspend"] == ["open", "split", "open"]

    async def test_a_full_queue_is_busy_and_the_operation_is_done_when_it_is_sent_again(self) -> None:
        service = Recorded()
        service.hold[0] = asyncio.Event()
        async with StandIn().running() as daemon, started(service, daemon, side_by_side_max=1, queue_max=2):
            daemon.send(*(opens(100 + region, region) for region in range(4)))
            assert (await daemon.result(103)).outcome == BUSY
            service.hold[0].set()
            for pid in (100, 101, 102):
                assert (await daemon.result(pid)).outcome == OPENED
            daemon.send(opens(103, 3))
            assert (await daemon.result(103, 2)).outcome == OPENED

    async def test_a_service_that_has_not_started_is_not_running(self) -> None:
        service = Recorded()
        service.failures["open"] = [NotRunning("the log is replayed")]
        async with StandIn().running() as daemon, started(service, daemon):
            daemon.send(opens(7, 1))
            assert await daemon.result(7) == Result(7, NOT_RUNNING, text="the log is replayed")
            daemon.send(opens(7, 1))
            assert (await daemon.result(7, 2)).outcome == OPENED


async def test_a_registration_lists_regions_that_are_about_to_be_opened() -> None:
    service = Recorded()
    service.hold[1] = asyncio.Event()
    async with StandIn().running() as daemon, started(service, daemon, side_by_side_max=1):
        daemon.send(opens(7, 1), opens(8, 1), opens(9, 2))
        await eventually(lambda: service.calls)
        daemon.epoch = 2
        daemon.cut()
        assert sorted((owned.region, owned.token) for owned in (await daemon.arrived(Register, 2)).owned) == [
            (1, 8),
            (2, 9),
        ]


@pytest.mark.parametrize("returned", [None, "7", -1, SEQUENCE_MAX + 1, 1 << 70])
async def test_an_open_without_a_number_that_can_be_stored_fails_and_the_region_is_closed(
    returned: object, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another server gets the region then: this one must not serve it beside."""

    async def forgetful(self: Recorded, region: object) -> object:
        return returned

    monkeypatch.setattr(Recorded, "open", forgetful)
    service = Recorded()
    async with StandIn().running() as daemon, started(service, daemon) as agent:
        daemon.send(opens(7, 1))
        assert (await daemon.result(7)).outcome == FAILED_OPEN
        assert not agent.owned
        assert service.calls == [("close", 1, 7)]


async def test_the_highest_number_that_can_be_stored_is_that_of_an_open() -> None:
    service = Recorded()
    service.sequence = SEQUENCE_MAX - 1
    async with StandIn().running() as daemon, started(service, daemon) as agent:
        daemon.send(opens(7, 1))
        assert await daemon.result(7) == Result(7, OPENED, SEQUENCE_MAX)
        assert agent.owns(1, 7)
