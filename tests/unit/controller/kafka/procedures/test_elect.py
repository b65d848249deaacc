"""Elections of many partitions in the controller's world: waves, reasons, pauses, dry runs, unclean ones."""

from __future__ import annotations

import asyncio
from typing import Any
from unittest import mock

import pytest

from brokers.outbound.channel import PropagationLag
from controller.http.documents import ViewRefused
from controller.http.procedures import Procedure
from controller.kafka.procedures import elect as kind
from controller.operator.elections import ElectionPartition, ElectionRequest, ElectionView
from controller.operator.pauses import PauseRequest, PauseView
from state_machines.decisions import mass_election
from state_machines.decisions.leader_election import UNKNOWN, ElectionType
from state_machines.decisions.mass_election import DRAINED, MassElection
from state_machines.machines.selectors import NOTHING_LIVE, PREFERRED_BEHIND, PREFERRED_DOWN
from state_machines.procedures.record import Caller, Record
from state_machines.procedures.states import State
from tests.kit.kafka.reassignments import propagated
from tests.kit.kafka.world import KafkaWorld, in_world
from tests.unit.controller.kafka.procedures.test_drain import drained, ended
from tests.unit.controller.operator.test_view_procedures import view_of


def view(w: KafkaWorld) -> ElectionView:
    return ElectionView(lambda: w.term, view_of(w))


def request(*names: str, **more: Any) -> ElectionRequest:
    found = [ElectionPartition(topic=name[0], partition=int(name[1:])) for name in names]
    return ElectionRequest(partitions=found, all_partitions=not names, **more)


async def elected(w: KafkaWorld, *names: str, **more: Any) -> Procedure:
    """Holds an election to its end."""
    return await ended(w, (await view(w).elect(request(*names, **more), "uid 0")).pid)


def leaders(w: KafkaWorld) -> dict[str, int]:
    return {f"{topic}{number}": state.leader for (topic, number), state in sorted(w.states.items())}


async def begun(w: KafkaWorld) -> None:
    """Broker 1 is the preferred leader of a and b, and was away: brokers 2 and 3 lead."""
    await w.topic("a", (1, 2, 3), (1, 3, 2), (2, 3, 1), leaders=True)
    await w.topic("b", (1, 2, 3), (3, 1, 2), leaders=True)
    await w.begin_term()
    await propagated(w)
    w.die(1)
    await w.settle()
    await w.boot(1)
    await w.settle()
    await propagated(w)
    w.forget()


async def in_sync(w: KafkaWorld, *names: str) -> None:
    """Broker 1 is back in the ISR of partitions."""
    for name in names:
        state = w.states[name[0], int(name[1:])]
        proposal = w.proposal(name[0], int(name[1:]), isr=(*state.isr, 1))
        await w.alter_partition(state.leader, proposal)
    await w.settle()


@in_world(1, 2, 3, auto_leader_rebalance_enable=False)
async def test_all_partitions_get_their_preferred_leaders_and_the_result_names_those_that_stay(w: KafkaWorld) -> None:
    await begun(w)
    await in_sync(w, "a0", "b0")
    before = leaders(w)
    planned = await view(w).elect(request(dry_run=True), "uid 0")
    assert planned.detail == (f"2 elected; 2 led by the preferred replica already; 1 refused (a-1): {PREFERRED_BEHIND}")
    assert leaders(w) == before
    found = await elected(w)
    assert (found.state, found.result) == ("success", planned.detail)
    assert leaders(w) == {"a0": 1, "a1": 3, "a2": 2, "b0": 1, "b1": 3}
    w.agreed()


@pytest.mark.seed("S2-7")
@in_world(1, 2, 3, auto_leader_rebalance_enable=False)
async def test_waves_are_by_name_each_in_the_record_before_it_is_carried_out(w: KafkaWorld) -> None:
    await begun(w)
    await in_sync(w, "a0", "a1", "b0")
    w.forget()
    found = await elected(w, batch_max=2)
    writes = [[name.split("/")[3:6:2] for name in names if name.endswith("/state")] for names in w.active.script.writes]
    assert [wave for wave in writes if wave] == [[["a", "0"], ["a", "1"]], [["b", "0"]]]
    assert found.result.startswith("3 elected")


