"""Work that a server does, regions that are independent of their sources, and loads that it tells."""

from __future__ import annotations

import asyncio

import msgspec
import pytest

from regent_agent import news
from regent_agent.agent import Agent
from regent_agent.news import ALL_S, LOOK_S, Independents
from regent_agent.options import AgentOptions
from regent_agent.protocol import (
    BUSY,
    CLOSED,
    DATA_BYTES_MAX,
    DONE,
    FAILED,
    FEATURES_MAX,
    LOADS_MAX,
    NOT_RUNNING,
    RESULTS_MAX,
    Independent,
    Loads,
    Owned,
    Published,
    RegionLoad,
    Register,
    Result,
    Source,
    Work,
)
from regent_agent.service import NotRunning, OpenedRegion, RegionService
from tests.kit.deadlines import eventually
from tests.unit.regent_agent.kit import Clock, Recorded, StandIn, closes, opens, options, started, works

PARENT = Source(9, b"", b"m", 3, 41)


class Returns(Recorded):
    """A service whose work returns what a test wants."""

    def __init__(self, found: object) -> None:
        super().__init__()
        self.found = found

    async def work(self, what: str, region: OpenedRegion | None, data: bytes) -> bytes:
        return self.found  # type: ignore[return-value]


async def test_work_is_done_on_a_region_and_by_the_process_and_its_result_comes_back() -> None:
    service = Recorded()
    async with StandIn().running() as daemon, started(service, daemon, features=("flush", "x-acl")) as agent:
        assert (await daemon.arrived(Register)).features == ["flush", "x-acl"]
        daemon.send(opens(7, 1))
        await daemon.result(7)
        daemon.send(works(8, "flush", 1, 7, b"ab"), works(9, "x-acl", data=b"cd"))
        assert await daemon.result(8) == Result(8, DONE, data=b"ba")
        assert await daemon.result(9) == Result(9, DONE, data=b"dc")
        assert agent.owns(1, 7)
    assert [call for call in service.calls if call[0] in ("flush", "x-acl")] == [
        ("flush", 1, b"ab"),
        ("x-acl", None, b"cd"),
    ]


@pytest.mark.parametrize("token", [6, 8])
async def test_work_on_a_region_with_another_token_fails_and_so_does_work_on_one_that_is_not_here(token: int) -> None:
    service = Recorded()
    async with StandIn().running() as daemon, started(service, daemon):
        daemon.send(opens(7, 1), works(8, "flush", 1, token), works(9, "flush", 2, 5))
        other, closed = await daemon.result(8), await daemon.result(9)
    assert other == Result(8, FAILED, text=f"region 1 is open with token 7 here, and the work is for token {token}")
    assert closed == Result(9, FAILED, text="region 2 is closed here, and the work is for token 5")
    assert not [call for call in service.calls if call[0] == "flush"]


async def test_a_region_is_closed_only_once_work_on_it_is_done() -> None:
    service = Recorded()
    async with StandIn().running() as daemon, started(service, daemon):
        daemon.send(opens(7, 1))
        await daemon.result(7)
        service.hold[1] = asyncio.Event()
        daemon.send(works(8, "flush", 1, 7), closes(9, 1, 7), works(10, "x-acl"))
        await daemon.result(10)
        assert not [one for one in daemon.results() if one.pid in (8, 9)]
        service.hold[1].set()
        assert (await daemon.result(9)).outcome == CLOSED
    assert [call[0] for call in service.calls] == ["open", "flush", "x-acl", "close", "suspend"]


async def test_work_that_is_known_is_not_done_again_and_its_result_is_sent_again() -> None:
    service = Recorded()
    async with StandIn().running() as daemon, started(service, daemon):
        daemon.again = {8}
        daemon.send(works(8, "x-acl", data=b"ab"))
        await daemon.result(8)
        daemon.send(works(8, "x-acl", data=b"ab"))
        assert (await daemon.result(8, 4)).data == b"ba"
    assert service.calls.count(("x-acl", None, b"ab")) == 1


@pytest.mark.parametrize(
    ("found", "text"),
    [
        (bytes(DATA_BYTES_MAX + 1), "ValueError: work returned 65537 bytes, at most 65536 are sent"),
        (None, "TypeError: work returned NoneType, expected bytes"),
    ],
    ids=["long", "none"],
)
async def test_a_result_that_cannot_be_sent_is_a_failure(found: object, text: str) -> None:
    async with StandIn().running() as daemon, started(Returns(found), daemon):
        daemon.send(works(8, "x-acl"))
        assert await daemon.result(8) == Result(8, FAILED, text=text)


