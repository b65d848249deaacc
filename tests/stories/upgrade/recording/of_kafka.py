"""Records procedures of Kafka's controller, to their end and taken back, and what operators leave standing."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from contextlib import ExitStack
from functools import partial
from typing import Any, Final, NamedTuple
from unittest import mock

from .moments import Moments, former, plain, steps, znodes

BEYOND: Final = 10_000
"""A write that no run reaches."""
WALL_MS: Final = 1_795_846_102_000
"""The time of all recordings: 2026-11-28T06:08:22Z."""


class Case(NamedTuple):
    """A case: what is played, and the patches below which it is."""

    name: str
    play: Callable[[], Awaitable[Any]]
    patches: tuple[Any, ...] = ()


def recorded() -> list[str]:
    """Plays all cases; returns the lines of their moments."""
    lines = [steps(former("controller term procedures").KINDS)]
    for case in (*_plans(), *_elections(), *_calls(), Case("standing", _standing)):
        with ExitStack() as stack:
            for patch in case.patches:
                stack.enter_context(patch)
            _record(case, lines)
    return lines


# -- cases


def _plans() -> Iterator[Case]:
    names = {"drain": "drain", "restart": "restart", "throttle": "throttle", "reassign": "reassign_plan"}
    kills = {name: former(f"tests kills test_{module}") for name, module in names.items()}
    reassign, throttle, restart, drain = (kills[name] for name in ("reassign", "throttle", "restart", "drain"))
    played = former("tests kills terms").played
    for abort, suffix in ((False, ""), (True, ", taken back")):
        yield Case(f"reassign{suffix}", partial(reassign.ended, BEYOND, "before", abort=abort))
        yield Case(f"throttle{suffix}", partial(played, throttle.ending(abort=abort), throttle.left))
        yield Case(f"restart{suffix}", partial(played, restart.restarting(abort=abort), restart.left))
        for what, (wanted, *_) in drain.CLEAN.items():
            leaders = wanted.plan is None
            waits = (_waves(1), _behind(drain.kind, partial(_moved, drain, leaders))) if abort else (_waves(3),)
            yield Case(f"drain of {what}{suffix}", partial(drain.ended, BEYOND, "before", wanted, abort=abort), waits)


def _moved(drain: Any, leaders: bool, env: Any) -> bool:
    return leaders and bool(drain.moved(env) >= 2)


def _waves(count: int) -> Any:
    return mock.patch.object(former("state_machines decisions drain"), "WAVE_MAX", count)


def _behind(kind: Any, when: Callable[[Any], bool]) -> Any:
    return mock.patch.object(kind, "brokers_are_behind", lambda env, _: when(env))


def _elections() -> Iterator[Case]:
    elect, played = former("tests kills test_elect"), former("tests kills terms").played
    for what, (wanted, *_) in elect.CLEAN.items():
        yield Case(f"elect {what}", partial(played, elect.election(wanted), elect.left))
    waits = _behind(elect.kind, lambda env: elect.elected(env) >= 2)
    taken_back = elect.election(elect.PREFERRED, abort=True)
    yield Case("elect preferred, taken back", partial(played, taken_back, elect.left), (waits,))


def _calls() -> Iterator[Case]:
    calls, world = former("tests core test_recorded_calls"), former("tests core controller_world").world

    async def called(call: Any) -> Any:
        async with world() as w:
            await calls.begun(w)
            w.active.script.kill_at(BEYOND, "before")
            await calls.carried(w, call.body, **calls.ALICE)
            await w.propagated()
            records = [[one.kind, int(one.state), one.result.decode()] for one in calls.stored(w).values()]
            return (calls.effect(w), records), len(w.active.script.writes)

    for call in calls.CALLS:
        yield Case(f"call {call.kind.value}", partial(called, call))


async def _standing() -> Any:
    """An operator pauses, cordons a broker and stops a plan; a replica was moved away from a broker that is down."""
    world, strays = former("tests core controller_world").world, former("tests core strays_kit")
    models, pauses = former("controller http procedure_models"), former("controller http pause_models")
    view, kind = former("controller operator cordons").CordonView, former("controller kinds reassign")
    plan = former("tests core test_reassign_plan")
    async with world(1, 2, 3, 4) as w:
        await strays.moved_while_away(w, "s")
        await w.topic("t", (2, 3), (2, 3), leaders=True)
        await w.propagated()
        w.active.script.kill_at(BEYOND, "before")
        await view(lambda: w.term).cordon(models.CordonRequest(brokers=[3], reason="disk"), "uid 0")
        request = pauses.PauseRequest(for_s=3_600, reason="a fair")
        await former("controller operator pauses").PauseView(lambda: w.term).pause(request, "uid 0")
        moves = tuple(plan.PlannedMove("t", number, (2, 3), (2, 4)) for number in range(2))
        pid = await plan.applied(w, kind.ReassignPlan(moves, paused=True))
        await w.term.procedures.engine.command(pid, plan.msgspec.json.encode(kind.PlanCommand(held=True)))
        await w.propagated()
        return pid, len(w.active.script.writes)


# -- the world


class _Wall:
    def __init__(self) -> None:
        self._since_ns = WALL_MS * 1_000_000 - int(1e9 * asyncio.get_running_loop().time())

    def time_ns(self) -> int:
        return self._since_ns + int(1e9 * asyncio.get_running_loop().time())


def _record(case: Case, lines: list[str]) -> None:
    """Plays a case in the controller's world, and notes its moments from the call of ``kill_at`` on."""
    worlds, parts = former("tests core controller_world"), former("tests core controller_parts")
    wall_ms = former("controller process wall_clock").wall_ms
    held: dict[str, Any] = {}
    moments = Moments(case.name, lines, lambda: _znodes(held["world"]))

    class World(worlds.World):  # type: ignore[misc, name-defined]
        def __init__(self, *args: Any) -> None:
            super().__init__(*args)
            held["world"] = self

    class Script(parts.Script):  # type: ignore[misc, name-defined]
        def kill_at(self, number: int, when: str) -> None:
            super().kill_at(number, when)
            held["script"] = self

        async def before(self, ops: Any) -> None:
            await super().before(ops)
            self._note("before")

        async def after(self, ops: Any) -> None:
            await super().after(ops)
            self._note("after")

        def _note(self, side: str) -> None:
            if held.get("script") is self:
                w = held["world"]
                around = {"wall_ms": wall_ms(), "knows": sorted(w.knows)}
                moments.note(f"{side} write {len(self.writes)}", around, w.book.entries)

    patches = (
        mock.patch.object(worlds, name, one) for name, one in (("World", World), ("_Wall", _Wall), ("Script", Script))
    )
    with ExitStack() as stack:
        for patch in patches:
            stack.enter_context(patch)
        left, _ = former("tests core virtual_time").in_exact_time(case.play)()
    print(case.name, plain(left), flush=True)
    moments.end(left, {})


def _znodes(w: Any) -> dict[str, Any]:
    return znodes(w.server, {zk.session_id: f"broker {broker}" for broker, zk in w.brokers.items()})
