"""A daemon alone: sessions, standby, its start with every fault."""

from __future__ import annotations

import asyncio
import gc
import logging
import weakref
from collections.abc import Sequence
from unittest import mock

import pytest

from controller.role.mode import Mode
from metadata_store import paths
from metadata_store.errors import NotConnected
from metadata_store.port import SetData, Write
from state_machines.machines.draft import Draft
from state_machines.machines.partition import Unclean
from state_machines.model.cluster import Cluster
from tests.core.controller_world import World, world
from tests.core.daemon_world import DaemonRun, daemon, epoch, holder, now_s, ruling
from tests.core.virtual_time import VirtualTimeLoop, in_virtual_time
from tests.core.wire_kit import read_response, write_request
from tests.polling import eventually

EPOCH = paths.CONTROLLER_EPOCH


@pytest.mark.seed("S4-75")
@in_virtual_time
async def test_it_claims_serves_and_answers_brokers_over_its_socket() -> None:
    async with world() as w, daemon(w) as d:
        await ruling(w)
        await d.serving()
        w.die(1)
        await eventually(lambda: w.led()["t", 0] == (2, (2, 3)))
        reader, writer = await asyncio.open_connection("127.0.0.1", d.daemon.listener.port)
        frame = write_request(67, 0, 5, broker_id=2, broker_epoch=w.broker_epoch(2))
        writer.write(len(frame).to_bytes(4, "big") + frame)
        size = int.from_bytes(await reader.readexactly(4), "big")
        correlation, block = read_response(67, 0, await reader.readexactly(size))
        assert (correlation, block.error_code, block.producer_id_start, block.producer_id_len) == (5, 0, 0, 1_000)
        w.server.expire(d.session)
        assert await reader.read() == b"", "with the role its connections end"
        writer.close()


@in_virtual_time
async def test_a_flag_that_says_brokers_is_waited_for_at_no_cost() -> None:
    async with world() as w, daemon(w) as d:
        await w.give_role_to("brokers")
        await d.says("is brokers: 'regent takeover' gives the role to regent")
        assert d.daemon.mode is Mode.STANDBY
        loop = asyncio.get_running_loop()
        assert isinstance(loop, VirtualTimeLoop)
        turns, since_s = loop.turns, now_s()
        await asyncio.sleep(60.0)
        assert now_s() - since_s >= 60.0
        assert loop.turns - turns < 60 * 50
        assert holder(w) is None
        set_s = now_s()
        await w.give_role_to("regent")
        await d.serving()
        assert now_s() - set_s < 1.0, "the watch wakes it, not the poll"


@in_virtual_time
async def test_a_daemon_that_waits_keeps_nothing_of_its_last_model() -> None:
    async with world() as w, daemon(w) as d:
        await ruling(w)
        model = weakref.ref((await d.serving()).cluster)
        gc.disable()
        try:
            await w.give_role_to("brokers")
            await w.seize()
            await d.says("is brokers")
            assert model() is None
        finally:
            gc.enable()


@in_virtual_time
async def test_a_daemon_that_waits_after_errors_keeps_nothing_of_its_last_model() -> None:
    models: list[weakref.ref[Cluster]] = []

    def failing(draft: Draft, unclean: Unclean) -> None:
        models.append(weakref.ref(draft.cluster))
        raise ValueError("a bug")

    async with world() as w, daemon(w) as d:
        gc.disable()
        try:
            with (
                mock.patch("controller.handlers.failover.failover", failing),
                mock.patch("controller.term.term.log"),  # pytest keeps what is logged, with the frames of its error
            ):
                await ruling(w)
                await d.says("error 2 in a row")
            assert [model() for model in models] == [None] * 2
        finally:
            gc.enable()


async def first_of_epoch(w: World, number: int) -> None:
    await eventually(lambda: epoch(w) == number)


@in_virtual_time
async def test_a_lost_session_is_replaced_and_the_role_claimed_again() -> None:
    async with world() as w, daemon(w) as d:
        await ruling(w)
        first = await d.serving()
        for number in range(2, 5):
            w.server.expire(d.session)
            assert first.gate.ended
            await first_of_epoch(w, number)
            first = await d.serving()
            assert holder(w) == d.session
        assert d.daemon.counters.resignations["the ZooKeeper session is lost"] == 3
        assert d.daemon.counters.interim_terms == 0


@in_virtual_time
async def test_no_zookeeper_is_waited_for_second_by_second(caplog: pytest.LogCaptureFixture) -> None:
    async with world() as w:
        w.server.down = True
        async with daemon(w) as d:
            await d.says("no ZooKeeper session")
            assert {r.levelname for r in caplog.records if "no ZooKeeper session" in r.getMessage()} == {"WARNING"}
            tried = len(d.sessions)
            await asyncio.sleep(10.0)
            assert 9 <= len(d.sessions) - tried <= 11
            await ruling(w)
            w.server.down = False
            await d.serving()