@in_world(1, 2, 3, auto_leader_rebalance_enable=False)
async def test_an_election_of_partitions_that_do_not_exist_is_refused_as_a_whole_with_their_names(
    w: KafkaWorld,
) -> None:
    await begun(w)
    await in_sync(w, "b0")
    why = "2 partitions do not exist: a-7, z-0; nothing is elected"
    for dry_run in (True, False):
        with pytest.raises(ViewRefused, match=why):
            await view(w).elect(request("b0", "a7", "z0", dry_run=dry_run), "uid 0")
    assert leaders(w)["b0"] != 1


@in_world(1, 2, 3, auto_leader_rebalance_enable=False)
async def test_a_repeated_election_is_found_although_its_topic_is_gone_since(w: KafkaWorld) -> None:
    await begun(w)
    first = await view(w).elect(request("b0", nonce="n"), "uid 0")
    await w.settle()
    await w.delete_topic("b")
    await w.settle()
    assert w.term.cluster.find("b", 0) is None
    assert (await view(w).elect(request("b0", nonce="n"), "uid 0")).pid == first.pid
    with pytest.raises(ViewRefused, match="1 partition does not exist: b-0"):
        await view(w).elect(request("b0", nonce="other"), "uid 0")


@in_world(1, 2, 3, auto_leader_rebalance_enable=False)
async def test_named_partitions_alone_are_elected_and_those_that_vanished_are_counted(w: KafkaWorld) -> None:
    await begun(w)
    await in_sync(w, "a0", "b0")
    names = (("b", 0), ("a", 7), ("z", 0))
    order = kind.encode_election(mass_election.MassElection(ElectionType.PREFERRED, names, 1_000))
    found = await ended(w, await w.term.procedures.engine.submit(kind.NAME, order, Caller(principal="uid 0")))
    assert found.result == (f"1 elected; 0 led by the preferred replica already; 2 refused (a-7, z-0): {UNKNOWN}")
    assert leaders(w)["a0"] == 2


@in_world(1, 2, 3, auto_leader_rebalance_enable=False)
async def test_a_pause_of_moves_holds_preferred_elections_up_and_unclean_ones_go_on(w: KafkaWorld) -> None:
    await begun(w)
    await in_sync(w, "a0")
    pauses = PauseView(lambda: w.term)
    await pauses.pause(PauseRequest(), "uid 0")
    await w.settle()
    waiting = await view(w).elect(request(), "uid 0")
    await asyncio.sleep(1)
    await w.settle()
    assert leaders(w)["a0"] == 2
    await pauses.resume()
    await w.settle()
    await asyncio.sleep(1)
    assert (await ended(w, waiting.pid)).state == "success"
    assert leaders(w)["a0"] == 1
    await pauses.pause(PauseRequest(), "uid 0")
    await w.settle()
    assert (await elected(w, "a0", kind="unclean")).result == "0 elected; 1 led already"


@in_world(1, 2, 3, auto_leader_rebalance_enable=False)
async def test_drained_brokers_get_no_leader_back(w: KafkaWorld) -> None:
    await begun(w)
    await in_sync(w, "a0", "b0")
    await drained(w, 1)
    assert f"2 refused (a-0, b-0): {DRAINED}" in (await elected(w)).result


@in_world(1, 2, 3, auto_leader_rebalance_enable=False)
async def test_a_stopped_election_ends_with_its_wave(w: KafkaWorld) -> None:
    await begun(w)
    await in_sync(w, "a0", "a1", "b0")
    with mock.patch.object(kind, "brokers_are_behind", side_effect=lambda *_: leaders(w)["a0"] == 1):
        found = await view(w).elect(request(batch_max=1), "uid 0")
        await w.settle()
        await view_of(w).commanded(found.pid, kind.STOP)
        await w.settle()
    assert (await ended(w, found.pid)).result == "1 elected; 0 led by the preferred replica already"


@in_world(1, 2, 3, auto_leader_rebalance_enable=False)
async def test_an_unclean_election_names_the_partitions_that_may_have_lost_records(w: KafkaWorld) -> None:
    await w.topic("a", (1, 2), (1,), leaders=True)
    await w.begin_term()
    await propagated(w)
    w.die(2)
    await w.settle()
    w.die(1)
    await w.settle()
    await w.boot(2)
    await w.settle()
    assert leaders(w) == {"a0": -1, "a1": -1}
    found = await elected(w, "a0", "a1", kind="unclean")
    assert found.result == (f"1 elected; 0 led already; 1 refused (a-1): {NOTHING_LIVE}; 1 may have lost records (a-0)")
    assert leaders(w) == {"a0": 2, "a1": -1}