async def test_the_longest_result_arrives() -> None:
    async with StandIn().running() as daemon, started(Returns(bytes(DATA_BYTES_MAX)), daemon):
        daemon.send(works(8, "x-acl"))
        assert len((await daemon.result(8)).data) == DATA_BYTES_MAX


async def test_work_is_answered_like_other_operations_where_it_is_not_done() -> None:
    service = Recorded()
    service.failures["x-acl"] = [NotRunning("the catalog is not loaded"), OSError("disk")]
    async with StandIn().running() as daemon, started(service, daemon, queue_max=1, side_by_side_max=1):
        daemon.send(works(8, "x-acl"))
        assert await daemon.result(8) == Result(8, NOT_RUNNING, text="the catalog is not loaded")
        daemon.send(works(9, "x-acl"))
        assert await daemon.result(9) == Result(9, FAILED, text="OSError: disk")
        service.hold[1] = asyncio.Event()
        daemon.send(opens(10, 1), works(11, "x-acl"), works(12, "x-acl"))
        assert (await daemon.result(12)).outcome == BUSY
        service.hold[1].set()
        assert (await daemon.result(11)).outcome == DONE


async def test_a_service_that_does_no_work_refuses_it_by_name() -> None:
    class Opens(RegionService):
        async def open(self, region: OpenedRegion) -> int:
            return 1

        async def close(self, region: OpenedRegion) -> None:
            pass

    region = OpenedRegion(4, "t", b"", b"", 1, 1, {})
    with pytest.raises(NotImplementedError, match=r"does no work 'flush' on region 4: name only features that it has"):
        await Opens().work("flush", region, b"")
    with pytest.raises(NotImplementedError, match=r"does no work 'stage': name only"):
        await Opens().work("stage", None, b"")


def test_the_features_of_a_server_are_bounded() -> None:
    with pytest.raises(ValueError, match=r"features has 101 names: give at most 100"):
        AgentOptions((("h", 1),), "s", "a", features=("x",) * (FEATURES_MAX + 1))


class TestPublished:
    def commit(self, pid: int, number: int, data: bytes) -> Work:
        return works(pid, "commit", data=msgspec.msgpack.encode(Published("acl", number, data)))

    async def test_values_are_known_from_the_registration_and_from_what_is_committed_later(self) -> None:
        async with StandIn(hold_ms=20).running() as daemon:
            daemon.published = [Published("acl", 2, b"two")]
            async with started(Recorded(), daemon, features=("publish",)) as agent:
                assert agent.published == {"acl": Published("acl", 2, b"two")}
                daemon.send(works(7, "stage", data=b"three"))
                await daemon.result(7)
                assert agent.published["acl"].number == 2
                daemon.send(self.commit(8, 3, b"three"))
                await daemon.result(8)
                daemon.send(self.commit(9, 2, b"late"))
                await daemon.result(9)
                assert agent.published["acl"].data == b"three"
                daemon.epoch = 2  # the daemon that follows knows an older value: it was restored from a copy
                await daemon.arrived(Register, 2)
                assert agent.published["acl"].data == b"three"

    async def test_the_phases_of_values_come_in_their_order_and_other_work_beside_them(self) -> None:
        """A daemon that takes over may undo what the one before has sent, and the process works on still."""

        class Slow(Recorded):
            async def work(self, what: str, region: OpenedRegion | None, data: bytes) -> bytes:
                if what == "stage":
                    await held.wait()
                return await super().work(what, region, data)

        service, held = Slow(), asyncio.Event()
        async with StandIn().running() as daemon, started(service, daemon):
            daemon.send(works(7, "stage"), works(8, "unstage"), works(9, "x-acl"))
            await daemon.result(9)
            assert [call[0] for call in service.calls] == ["x-acl"]
            held.set()
            await daemon.result(8)
        assert [call[0] for call in service.calls] == ["x-acl", "stage", "unstage", "suspend"]

    async def test_a_value_that_the_service_failed_to_commit_does_not_count(self) -> None:
        service = Recorded()
        service.failures["commit"] = [OSError("disk")]
        async with StandIn().running() as daemon, started(service, daemon) as agent:
            daemon.send(self.commit(8, 3, b"three"))
            assert (await daemon.result(8)).outcome == FAILED
            assert not agent.published


