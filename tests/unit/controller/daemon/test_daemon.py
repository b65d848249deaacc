"""Runs one daemon: its sessions, its standby, its outages, and its start with every fault."""

from __future__ import annotations

import asyncio
import gc
import logging
import weakref
from collections.abc import Sequence
from unittest import mock

import pytest

from controller.daemon.state import Mode
from controller.kafka.path.controller import Controller
from metadata_store import paths
from metadata_store.errors import NotConnected
from metadata_store.port import SetData, Write
from state_machines.model.cluster import Cluster
from tests.kit.deadlines import eventually, in_exact_time, in_virtual_time
from tests.kit.kafka.daemons import DaemonRun, daemon, epoch, holder, idle_turns, now_s, regent_has_role
from tests.kit.kafka.world import KafkaWorld, world
from tests.kit.wire import read_response, write_request

EPOCH = paths.CONTROLLER_EPOCH


@pytest.mark.seed("S4-75")
@in_virtual_time
async def test_a_serving_daemon_responds_to_brokers_on_its_socket_until_its_session_ends() -> None:
    async with world() as w, daemon(w) as d:
        await regent_has_role(w)
        await d.serving()
        w.die(1)
        await eventually(lambda: w.leaders()["t", 0] == (2, (2, 3)))
        reader, writer = await asyncio.open_connection("127.0.0.1", d.daemon.listener.port)
        frame = write_request(67, 0, 5, broker_id=2, broker_epoch=w.broker_epoch(2))
        writer.write(len(frame).to_bytes(4, "big") + frame)
        size = int.from_bytes(await reader.readexactly(4), "big")
        correlation, block = read_response(67, 0, await reader.readexactly(size))
        assert (correlation, block.error_code, block.producer_id_start, block.producer_id_len) == (5, 0, 0, 1_000)
        w.server.expire(d.session)
        assert await reader.read() == b""
        writer.close()


@in_exact_time
async def test_a_standby_costs_nothing_while_the_flag_is_brokers_and_claims_once_it_changes() -> None:
    async with world() as w, daemon(w) as d:
        await w.give_role_to("brokers")
        await d.reason_contains("is brokers: 'regent takeover' gives the role to regent")
        assert d.daemon.mode is Mode.STANDBY
        turns_per_s = idle_turns()
        await asyncio.sleep(60.0)
        assert turns_per_s() < 50
        assert holder(w) is None
        set_s = now_s()
        await w.give_role_to("regent")
        await d.serving()
        assert now_s() - set_s < 1.0, "the watch wakes it, not the poll"


@in_exact_time
async def test_a_standby_keeps_nothing_of_its_last_model() -> None:
    async with world() as w, daemon(w) as d:
        await regent_has_role(w)
        model = weakref.ref((await d.serving()).cluster)
        gc.disable()
        try:
            await w.give_role_to("brokers")
            await w.seize()
            await d.reason_contains("is brokers")
            assert model() is None
        finally:
            gc.enable()


@in_exact_time
async def test_a_daemon_blocked_by_errors_keeps_nothing_of_its_last_model() -> None:
    models: list[weakref.ref[Cluster]] = []

    async def failing(c: Controller) -> None:
        models.append(weakref.ref(c.cluster))
        raise ValueError("a bug")

    async with world() as w, daemon(w) as d:
        gc.disable()
        try:
            with (
                mock.patch("controller.kafka.term.failover.touched_rows", failing),
                # pytest keeps what is logged, with the frames of its error
                mock.patch("controller.kafka.term.term.log"),
            ):
                await regent_has_role(w)
                await d.reason_contains("error 2 in a row")
            assert [model() for model in models] == [None] * 2
        finally:
            gc.enable()


@in_exact_time
async def test_a_lost_session_is_replaced_and_the_role_claimed_again() -> None:
    async with world() as w, daemon(w) as d:
        await regent_has_role(w)
        first = await d.serving()
        for number in range(2, 5):
            w.server.expire(d.session)
            assert first.gate.ended
            await eventually(lambda: epoch(w) == number)  # noqa: B023 - awaited here
            first = await d.serving()
            assert holder(w) == d.session
        assert d.daemon.counters.resignations["the ZooKeeper session is lost"] == 3
        assert d.daemon.counters.interim_terms == 0