@pytest.mark.parametrize(
    ("request_", "why"),
    [
        (ElectionRequest(), "name partitions, or give allPartitions"),
        (ElectionRequest(kind="unclean", all_partitions=True), "an unclean election of all partitions is not held"),
    ],
)
@in_world(1, 2, 3)
async def test_an_election_of_nothing_or_an_unclean_one_of_everything_is_refused(
    w: KafkaWorld, request_: ElectionRequest, why: str
) -> None:
    await begun(w)
    with pytest.raises(ViewRefused, match=why):
        await view(w).elect(request_, "uid 0")


@in_world(1, 2, 3, auto_leader_rebalance_enable=False)
async def test_the_result_names_some_partitions_of_a_reason_and_counts_all(w: KafkaWorld) -> None:
    await w.topic("a", *[(1, 2)] * 5, leaders=True)
    await w.begin_term()
    await propagated(w)
    w.die(1)
    await w.settle()
    with mock.patch.object(mass_election, "NAMED_MAX", 2), mock.patch.object(mass_election, "LOOKED_AT_MAX", 2):
        found = await elected(w)
    assert found.result == (
        f"0 elected; 0 led by the preferred replica already; 5 refused (a-0, a-1 and 3 more): {PREFERRED_DOWN}"
    )


@in_world(1, 2, 3, auto_leader_rebalance_enable=False)
async def test_an_election_that_was_stopped_while_its_wave_was_stored_elects_and_counts_that_wave(
    w: KafkaWorld,
) -> None:
    await begun(w)
    await in_sync(w, "a0", "a1", "b0")
    election = MassElection(ElectionType.PREFERRED, batch_max=2, wave=(("a", 0), ("a", 1)), after=("a", 1), already=4)
    stopped = kind.command(
        Record(7, kind.NAME, State.RUNNABLE, 0, 0, 0, data=kind.encode_election(election)), kind.STOP
    )
    pid = await w.term.procedures.engine.submit(kind.NAME, stopped, Caller(nonce="one"))
    await w.settle()
    assert (await ended(w, pid)).result == "2 elected; 4 led by the preferred replica already"
    assert [leaders(w)[name] for name in ("a0", "a1", "b0")] == [1, 1, 2], "b-0 was not judged yet"


@in_world(1, 2, 3, auto_leader_rebalance_enable=False)
async def test_a_wave_waits_for_brokers_that_are_further_behind_than_a_wave_is_long(w: KafkaWorld) -> None:
    await begun(w)
    await in_sync(w, "a0", "b0")
    lag = {2: PropagationLag(2, 7, connected=True, oldest_s=1.0, partitions=2, last_error=None)}
    with mock.patch.object(w.term.controller.channels, "lag", return_value=lag):
        waits = (await view(w).elect(request(batch_max=1), "uid 0")).pid
        await asyncio.sleep(1)
        await w.settle()
        assert leaders(w)["a0"] != 1
        await view_of(w).abort(waits)
        await ended(w, waits)
        assert (await elected(w, batch_max=2)).result.startswith("2 elected")


@in_world(1, 2, 3, auto_leader_rebalance_enable=False)
async def test_a_second_election_judges_nothing_before_the_first_has_ended(w: KafkaWorld) -> None:
    await begun(w)
    await in_sync(w, "a0", "b0")
    engine = w.term.procedures.engine
    data = kind.encode_election(MassElection(ElectionType.PREFERRED))
    with mock.patch.object(kind, "brokers_are_behind", return_value=True) as looks:
        first = await engine.submit(kind.NAME, data, Caller(nonce="one"))
        second = await engine.submit(kind.NAME, data, Caller(nonce="two"))
        await w.settle()
        assert looks.call_count == 1
    await asyncio.sleep(1)
    assert (await ended(w, first)).result.startswith("2 elected; 2 led")
    assert (await ended(w, second)).result.startswith("0 elected; 4 led")