class TestIndependent:
    async def test_a_service_learns_the_sources_and_says_once_it_needs_them_no_more(self) -> None:
        async with StandIn().running() as daemon:
            daemon.knows = ["independent"]
            async with started(Recorded(), daemon) as agent:
                daemon.send(opens(7, 1, sources=[PARENT]))
                await daemon.result(7)
                assert agent.owned[1].sources == (PARENT,)
                daemon.again = {1}
                agent.independent(agent.owned[1])
                await daemon.arrived(Independent, 2)
                daemon.again.clear()
                await eventually(lambda: daemon.seen(Independent)[2:])
                before = len(daemon.seen(Independent))
                daemon.send(opens(8, 2))
                await daemon.result(8)
        assert len(daemon.seen(Independent)) == before
        assert {(one.server, one.incarnation, one.epoch) for one in daemon.seen(Independent)} == {("s1", 5, 1)}
        assert [one.regions for one in daemon.seen(Independent)] == [[Owned(1, 7)]] * before

    async def test_it_is_kept_for_a_daemon_that_knows_the_request(self) -> None:
        """A daemon of an older version would end the connection, or refuse it again and again."""
        async with StandIn(hold_ms=20).running() as daemon, started(Recorded(), daemon) as agent:
            daemon.send(opens(7, 1, sources=[PARENT]))
            await daemon.result(7)
            agent.independent(agent.owned[1])
            daemon.send(opens(8, 2))
            await daemon.result(8)
            assert not daemon.seen(Independent)
            daemon.knows = ["independent"]
            daemon.epoch = 2
            assert (await daemon.arrived(Independent)).epoch == 2

    async def test_the_next_daemon_is_told_again_of_regions_that_are_open_as_they_were(self) -> None:
        """Its store may be a copy that is older than the word. An open that came since was told the sources again."""
        async with StandIn(hold_ms=20).running() as daemon:
            daemon.knows = ["independent"]
            async with started(Recorded(), daemon) as agent:
                daemon.send(*(opens(10 + one, one, sources=[PARENT]) for one in (1, 2, 3)), opens(14, 4))
                for one in (1, 2, 3, 4):
                    await daemon.result(10 + one)
                    agent.independent(agent.owned[one])
                await eventually(lambda: agent._news.independents.wait_s() is None)
                before = len(daemon.seen(Independent))
                daemon.send(closes(20, 2, 12), opens(21, 3, sources=[PARENT]))
                await daemon.result(20)
                await daemon.result(21)
                for count in (1, 2):
                    daemon.epoch += 1
                    await daemon.arrived(Independent, before + count)
        assert [one.regions for one in daemon.seen(Independent)[before:]] == [[Owned(1, 11)]] * 2


