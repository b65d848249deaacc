"""The facade for programs with threads."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from regent_agent.agent import Died
from regent_agent.options import AgentOptions
from regent_agent.protocol import (
    CLOSED,
    DEAD,
    DONE,
    FAILED_OPEN,
    OPENED,
    Independent,
    Leave,
    Left,
    Loads,
    Owned,
    Poll,
    Published,
    Refused,
    RegionLoad,
    Request,
    Response,
)
from regent_agent.service import OpenedRegion
from regent_agent.threads import LoopThread, ThreadedAgent, ThreadedRouter
from tests.kit.deadlines import WITHIN_S
from tests.unit.regent_agent.kit import StandIn, closes, opens, options, task, works
from tests.unit.regent_agent.test_router import Catalog
from tests.unit.regent_agent.test_routes import HIGH, LOW

ACL = Published("acl", 2, b"7")


class Blocking:
    """A service of plain functions that notes in which threads it is called."""

    def __init__(self) -> None:
        self.calls: list[tuple[object, ...]] = []
        self.threads: set[str] = set()
        self.together = threading.Barrier(2, timeout=WITHIN_S)

    def open(self, region: OpenedRegion) -> int:
        self.threads.add(threading.current_thread().name)
        if region.region < 3:
            self.together.wait()  # two regions are opened side by side
        return 100 + region.region

    def close(self, region: OpenedRegion) -> None:
        self.calls.append(("close", region.region))

    def fence(self, server: str, incarnation: int) -> list[str]:
        return [f"{server}-{incarnation}"]

    def split(self, server: str, incarnation: int, part: str) -> None:
        self.calls.append(("split", part))

    def work(self, what: str, region: OpenedRegion | None, data: bytes) -> bytes:
        self.calls.append((what, region and region.region))
        return data[::-1]

    def suspend(self) -> None:
        self.calls.append(("suspend",))

    def resume(self) -> None:
        self.calls.append(("resume",))


class Served:
    """A stand-in of the daemon in a thread of its own."""

    def __init__(self, daemon: StandIn) -> None:
        self.daemon = daemon
        self.loop = LoopThread("stand-in")

    @contextmanager
    def running(self) -> Iterator[StandIn]:
        context = self.daemon.running()
        self.loop.run(context.__aenter__())
        try:
            yield self.daemon
        finally:
            self.loop.run(context.__aexit__(None, None, None))
            self.loop.stop()


@contextmanager
def agent_of(service: Blocking, chosen: AgentOptions) -> Iterator[ThreadedAgent]:
    agent = ThreadedAgent(service, chosen, load=lambda: {"requests": 1})
    try:
        agent.start(60)
        yield agent
    finally:
        agent.stop()


def test_regions_are_opened_side_by_side_in_threads() -> None:
    service, served = Blocking(), Served(StandIn())
    with served.running() as daemon, agent_of(service, options(daemon)) as agent:
        served.loop.call(lambda: daemon.send(opens(7, 1), opens(8, 2), task(9, "fence"), task(10, "split", "p")))
        for pid, outcome in ((7, OPENED), (8, OPENED), (9, DONE), (10, DONE)):
            assert served.loop.run(daemon.result(pid)).outcome == outcome
        assert agent.serving
        assert agent.owns(1, 7)
        assert sorted(agent.owned) == [1, 2]
        served.loop.call(lambda: daemon.send(closes(11, 1, 7)))
        assert served.loop.run(daemon.result(11)).outcome == CLOSED
        assert not agent.owns(1)
    assert not agent.owns(2)
    assert sorted(map(str, service.calls)) == ["('close', 1)", "('split', 'p')", "('suspend',)"]
    assert len(service.threads) == 2
    assert daemon.seen(Poll)[0].load == {"requests": 1}


def test_work_is_done_in_threads_and_a_region_is_said_to_be_independent() -> None:
    service, served = Blocking(), Served(StandIn())
    served.daemon.knows, served.daemon.published = ["independent", "loads"], [ACL]
    with served.running() as daemon:
        agent = ThreadedAgent(service, options(daemon), region_loads=lambda: [RegionLoad(5, 1, 2, 3, 4)])
        agent.start(60)
        assert agent.published == {"acl": ACL}
        served.loop.call(lambda: daemon.send(opens(7, 5), works(8, "x-compact", 5, 7, b"ab"), works(9, "x-acl")))
        assert served.loop.run(daemon.result(8)).data == b"ba"
        assert served.loop.run(daemon.result(9)).outcome == DONE
        agent.independent(agent.owned[5])
        assert served.loop.run(daemon.arrived(Independent)).regions == [Owned(5, 7)]
        assert served.loop.run(daemon.arrived(Loads)).loads == [RegionLoad(5, 1, 2, 3, 4)]
        agent.stop()
    assert {call for call in service.calls if call[0] != "suspend"} == {("x-compact", 5), ("x-acl", None)}


def test_a_dead_server_is_told() -> None:
    service, served = Blocking(), Served(StandIn(hold_ms=20))
    with served.running() as daemon, agent_of(service, options(daemon)) as agent:

        async def dead(request: Request) -> Response:
            return Refused(DEAD, "fenced")

        served.loop.call(lambda: daemon.responses.update({Poll: dead}))
        assert agent.died.wait(WITHIN_S)
        assert not agent.serving
        with pytest.raises(Died, match=r"server s1 incarnation 5 is no member any more: .* refused: fenced \(dead\)"):
            agent.start(60)
    assert service.calls == [("suspend",)]


def test_a_server_leaves() -> None:
    served = Served(StandIn())
    with served.running() as daemon, agent_of(Blocking(), options(daemon)) as agent:

        async def left(request: Request) -> Response:
            return Left(0)

        served.loop.call(lambda: daemon.responses.update({Leave: left}))
        assert agent.leave(60)


def test_a_start_without_a_daemon_goes_on_behind_its_deadline(unused_tcp_port: int) -> None:
    served = Served(StandIn())
    served.daemon.address = ("127.0.0.1", unused_tcp_port)
    agent = ThreadedAgent(Blocking(), options(served.daemon))
    assert not agent.leave(0.1)
    with pytest.raises(TimeoutError):
        agent.start(0.1)
    context = served.daemon.running(unused_tcp_port)
    served.loop.run(context.__aenter__())
    agent.start(60)
    assert agent.serving
    agent.stop()
    agent.stop()
    served.loop.run(context.__aexit__(None, None, None))
    served.loop.stop()


def test_a_callback_that_runs_out_of_something_has_a_result_like_any_failure() -> None:
    """No future takes a StopIteration: the operation would never end."""
    service, served = Blocking(), Served(StandIn())

    def open_it(region: OpenedRegion) -> int:
        return next(iter(()))

    service.open = open_it  # type: ignore[method-assign]
    with served.running() as daemon, agent_of(service, options(daemon)):
        served.loop.call(lambda: daemon.send(opens(7, 5)))
        result = served.loop.run(daemon.result(7))
        assert (result.outcome, "StopIteration" in result.text) == (FAILED_OPEN, True)


def test_a_stop_does_not_wait_for_a_callback() -> None:
    service, served = Blocking(), Served(StandIn())
    entered, release, left = threading.Event(), threading.Event(), threading.Event()

    def close(region: OpenedRegion) -> None:
        entered.set()
        release.wait(20)
        left.set()

    service.close = close  # type: ignore[method-assign]
    with served.running() as daemon:
        with agent_of(service, options(daemon)):
            served.loop.call(lambda: daemon.send(opens(7, 5), closes(8, 5, 7)))
            assert entered.wait(WITHIN_S)
        assert not left.is_set()
        release.set()


def test_keys_are_located_from_threads() -> None:
    served = Served(Catalog())
    with served.running() as daemon:
        router = ThreadedRouter([daemon.address])
        found = list[object]()
        workers = [threading.Thread(target=lambda: found.append(router.locate("t", b"a"))) for _ in range(4)]
        for worker in workers:
            worker.start()
        for worker in workers:
            worker.join()
        assert found == [LOW] * 4
        router.invalidate(LOW)
        assert router.routes("t") == [LOW, HIGH]
        router.stop()


def test_a_service_learns_how_it_is_fenced_and_which_incarnation_is_next() -> None:
    said: list[str] = []
    served = Served(StandIn(hold_ms=20))
    with served.running() as daemon:
        agent = ThreadedAgent(Blocking(), options(daemon), fenced_by=said.append)
        assert (agent.fence, agent.incarnation, agent.above) == ("", 5, 0)
        agent.start(60)
        assert said == [agent.fence] == ["lease"]

        async def dead(request: Request) -> Response:
            return Refused(DEAD, "fenced", 9)

        served.loop.call(lambda: daemon.responses.update({Poll: dead}))
        assert agent.died.wait(WITHIN_S)
        assert agent.above == 9
        agent.stop()
