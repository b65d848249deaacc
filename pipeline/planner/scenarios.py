"""Plans several scenarios with several seeds side by side: in threads, or as tasks of Spark."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Annotated, Any, Final

import msgspec

from pipeline.inputs import BadInput
from pipeline.planner.certifying import certified
from pipeline.planner.cluster import Wanted
from pipeline.planner.planning import Planned, Tried, attempt, chosen
from pipeline.planner.problem import Problem, with_means

SCENARIOS_MAX: Final = 100
TRIED_MAX: Final = 32
"""Results in memory at once, where one scenario has no more seeds: one of a million partitions is some 40 MB."""
Each = Callable[[Callable[[Any], Any], Sequence[Any]], list[Any]]
"""Calls a function with each of some values, several at a time."""
Broker = Annotated[int, msgspec.Meta(ge=0, lt=2**31)]


class Scenario(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What differs from the options of the command; lists add to theirs."""

    name: str
    retire: tuple[Broker, ...] = ()
    exclude_brokers: tuple[Broker, ...] = ()
    exclude_topics: tuple[str, ...] = ()
    spread: Annotated[float, msgspec.Meta(ge=0.01, le=1)] | None = None

    def added_to(self, wanted: Wanted) -> Wanted:
        """Returns what the operator wants in this scenario."""
        limits = wanted.limits if self.spread is None else replace(wanted.limits, spread=self.spread)
        return replace(
            wanted,
            retire=(*wanted.retire, *self.retire),
            exclude=(*wanted.exclude, *self.exclude_brokers),
            exclude_topics=(*wanted.exclude_topics, *self.exclude_topics),
            limits=limits,
        )


def read_scenarios(path: Path) -> tuple[Scenario, ...]:
    """Reads a JSON list of scenarios; raises :class:`BadInput`."""
    try:
        found = msgspec.json.decode(path.read_bytes(), type=tuple[Scenario, ...])
    except OSError as error:
        raise BadInput(f"{path} cannot be read: {error.strerror or error}") from None
    except msgspec.DecodeError as error:
        form = '[{"name": "without 7", "retire": [7], "exclude_topics": ["audit-*"], "spread": 0.05}]'
        raise BadInput(f"{path}: {error}: give the form {form}") from None
    names = [one.name for one in found]
    if twice := sorted({name for name in names if names.count(name) > 1}):
        raise BadInput(f"{path}: name = {twice[0]!r} is there twice: give each scenario a name of its own")
    if not 1 <= len(found) <= SCENARIOS_MAX:
        raise BadInput(f"{path} has {len(found)} scenarios: give 1 to {SCENARIOS_MAX}")
    return found


def side_by_side(problems: Iterable[Problem], seeds: int, first_seed: int, each: Each) -> Iterator[Planned]:
    """Plans each problem with each seed; the results are those of :func:`pipeline.planner.planning.planned`.

    Some problems are taken and planned at a time, so that a caller that keeps no result has no more in memory.
    """
    waiting = iter(problems)
    while group := list(islice(waiting, max(1, TRIED_MAX // seeds))):
        yield from _of_group(group, seeds, first_seed, each)


def _of_group(problems: Sequence[Problem], seeds: int, first_seed: int, each: Each) -> list[Planned]:
    known = [with_means(one) for one in problems]
    tasks = [(at, seed) for at in range(len(known)) for seed in range(first_seed, first_seed + seeds)]
    tried: list[Tried] = each(partial(_attempt, tuple(problem for problem, _ in known)), tasks)
    results = []
    for at, (problem, assumed) in enumerate(known):
        mine = tuple(one for (of, _), one in zip(tasks, tried, strict=True) if of == at)
        results.append(chosen(problem, assumed, certified(problem, problem.replicas), mine))
    return results


def _attempt(problems: tuple[Problem, ...], task: tuple[int, int]) -> Tried:
    return attempt(problems[task[0]], task[1])