class TestIndependents:
    """What is said of regions that are open here as ``opened`` has it."""

    def made(self) -> tuple[dict[int, OpenedRegion], Clock, Independents]:
        opened, clock = dict[int, OpenedRegion](), Clock()
        return opened, clock, Independents(clock, opened)

    def opens(self, opened: dict[int, OpenedRegion], region: int, token: int) -> OpenedRegion:
        opened[region] = OpenedRegion(region, "t", b"", b"", token, 1, {}, (PARENT,))
        return opened[region]

    def test_a_response_of_the_daemon_before_counts_nothing(self) -> None:
        """It may have stored the word in what the present one has no copy of."""
        opened, _, found = self.made()
        found.add(self.opens(opened, 1, 7))
        assert found.due() == [Owned(1, 7)]
        found.anew()
        found.accepted(())
        assert found.due() == [Owned(1, 7)]
        found.accepted(())
        assert found.due() == []

    def test_a_late_word_about_an_open_that_is_over_takes_the_place_of_none(self) -> None:
        opened, _, found = self.made()
        former, present = self.opens(opened, 1, 7), self.opens(opened, 1, 8)
        found.add(present)
        found.add(former)
        assert found.due() == [Owned(1, 8)]
        found.accepted(())
        found.add(former)
        found.due()
        found.accepted(())
        found.anew()
        assert found.due() == [Owned(1, 8)], "also after the present one was accepted"

    def test_a_late_word_after_a_registration_takes_the_place_of_none_either(self) -> None:
        opened, _, found = self.made()
        former, present = self.opens(opened, 1, 7), self.opens(opened, 1, 8)
        found.add(present)
        found.due()
        found.accepted(())
        found.anew()
        found.add(former)
        assert found.due() == [Owned(1, 8)]
        found.accepted(())
        found.anew()
        assert found.due() == [Owned(1, 8)], "the next daemon hears of the present one, too"

    def test_regions_that_come_and_go_leave_nothing_behind(self) -> None:
        opened, _, found = self.made()
        for region in range(3 * RESULTS_MAX):
            found.add(self.opens(opened, region, 7))
            found.due()
            found.accepted(())
            del opened[region]
            assert len(found._told) <= RESULTS_MAX + 2, "one is open at a time"

    def test_more_than_one_request_takes_are_all_named_again(self) -> None:
        opened, _, found = self.made()
        for region in range(RESULTS_MAX + 1):
            found.add(self.opens(opened, region, 7))

        def named() -> list[int]:
            regions = [one.region for one in found.due()]
            found.accepted(())
            return regions

        everything = [list(range(RESULTS_MAX)), [RESULTS_MAX], []]
        assert [named() for _ in range(3)] == everything
        found.anew()
        again = [named() for _ in range(3)]
        assert [len(one) for one in again] == [RESULTS_MAX, 1, 0]
        assert sorted(again[0] + again[1]) == list(range(RESULTS_MAX + 1))

    def test_thousands_of_a_former_daemon_are_looked_at_in_parts(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(news, "LOOKED_MAX", 2)
        opened, _, found = self.made()
        for region in range(6):
            found.add(self.opens(opened, region, 7))
        found.due()
        found.accepted(())
        for region in range(4):
            del opened[region]
        found.anew()
        assert [(found.due(), found.wait_s()) for _ in range(3)] == [
            ([], 0.0),
            ([], 0.0),
            ([Owned(4, 7), Owned(5, 7)], news.AGAIN_S),
        ]

    def test_a_service_that_says_it_again_and_again_leaves_one_word(self) -> None:
        opened, _, found = self.made()
        for _ in range(3):
            found.add(self.opens(opened, 1, 7))
            found.due()
            found.accepted(())
        found.anew()
        assert [found.due(), len(found._told), len(found._repeated)] == [[Owned(1, 7)], 0, 0]


class TestLoads:
    def made(self, *found: RegionLoad) -> tuple[list[RegionLoad], Clock, Agent]:
        loads, clock = list(found), Clock()
        return loads, clock, Agent(Recorded(), options(StandIn()), clock=clock, region_loads=lambda: loads)

    def test_all_come_at_first_then_new_and_grown_ones_and_all_once_a_minute(self) -> None:
        loads, clock, agent = self.made(RegionLoad(1, size_bytes=100), RegionLoad(2, size_bytes=0))

        def sent() -> list[int]:
            found = agent._news.loads.due()
            agent._news.loads.accepted(found)
            return [one.region for one in found]

        assert (sent(), sent(), agent._news.loads.wait_s()) == ([1, 2], [], LOOK_S)
        loads[0] = RegionLoad(1, reads=1_000, size_bytes=110)
        loads.append(RegionLoad(3))
        clock.now_s += LOOK_S
        assert sent() == [3]
        loads[:2] = [RegionLoad(1, size_bytes=111), RegionLoad(2, size_bytes=1)]
        clock.now_s += LOOK_S
        assert sent() == [1, 2]
        clock.now_s += ALL_S
        assert sent() == [1, 2, 3]
        agent._news.loads.anew()
        assert sent() == [1, 2, 3]

    def test_many_come_in_portions_and_one_that_was_not_accepted_comes_again(self) -> None:
        _, _, agent = self.made(*(RegionLoad(number) for number in range(LOADS_MAX + 2)))
        first = agent._news.loads.due()
        assert (len(first), agent._news.loads.due()) == (LOADS_MAX, first)
        agent._news.loads.accepted(first)
        assert [one.region for one in agent._news.loads.due()] == [LOADS_MAX, LOADS_MAX + 1]

    async def test_a_service_that_fails_to_give_them_goes_on_with_all_else(
        self, caplog: pytest.LogCaptureFixture
    ) -> None:
        async with StandIn().running() as daemon:
            daemon.knows = ["loads"]
            agent = Agent(Recorded(), options(daemon), region_loads=lambda: 1 / 0)  # type: ignore[arg-type,return-value]
            await agent.start()
            daemon.send(opens(7, 1))
            await daemon.result(7)
            await agent.stop()
        assert not daemon.seen(Loads)
        assert "failed to give the loads of its regions; none are sent until the next look" in caplog.text

    async def test_a_daemon_that_does_not_know_them_gets_none(self) -> None:
        loads, _, _ = self.made(RegionLoad(1))
        async with StandIn().running() as daemon:
            agent = Agent(Recorded(), options(daemon), region_loads=lambda: loads)
            await agent.start()
            daemon.send(opens(7, 1))
            await daemon.result(7)
            await agent.stop()
        assert not daemon.seen(Loads)