@in_virtual_time
async def test_a_suspended_standby_waits_and_goes_on() -> None:
    async with world() as w, daemon(w) as d:
        await w.give_role_to("brokers")
        await d.says("is brokers")
        w.server.suspend(d.session)
        await d.says("suspended")
        await w.give_role_to("regent")
        loop = asyncio.get_running_loop()
        assert isinstance(loop, VirtualTimeLoop)
        turns = loop.turns
        await asyncio.sleep(10.0)
        assert loop.turns - turns < 10 * 50
        assert len(d.sessions) == 1
        w.server.resume(d.session)
        resumed_s = now_s()
        await d.serving()
        assert now_s() - resumed_s < 1.0
        assert epoch(w) == 1, "one claim, made when a lease allows to use it"


def outages(caplog: pytest.LogCaptureFixture) -> list[str]:
    """Ends of outages, from the length on."""
    said = [r.getMessage() for r in caplog.records]
    return [line.partition(" is connected after ")[2] for line in said if " is connected after " in line]


@pytest.mark.parametrize("holds", [False, True])
@in_virtual_time
async def test_an_outage_counts_from_the_last_answer_and_not_from_the_loss_of_the_connection(
    holds: bool, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "regent")
    async with world() as w, daemon(w) as d:
        await w.give_role_to("regent" if holds else "brokers")
        await (d.serving() if holds else d.says("is brokers"))
        assert d.daemon.lease is not None
        with mock.patch.object(d.sessions[-1], "heartbeat", side_effect=NotConnected("no answer")):
            silent_s = d.daemon.lease.silent_s()
            await asyncio.sleep(2.0)
            w.server.blip(d.session)
            await eventually(lambda: bool(outages(caplog)))
        [said] = outages(caplog)
        assert said.startswith(f"{silent_s + 2.0:.1f} s without an answered heartbeat, 0.0 s without a connection")
        assert said.endswith(", within the lease: epoch 1 goes on") is holds


@pytest.mark.parametrize("end", ["resume", "expire"])
@in_virtual_time
async def test_an_outage_that_a_term_does_not_survive_has_an_end_with_its_length_all_the_same(
    end: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "regent")
    async with world() as w, daemon(w) as d:
        await ruling(w)
        term = await d.serving()
        w.server.suspend(d.session)
        await asyncio.sleep(20.0)
        assert term.gate.ended
        assert not outages(caplog)
        {"resume": w.server.resume, "expire": w.server.expire}[end](d.session)
        await eventually(lambda: bool(outages(caplog)))
        [said] = outages(caplog)
        assert said.endswith(" 20.0 s without a connection")


class FaultAt:
    """Hooks of a daemon that bring a fault before its ``number``-th write, and note the epochs that it claims."""

    def __init__(self, w: World, d: DaemonRun, number: int, fault: str) -> None:
        self.w, self.d, self.number, self.fault = w, d, number, fault
        self.writes = 0
        self.epochs: list[int] = []

    async def before(self, ops: Sequence[Write]) -> None:
        self.writes += 1
        self.epochs += [int(op.data or b"") for op in ops if op.path == EPOCH and isinstance(op, SetData)]
        if self.writes == self.number:
            session = self.d.session
            getattr(self.w.server, self.fault)(session)
            if self.fault == "suspend":
                asyncio.get_running_loop().call_later(1.0, self.w.server.resume, session)

    async def after(self, ops: Sequence[Write]) -> None: ...


async def started_with(fault: str, number: int) -> int:
    """A start with a fault before one of its writes; returns how many it made."""
    async with world() as w, daemon(w) as d:
        hooks = FaultAt(w, d, number, fault)
        d.script.before, d.script.after = hooks.before, hooks.after  # type: ignore[method-assign]
        await ruling(w)
        w.die(1)
        await eventually(lambda: w.led()["t", 0] == (2, (2, 3)), within_s=5.0)
        await d.serving()
        assert not d.task.done()
        assert hooks.epochs == sorted(hooks.epochs)
        assert epoch(w) == hooks.epochs[-1]
        assert d.daemon.role is not None
        assert len(await d.daemon.role.queue()) == 1
        return hooks.writes


@pytest.mark.seed("S4-86")
@pytest.mark.parametrize("fault", ["suspend", "lose_replies", "lose_requests", "expire"])
@in_virtual_time
async def test_whatever_write_of_its_start_a_fault_hits_it_comes_into_office(fault: str) -> None:
    """From the first znode of the queue to the last write of taking office; never with an epoch twice."""
    number = writes = 0
    while number <= writes:
        number += 1
        writes = max(writes, await started_with(fault, number))
    assert writes >= 8


@in_virtual_time
async def test_a_place_that_somebody_removed_is_taken_again() -> None:
    async with world() as w, daemon(w) as d:
        await w.give_role_to("brokers")
        await d.says("is brokers")
        assert d.daemon.role is not None
        assert d.daemon.role.position_path is not None
        await w.operator.delete(d.daemon.role.position_path, -1)
        await eventually(lambda: len(d.sessions) == 2)
        await w.give_role_to("regent")
        await d.serving()
