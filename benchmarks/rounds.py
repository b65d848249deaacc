"""Plays a data set: rounds of the two controllers in turn, and the resulting rows."""

from __future__ import annotations

import statistics
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from benchmarks import requested
from benchmarks.arena import Arena, arena, say
from benchmarks.contestants import OURS, PEER, Contestant
from benchmarks.datasets import shape
from benchmarks.plan import BOTH_DIE, DEATH, PREFERRED, REASSIGNMENTS, SHUTDOWN, TOPICS, Run, goal
from benchmarks.results import Row, Sample
from benchmarks.turns import Turn, comes_back, death, failover, shutdown

VICTIM: Final = 1
"""The broker that dies, returns, or shuts down."""

FOREIGN_CPUS_SAID: Final = 0.2
COSTS: Final = (
    "zookeeper_requests",
    "broker_requests",
    "broker_bytes",
    "peak_rss_mb",
    "cpu_s",
    "brokers_cpu_s",
    "zookeeper_cpu_s",
    "foreign_cpus",
    "pace_ms",
)


@dataclass
class Taken:
    """The turns of a run by contestant and event; the first failover of a process is the cold one."""

    size: str
    turns: dict[tuple[str, str], list[Turn]] = field(default_factory=dict)
    cold: dict[tuple[str, str], Turn] = field(default_factory=dict)

    def add(self, name: str, turn: Turn, *, cold: bool) -> None:
        """Adds one turn."""
        if cold:
            self.cold.setdefault((name, turn.event), turn)
        else:
            self.turns.setdefault((name, turn.event), []).append(turn)

    def of(self, name: str, event: str) -> list[Turn]:
        """Returns the warm turns; without any, the cold one."""
        cold = self.cold.get((name, event))
        return self.turns.get((name, event)) or ([cold] if cold is not None else [])


async def play(
    run: Run,
    folder: Path,
    only: Sequence[str] = (OURS, PEER),
    *,
    full_answers: bool = False,
    settings: Mapping[str, object] | None = None,
) -> Taken:
    """Plays all rounds; raises :class:`benchmarks.turns.Wrong` where an end is not the oracle's."""
    wanted = {OURS: run.rounds, PEER: run.peer_rounds}
    names = [name for name in only if wanted[name] >= 0]
    taken = Taken(run.size)
    async with arena(shape(run.size), folder, names, full_answers=full_answers, settings=settings) as found:
        for number in range(1 + max(wanted[name] for name in names)):
            for name in names:
                if number <= wanted[name]:
                    await _round(found, found.contestants[name], run, taken, number)
    return taken


async def _round(found: Arena, contestant: Contestant, run: Run, taken: Taken, number: int) -> None:
    cold = number == 0
    scenes = [scene for event, scene in SCENES.items() if event in run.events] or [_failover]
    told = [turn for scene in scenes for turn in await scene(found, contestant, run)]
    for turn in told:
        taken.add(contestant.name, turn, cold=cold)
    shown = ", ".join(f"{turn.event} {_best(turn):.3f}" for turn in told)
    foreign = max(turn.foreign_cpus for turn in told)
    noise = f", others used {foreign:.1f} processors" if foreign > FOREIGN_CPUS_SAID else ""
    noise = f" (a fixed loop took {_median(turn.pace_ms for turn in told):.0f} ms{noise})"
    say(f"{run.size} round {'cold' if cold else number}, {contestant.name}: {shown}{noise}")


# -- scenes: each begins with a new term


async def _failover(found: Arena, contestant: Contestant, run: Run) -> list[Turn]:
    await found.calm()
    return [await failover(found, contestant)]


async def _death(found: Arena, contestant: Contestant, run: Run) -> list[Turn]:
    began = await _failover(found, contestant, run)
    return [*began, await death(found, contestant, VICTIM), await comes_back(found, contestant, VICTIM)]


async def _shutdown(found: Arena, contestant: Contestant, run: Run) -> list[Turn]:
    return [*await _failover(found, contestant, run), await shutdown(found, contestant, VICTIM)]


async def _both_die(found: Arena, contestant: Contestant, run: Run) -> list[Turn]:
    await found.calm()
    return [await failover(found, contestant, dying=VICTIM)]


async def _reassignments(found: Arena, contestant: Contestant, run: Run) -> list[Turn]:
    return [*await _failover(found, contestant, run), *await requested.reassignments(found, contestant, run.moved)]


async def _preferred(found: Arena, contestant: Contestant, run: Run) -> list[Turn]:
    await found.calm(displaced=found.data.shape.partitions)
    return [await failover(found, contestant), await requested.preferred(found, contestant)]


async def _topics(found: Arena, contestant: Contestant, run: Run) -> list[Turn]:
    return [*await _failover(found, contestant, run), *await requested.topics(found, contestant, run.added)]


SCENES: Final[dict[str, Callable[[Arena, Contestant, Run], Awaitable[list[Turn]]]]] = {
    DEATH: _death,
    SHUTDOWN: _shutdown,
    BOTH_DIE: _both_die,
    REASSIGNMENTS: _reassignments,
    PREFERRED: _preferred,
    TOPICS: _topics,
}


