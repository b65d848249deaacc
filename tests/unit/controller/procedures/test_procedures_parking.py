"""Steps that end terms, or that no store can write: one procedure stands still, is seen, and can be ended."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence
from unittest import mock

import pytest

from controller.procedures import parking as parking_module
from controller.procedures import turns, writes
from controller.procedures.kinds import Kind, Step
from controller.procedures.parking import EARLY_MAX, TERMS_MAX, Parking
from controller.procedures.requests import Bypass, ProcedureRefused
from metadata_store.records import codec
from metadata_store.records.port import Fenced, StoreFailed, Unstorable
from state_machines.procedures.locks import Demand, Resource, Scope
from state_machines.procedures.outcome import Children, Failed, Next, Outcome, Retry, Wait
from state_machines.procedures.record import NO_ENDING, Ending, Record, child
from state_machines.procedures.states import State
from state_machines.procedures.transition import Transition
from testing.memory.region_store import Disk, MemoryRecords
from tests.kills.harness import Clock, Daemon, Notes, arrives, fails, last, noting, onwards, step, topic, undo
from tests.unit.controller.procedures.test_procedures_engine import NOBODY, OPS, Host, submitted

TERMS: int = 2 * TERMS_MAX
FAULTS = ("store", "codec", "kernel", "entered")


class Picky(MemoryRecords):
    """A store that refuses what steps of the kind ``bad`` have made."""

    async def write(self, puts: Iterable[Record], deletes: Iterable[int] = (), rows: Iterable[object] = ()) -> None:
        """Refuses a write as a whole."""
        written = tuple(puts)
        if any(one.kind == "bad" and one.step == 2 and not one.bypassed for one in written):
            raise Unstorable("a record is refused")
        await super().write(written, deletes, rows)


def breaks(fault: str) -> Kind[Notes]:
    """Returns a kind whose second step makes what a part of the daemon does not take."""

    def makes(_: Notes, record: Record) -> Outcome:
        if fault == "codec":
            return Wait(object(), record.data)  # type: ignore[arg-type]
        if fault == "entered":
            return Retry("a broker is away")
        return Next(2, None if fault == "kernel" else record.data)  # type: ignore[arg-type]

    return Kind("bad", (step(arrives), step(makes), step(last)), topic, holds_locks=True)


def _is_refused(moved: Transition) -> bool:
    after = moved.after
    return after.kind == "bad" and after.attempts > 0 and not after.bypassed


class Terms:
    """Terms of one daemon on one disk: the next one begins where one ends by an error. ``ended`` counts them."""

    def __init__(self, fault: str) -> None:
        self.fault = fault
        self.host = Host(breaks(fault), Kind("good", (step(arrives), step(), step(last)), topic))
        self.parking = Parking()
        self.ended = 0

    async def begin(self) -> Daemon[Notes]:
        store = Picky(self.host.disk) if self.fault == "store" else MemoryRecords(self.host.disk)
        daemon = Daemon(self.host.notes, self.host.kinds, store, self.host.clock, self._entered, self.parking)
        await daemon.engine.load()
        return daemon

    def _entered(self, moved: Sequence[Transition]) -> None:
        if self.fault == "entered" and any(map(_is_refused, moved)):
            raise LookupError("the model does not know it")

    async def until_parked(self) -> Daemon[Notes]:
        """Runs terms until a procedure is parked."""
        while True:
            daemon = await self.begin()
            if self.parking.parked:
                return daemon
            with pytest.raises((Unstorable, TypeError, LookupError)) as error:
                await daemon.until(lambda: False)
            daemon.engine.close(error.value)
            self.ended += 1
            assert self.ended <= TERMS

    async def prepared(self) -> tuple[int, list[int]]:
        """Submits the procedure, one that waits for its lock, and others; they go on from the next term."""
        first = await self.begin()
        bad = await submitted(first, "bad")
        found = [await submitted(first, "good", data) for data in (b"t", b"a", b"b", b"c")]
        first.engine.close(StoreFailed("the daemon stops"))
        self.host.notes.arrived = True
        return bad, found


@pytest.mark.parametrize("fault", FAULTS)
async def test_a_procedure_whose_step_ends_terms_is_parked_and_can_be_ended(fault: str) -> None:
    terms = Terms(fault)
    bad, (behind, *others) = await terms.prepared()
    daemon = await terms.until_parked()
    assert TERMS_MAX <= terms.ended <= TERMS_MAX + 1, "the first one found several under way"
    assert list(daemon.engine.parked) == [bad], "none of those that were written together with it"
    assert f"its step ended {TERMS_MAX} terms in a row" in daemon.engine.parked[bad]
    await daemon.until(lambda: all(daemon.engine.records[pid].state.is_final for pid in others))
    assert not daemon.engine.records[behind].state.is_final, "its lock is kept"
    runs = terms.host.notes.runs.copy()
    daemon.engine.wake(bad)
    for _ in range(20):
        await daemon.engine.turn()
    assert terms.host.notes.runs == runs, "it is not run, whatever wakes it"
    assert await daemon.run(daemon.engine.bypass(bad, Ending("bypass", "User:ops")))
    await daemon.until(lambda: daemon.engine.records[bad].state is State.SUCCESS)
    await daemon.until(lambda: daemon.engine.records[behind].state is State.SUCCESS)
    assert not daemon.engine.parked, "status and alert name it no more"


async def test_the_culprit_is_found_beside_a_procedure_that_is_always_at_work() -> None:
    def goes_round(_: Notes, record: Record) -> Outcome:
        return Next(0, b"%d" % (int(record.data) + 1))

    def apart(_: Record) -> Demand:
        return Demand(Resource(Scope.TOPIC, "busy"), exclusive=True)

    terms = Terms("store")
    terms.host.kinds = (*terms.host.kinds, Kind("busy", (step(goes_round),), apart, no_return=0))
    with mock.patch.object(turns, "RECORDS_MAX", 10), mock.patch.object(writes, "RECORDS_MAX", 10):
        first = await terms.begin()
        busy = await submitted(first, "busy", b"0")
        bad = await submitted(first, "bad")
        first.engine.close(StoreFailed("the daemon stops"))
        terms.host.notes.arrived = True
        daemon = await terms.until_parked()
        assert list(daemon.engine.parked) == [bad]
        assert terms.ended <= TERMS_MAX + 1
        done = int(daemon.engine.records[busy].data)
        await daemon.until(lambda: int(daemon.engine.records[busy].data) > done)


@pytest.mark.parametrize("where", ["has_room", "add"])
async def test_a_fault_between_a_step_and_its_write_is_that_of_the_step_alone(where: str) -> None:
    """Others of the same turn are ready to be written: none of them is a suspect."""
    terms = Terms("model")
    bad, _ = await terms.prepared()
    of = getattr(writes.Group, where)

    def fails(self: writes.Group, decided: writes.Decided) -> object:
        if any(put.pid == bad and put.step == 2 and not put.bypassed for put in decided.change.puts):
            raise LookupError("its rows cannot be weighed")
        return of(self, decided)

    with mock.patch.object(writes.Group, where, fails):
        with pytest.raises(LookupError):
            await (await terms.begin()).until(lambda: False)
        assert terms.parking.suspects == {bad: 1}
        daemon = await terms.until_parked()
        assert (list(daemon.engine.parked), terms.ended) == ([bad], TERMS_MAX - 1)
        assert await daemon.run(daemon.engine.bypass(bad))


async def test_a_bypass_is_carried_out_before_the_step_that_ends_terms() -> None:
    """After the first such term: the procedure is not parked yet, and would end the next term, too."""
    terms = Terms("store")
    bad, (behind, *_) = await terms.prepared()
    with pytest.raises(Unstorable):
        await (await terms.begin()).until(lambda: False)
    early = terms.parking.ask(Bypass(bad, Ending("bypass", "User:ops")))
    gone = terms.parking.ask(Bypass(behind, NO_ENDING))
    gone.cancel()
    daemon = await terms.begin()
    await daemon.until(lambda: daemon.engine.records[bad].state is State.SUCCESS)
    assert (await early, daemon.engine.records[bad].ending.principal) == (bad, "User:ops")
    assert not terms.parking.suspects
    assert not daemon.engine.records[behind].bypassed, "its caller has gone, and has sent no other request"


async def test_a_request_before_a_term_that_never_runs_waits_for_the_one_after() -> None:
    """A load that fails after the engine has read its records is followed by another one."""
    terms = Terms("store")
    bad, _ = await terms.prepared()
    with pytest.raises(Unstorable):
        await (await terms.begin()).until(lambda: False)
    early = asyncio.ensure_future(terms.parking.asked(Bypass(bad, NO_ENDING), lambda: "the disk is full"))
    await asyncio.sleep(0)
    for how in ("closed", "forgotten"):
        unused = await terms.begin()
        if how == "closed":
            unused.engine.close(StoreFailed("the model cannot be entered"))
    assert not early.done()
    daemon = await terms.begin()
    assert await daemon.run(early)
    await daemon.until(lambda: daemon.engine.records[bad].state is State.SUCCESS)


async def test_a_request_that_no_term_takes_is_refused_with_the_cause_and_never_carried_out() -> None:
    terms = Terms("store")
    bad, _ = await terms.prepared()
    with (
        mock.patch.object(parking_module, "EARLY_S", 0.01),
        pytest.raises(ProcedureRefused, match=r"disk is full.*: try again"),
    ):
        await terms.parking.asked(Bypass(bad, NO_ENDING), lambda: "the disk is full")
    daemon = await terms.begin()
    with pytest.raises(Unstorable):
        await daemon.until(lambda: False)
    assert not daemon.engine.records[bad].bypassed


async def test_a_request_that_a_term_has_taken_has_the_time_that_it_takes() -> None:
    """A large family is removed in parts; the term, which began in time, responds once all of it is done."""
    terms = Terms("store")
    bad, _ = await terms.prepared()
    with pytest.raises(Unstorable):
        await (await terms.begin()).until(lambda: False)
    daemon = await terms.begin()
    with mock.patch.object(parking_module, "EARLY_S", 0.01):
        early = asyncio.ensure_future(terms.parking.asked(Bypass(bad, NO_ENDING), lambda: "late"))
        await asyncio.sleep(0)
        [taken] = terms.parking.take_early()
        await asyncio.sleep(0.05)
        assert not early.done()
        terms.parking._early.append(taken)
        assert await daemon.run(early)


async def test_what_is_parked_stays_so_where_the_request_that_ends_it_is_not_stored() -> None:
    terms = Terms("store")
    bad, _ = await terms.prepared()
    daemon = await terms.until_parked()
    full = StoreFailed("the disk is full")
    runs = terms.host.notes.runs["bad", b"t", 1]
    with mock.patch.object(MemoryRecords, "write", side_effect=full), pytest.raises(StoreFailed):
        await daemon.run(daemon.engine.abort(bad))
    assert list(terms.parking.parked) == [bad]
    daemon.engine.close(full)
    after = await terms.begin()
    for _ in range(20):
        await after.engine.turn()
    now = terms.host.notes.runs["bad", b"t", 1]
    assert (now, list(after.engine.parked)) == (runs, [bad]), "it does not end terms again"


async def test_callers_that_gave_up_leave_their_places_to_later_ones() -> None:
    """The daemon has had no term for minutes; scripts have repeated their requests, and clients have hung up."""
    terms = Terms("store")
    bad, _ = await terms.prepared()
    with mock.patch.object(parking_module, "EARLY_S", 0.01):
        for how in ("late", "hung up", "late", "hung up"):
            some = [asyncio.ensure_future(_asked(terms.parking, bad)) for _ in range(EARLY_MAX)]
            await asyncio.sleep(0)
            for one in some if how == "hung up" else ():
                one.cancel()
            ends = await asyncio.gather(*some, return_exceptions=True)
            assert {type(one) for one in ends} == {asyncio.CancelledError if how == "hung up" else ProcedureRefused}
            assert not any("requests wait" in str(one) for one in ends)
    waiting = [terms.parking.ask(Bypass(1_000 + n, NO_ENDING)) for n in range(EARLY_MAX - 1)]
    early = terms.parking.ask(Bypass(bad, Ending("bypass", "User:ops")))
    with pytest.raises(ProcedureRefused, match=f"{EARLY_MAX} requests wait for the next term: try again"):
        await terms.parking.ask(Bypass(bad, NO_ENDING))
    daemon = await terms.begin()
    await daemon.until(lambda: daemon.engine.records[bad].state is State.SUCCESS)
    assert await early == bad
    assert all(isinstance(one.exception(), ProcedureRefused) for one in waiting), "none of them is known"


async def _asked(parking: Parking, pid: int) -> bool:
    return await parking.asked(Bypass(pid, NO_ENDING), lambda: "the disk is full")


async def test_a_request_is_durable_before_a_suspect_runs() -> None:
    terms = Terms("store")
    bad, (behind, *_) = await terms.prepared()
    with pytest.raises(Unstorable):
        await (await terms.begin()).until(lambda: False)
    daemon = await terms.begin()
    aborted = asyncio.ensure_future(daemon.engine.abort(behind))
    with pytest.raises(Unstorable):
        await daemon.until(lambda: False)
    assert await aborted
    assert codec.unsealed(behind, terms.host.disk.bodies[behind]).aborted
    assert terms.parking.suspects[bad] == 1, "for certain"


async def test_an_abort_undoes_what_is_parked() -> None:
    terms = Terms("store")
    bad, _ = await terms.prepared()
    daemon = await terms.until_parked()
    assert await daemon.run(daemon.engine.abort(bad))
    await daemon.until(lambda: daemon.engine.records[bad].state is State.ROLLEDBACK)
    assert not daemon.engine.parked
    assert not {one for one in terms.host.notes.there if one[0] == "bad"}


async def test_an_abort_of_a_whole_procedure_undoes_its_parked_part() -> None:
    def parts(_: Notes, record: Record) -> Outcome:
        return Children((child("bad", record.data + b"/0"), child("good", record.data + b"/1")), 1, record.data)

    terms = Terms("store")
    terms.host.kinds = (*terms.host.kinds, Kind("whole", (step(parts), step(last)), topic))
    first = await terms.begin()
    whole = await submitted(first, "whole")
    await first.until(lambda: len(first.engine.records) == 3)
    first.engine.close(StoreFailed("the daemon stops"))
    terms.host.notes.arrived = True
    daemon = await terms.until_parked()
    assert [daemon.engine.records[pid].kind for pid in daemon.engine.parked] == ["bad"]
    assert await daemon.run(daemon.engine.abort(whole))
    await daemon.until(lambda: daemon.engine.records[whole].state is State.ROLLEDBACK)
    assert not daemon.engine.parked
    assert not {one for one in terms.host.notes.there if one[0] in ("whole", "bad")}


async def test_a_parked_procedure_whose_time_is_over_waits_without_work() -> None:
    terms = Terms("store")
    first = await terms.begin()
    bad = await first.run(first.engine.submit("bad", b"t", NOBODY, expires_ms=first._clock.ms + 5_000))
    terms.host.notes.arrived = True
    daemon = await terms.until_parked()
    terms.host.clock.ms += 60_000
    for _ in range(5):
        await daemon.engine.turn()
    daemon.wanted = False
    await asyncio.sleep(0.01)
    assert not daemon.wanted
    assert await daemon.run(daemon.engine.bypass(bad))


@pytest.mark.parametrize("failure", [StoreFailed("the disk is full"), Fenced("another daemon has it")])
async def test_a_store_that_fails_parks_nothing(failure: StoreFailed) -> None:
    host, parking = Host(Kind("root", (step(), step(last)), topic)), Parking()

    class Failing(MemoryRecords):
        async def write(self, puts: Iterable[Record], deletes: Iterable[int] = (), rows: Iterable[object] = ()) -> None:
            raise failure

    pid = await submitted(await host.daemon(), "root")
    for _ in range(TERMS):
        daemon = Daemon(host.notes, host.kinds, Failing(host.disk), host.clock, parking=parking)
        await daemon.engine.load()
        with pytest.raises(StoreFailed):
            await daemon.until(lambda: False)
    assert (parking.parked, dict(parking.suspects)) == ({}, {})
    daemon = await host.daemon()
    await daemon.until(lambda: daemon.engine.records[pid].state is State.SUCCESS)


# -- what no store can write


class Narrow(MemoryRecords):
    """A store whose writes have a bound."""

    bytes_max = 4_000

    def weigh(self, puts: Iterable[Record], deletes: Iterable[int] = (), rows: Iterable[object] = ()) -> int:
        """Weighs records as they are encoded."""
        return sum(len(codec.sealed(one)) for one in puts)

    async def write(self, puts: Iterable[Record], deletes: Iterable[int] = (), rows: Iterable[object] = ()) -> None:
        """Ends the term where the bound was not kept."""
        written = tuple(puts)
        assert self.weigh(written) <= self.bytes_max
        await super().write(written, deletes, rows)


async def narrow(*kinds: Kind[Notes]) -> Daemon[Notes]:
    daemon = Daemon(Notes(), kinds, Narrow(Disk()), Clock())
    await daemon.engine.load()
    return daemon


def family(count: int, data: bytes, *, splits: bool) -> Kind[Notes]:
    """Returns a kind with children, whose message counts those that were begun."""

    def outcome(_: Notes, record: Record) -> Outcome:
        begun = len(record.data)
        children = tuple(child("part", data + b"%d" % n) for n in range(begun, count))
        rest = (lambda born: bytes(begun + born)) if splits else None
        return Children(children, 1, record.data, rest=rest)

    return Kind("root", (step(outcome), step(last)), lambda _: topic(child("root", b"t")))


async def test_children_that_do_not_fit_into_one_write_are_born_one_part_after_the_other() -> None:
    daemon = await narrow(family(40, b"x" * 10, splits=True), Kind("part", (step(last),), topic))
    pid = await submitted(daemon, "root", b"", OPS)
    notes: Notes = daemon.engine._steps._env
    live: set[int] = set()

    def is_over() -> bool:
        live.add(len(daemon.engine.records))
        return daemon.engine.records[pid].state.is_final

    await daemon.until(is_over)
    assert daemon.engine.records[pid].state is State.SUCCESS
    assert sorted(data for kind, data, _ in notes.there if kind == "part") == sorted(
        b"x" * 10 + b"%d" % n for n in range(40)
    ), "each once"
    assert max(notes.runs[key] for key in notes.runs if key[0] == "part") == 1
    assert 2 < max(live) < 41


async def test_a_step_whose_children_cannot_be_split_fails_and_no_term_ends() -> None:
    daemon = await narrow(family(40, b"x", splits=False), Kind("part", (step(last),), topic))
    pid = await submitted(daemon, "root", b"", OPS)
    await daemon.until(lambda: daemon.engine.records[pid].state is State.ROLLEDBACK)
    assert "the store takes 4000" in daemon.engine.records[pid].error


async def test_a_step_whose_failure_cannot_be_written_either_is_parked_at_once() -> None:
    """A server with a smaller ``jute.maxbuffer`` takes less than the one before."""
    daemon = await narrow(Kind("root", (step(arrives), step(last)), topic))
    pid = await submitted(daemon, "root", b"t" * 1_000)
    store = daemon.engine._store
    daemon.engine._steps._env.arrived = True
    store.bytes_max = 1_000  # type: ignore[misc]
    daemon.engine.wake(pid)
    await daemon.until(lambda: bool(daemon.engine.parked))
    assert "its step cannot be stored, nor its failure: its write has" in daemon.engine.parked[pid]
    store.bytes_max = 4_000  # type: ignore[misc]
    assert await daemon.run(daemon.engine.abort(pid))
    await daemon.until(lambda: daemon.engine.records[pid].state is State.ROLLEDBACK)


async def test_an_undo_that_cannot_be_written_is_tried_again_and_counts_as_done_once_it_is() -> None:
    tries: list[State] = []

    async def takes_back(notes: Notes, record: Record) -> Outcome:
        tries.append(record.state)
        return Wait(0, b"x" * 5_000) if len(tries) < 4 else await undo(notes, record)

    takes_long = Step("step", noting(onwards), takes_back)
    daemon = await narrow(Kind("root", (step(), takes_long, step(fails)), topic))
    notes: Notes = daemon.engine._steps._env
    pid = await submitted(daemon, "root")
    await daemon.until(lambda: len(tries) == 3)
    assert "the store takes 4000" in daemon.engine.records[pid].error, "an operator sees the cause meanwhile"
    await daemon.until(lambda: daemon.engine.records[pid].state is State.ROLLEDBACK)
    assert (notes.there, tries) == (set(), [State.FAILED] * 4)


async def test_a_request_that_cannot_be_written_is_refused() -> None:
    daemon = await narrow(Kind("root", (step(arrives), step(last)), topic))
    with pytest.raises(ProcedureRefused, match=r"root: its write has \d+ bytes, the store takes 4000"):
        await submitted(daemon, "root", b"x" * 4_000)
    pid = await submitted(daemon, "root", b"x" * 2_000)
    with pytest.raises(ProcedureRefused, match=f"pid {pid}: its write has"):
        await daemon.run(daemon.engine.bypass(pid, Ending("bypass", "User:ops", "why" * 1_000)))
    assert await daemon.run(daemon.engine.bypass(pid, Ending("bypass", "User:ops", "why")))


async def test_a_submission_that_cannot_be_written_leaves_its_nonce_free() -> None:
    daemon = await narrow(Kind("root", (step(last),), lambda _: topic(child("root", b"t"))))
    for _ in range(2):
        with pytest.raises(ProcedureRefused, match=r"root: its write has \d+ bytes, the store takes 4000"):
            await submitted(daemon, "root", b"x" * 4_000, OPS)
    pid = await submitted(daemon, "root", b"small", OPS)
    record = await daemon.run(daemon.engine.result(pid))
    assert (record.state, record.data) == (State.SUCCESS, b"small")


async def test_requests_that_do_not_fit_together_go_in_several_writes() -> None:
    daemon = await narrow(Kind("root", (step(arrives), step(last)), lambda _: topic(child("root", b"t"))))
    submits = [daemon.engine.submit("root", bytes(1_500), NOBODY) for _ in range(5)]
    pids = await daemon.run(asyncio.gather(*submits))
    assert sorted(daemon.engine.records) == sorted(pids)


async def test_text_that_no_codec_takes_does_not_end_the_term() -> None:
    def fails(_: Notes, record: Record) -> Outcome:
        return Failed("name \udcff")

    host = Host(Kind("root", (step(fails),), topic))
    daemon = await host.daemon()
    pid = await submitted(daemon, "root")
    await daemon.until(lambda: daemon.engine.records[pid].state is State.ROLLEDBACK)
    assert daemon.engine.records[pid].error == "name ?"