@in_exact_time
async def test_a_suspended_standby_claims_once_its_lease_is_valid() -> None:
    async with world() as w, daemon(w) as d:
        await w.give_role_to("brokers")
        await d.reason_contains("is brokers")
        w.server.suspend(d.session)
        await d.reason_contains("suspended")
        await w.give_role_to("regent")
        turns_per_s = idle_turns()
        await asyncio.sleep(10.0)
        assert turns_per_s() < 50
        assert len(d.sessions) == 1
        w.server.resume(d.session)
        resumed_s = now_s()
        await d.serving()
        assert now_s() - resumed_s < 1.0
        assert epoch(w) == 1, "one claim"


def outages(caplog: pytest.LogCaptureFixture) -> list[str]:
    """Returns the log lines on the ends of outages, from the length on."""
    lines = [r.getMessage().partition(" is connected after ") for r in caplog.records]
    return [length for _, found, length in lines if found]


@pytest.mark.parametrize("holds", [False, True])
@in_exact_time
async def test_an_outage_counts_from_the_last_answered_heartbeat(holds: bool, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "regent")
    async with world() as w, daemon(w) as d:
        await w.give_role_to("regent" if holds else "brokers")
        await (d.serving() if holds else d.reason_contains("is brokers"))
        assert d.daemon.lease is not None
        with mock.patch.object(d.sessions[-1], "heartbeat", side_effect=NotConnected("no answer")):
            silent_s = d.daemon.lease.silent_s()
            await asyncio.sleep(2.0)
            w.server.reconnect(d.session)
            await eventually(lambda: bool(outages(caplog)))
        [length] = outages(caplog)
        assert length.startswith(f"{silent_s + 2.0:.1f} s without an answered heartbeat, 0.0 s without a connection")
        assert length.endswith(", within the lease: epoch 1 goes on") is holds


@pytest.mark.parametrize("end", ["resume", "expire"])
@in_exact_time
async def test_an_outage_longer_than_the_lease_costs_the_term_only_where_the_session_expires(
    end: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "regent")
    async with world() as w, daemon(w) as d:
        await regent_has_role(w)
        term = await d.serving()
        w.server.suspend(d.session)
        turns_per_s = idle_turns()
        await asyncio.sleep(20.0)
        assert (term.stands_still, term.gate.ended, outages(caplog)) == (True, False, [])
        assert turns_per_s() < 50
        {"resume": w.server.resume, "expire": w.server.expire}[end](d.session)
        await eventually(lambda: bool(outages(caplog)))
        [length] = outages(caplog)
        gone_on = ", after the lease had run out, and session and claim are unchanged: epoch 1 goes on"
        assert length.endswith(" s without a connection" + (gone_on if end == "resume" else ""))
        await eventually(lambda: d.daemon.mode is Mode.ACTIVE)
        assert (d.daemon.term is term, epoch(w)) == ((True, 1) if end == "resume" else (False, 2))
        assert d.daemon.counters.standstills == 1


class FaultAt:
    """Brings a fault before the ``number``-th write of a daemon, and records the epochs that it claims."""

    def __init__(self, w: KafkaWorld, d: DaemonRun, number: int, fault: str) -> None:
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
    """Starts a daemon with a fault before one of its writes; returns the number of writes."""
    async with world() as w, daemon(w) as d:
        hooks = FaultAt(w, d, number, fault)
        d.script.before, d.script.after = hooks.before, hooks.after  # type: ignore[method-assign]
        await regent_has_role(w)
        w.die(1)
        await eventually(lambda: w.leaders()["t", 0] == (2, (2, 3)))
        await d.serving()
        assert not d.task.done()
        assert hooks.epochs == sorted(hooks.epochs)
        assert epoch(w) == hooks.epochs[-1]
        assert d.daemon.role is not None
        assert len(await d.daemon.role.queue()) == 1
        return hooks.writes


@pytest.mark.seed("S4-86")
@pytest.mark.parametrize("fault", ["suspend", "lose_replies", "lose_requests", "expire"])
@in_exact_time
async def test_a_fault_at_any_write_of_the_start_delays_the_term_only(fault: str) -> None:
    """Covers each write from the first znode of the queue until the term serves; no epoch is claimed twice."""
    number = writes = 0
    while number <= writes:
        number += 1
        writes = max(writes, await started_with(fault, number))
    assert writes >= 8


@in_exact_time
async def test_a_removed_queue_position_is_replaced_with_a_new_session() -> None:
    async with world() as w, daemon(w) as d:
        await w.give_role_to("brokers")
        await d.reason_contains("is brokers")
        assert d.daemon.role is not None
        assert d.daemon.role.position_path is not None
        await w.operator.delete(d.daemon.role.position_path, -1)
        await eventually(lambda: len(d.sessions) == 2)
        await w.give_role_to("regent")
        await d.serving()