def _best(turn: Turn) -> float:
    return max(turn.told_s, turn.ready_s or 0.0)


def rows(taken: Taken) -> list[Row]:
    """Returns the rows of a run."""
    made = [
        _timed(taken, "F1", "failover until ready", "failover", _ready),
        _timed(taken, "F2", "failover until the last broker has the change", "failover", _told),
        _timed(taken, "D1", "controlled shutdown until answered", "controlled shutdown", _ready),
        _timed(taken, "D1t", "controlled shutdown until all have the change", "controlled shutdown", _told),
        _timed(taken, "D2", "broker death until all have the change", "broker death", _told),
        _timed(taken, "D3", "broker return until all have the change", "broker return", _told),
        _timed(taken, "F3", "controller and broker die until all have the change", "failover and broker death", _told),
        _timed(taken, "R1", "reassignments requested until all have the change", requested.START, _told),
        _requests(
            taken, "R1q", "requests to brokers from reassignments requested until all have the change", requested.START
        ),
        _timed(taken, "R2", "reassigned replicas caught up until done and all have it", requested.COMPLETION, _ended),
        _timed(taken, "P1", "preferred leaders requested until done and all have it", requested.PREFERRED, _ended),
        _timed(taken, "T1", "topics created until all have the change", requested.CREATION, _told),
        _timed(taken, "T2", "topics marked for deletion until gone and all have it", requested.DELETION, _ended),
        _memory(taken),
        _lag(taken),
    ]
    return [row for row in made if row is not None]


def _ready(turn: Turn) -> float:
    assert turn.ready_s is not None
    return turn.ready_s


def _told(turn: Turn) -> float:
    return turn.told_s


def _ended(turn: Turn) -> float:
    return max(turn.told_s, _ready(turn))


def _requests(taken: Taken, case: str, what: str, event: str) -> Row | None:
    """Returns the number of requests that brokers received, beside the seconds."""
    ours, peers = taken.of(OURS, event), taken.of(PEER, event)
    if not ours:
        return None
    counts = Sample.of([turn.broker_requests for turn in ours])
    row = Row(case, taken.size, what, "requests", counts, goal=goal(case, taken.size))
    if peers:
        row.peer = Sample.of([turn.broker_requests for turn in peers])
    return row


def _timed(taken: Taken, case: str, what: str, event: str, value: Callable[[Turn], float]) -> Row | None:
    ours = taken.of(OURS, event)
    if not ours:
        return None
    peers = taken.of(PEER, event)
    row = Row(case, taken.size, what, "s", _sample(taken, OURS, event, value), goal=goal(case, taken.size))
    if peers:
        row.peer = _sample(taken, PEER, event, value)
    for name, turns in ((OURS, ours), (PEER, peers)):
        if turns:
            row.costs[name] = {cost: _median(getattr(turn, cost) for turn in turns) for cost in COSTS}
            row.phases[name] = {
                phase: _median(turn.phases.get(phase, 0.0) for turn in turns) for phase in turns[0].phases
            }
    row.phases = {name: phases for name, phases in row.phases.items() if phases}
    return row


def _sample(taken: Taken, name: str, event: str, value: Callable[[Turn], float]) -> Sample:
    cold = taken.cold.get((name, event))
    values = [value(turn) for turn in taken.turns.get((name, event), [])]
    return Sample.of(values, value(cold) if cold is not None else None)


def _memory(taken: Taken) -> Row | None:
    """Returns the highest peak of any failover, the cold one included; the peer's depends on its heap size."""
    ours = _peaks(taken, OURS)
    if ours is None:
        return None
    row = Row("M1", taken.size, "highest resident memory of any failover", "MB", ours, goal=goal("M1", taken.size))
    row.peer = _peaks(taken, PEER)
    row.note = f"{ours.high * (1 << 20) / shape(taken.size).partitions:,.0f} bytes per partition"
    return row


def _peaks(taken: Taken, name: str) -> Sample | None:
    cold = taken.cold.get((name, "failover"))
    if cold is None:
        return None
    peaks = [turn.peak_rss_mb for turn in (cold, *taken.turns.get((name, "failover"), []))]
    return Sample(max(peaks), min(peaks), max(peaks), len(peaks), cold.peak_rss_mb)


def _lag(taken: Taken) -> Row | None:
    """Returns the longest lag of all turns of regent, the cold ones included."""
    turns = [turn for (name, _), found in taken.turns.items() if name == OURS for turn in found]
    turns += [turn for (name, _), turn in taken.cold.items() if name == OURS]
    if not turns:
        return None
    worst = max(turns, key=lambda turn: turn.lag_s)
    what = f"longest lag of the event loop in any event ({worst.event})"
    return Row("L1", taken.size, what, "s", Sample.of([worst.lag_s]), goal=goal("L1", taken.size))


def _median(values: Iterable[float]) -> float:
    return round(statistics.median(values), 3)
