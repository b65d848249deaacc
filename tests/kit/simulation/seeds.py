"""Plays many seeds in children. Each child plays some and ends, because nothing of a run is ever collected."""

from __future__ import annotations

import gc
import multiprocessing
import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final, Generic, NamedTuple, Protocol, TypeVar

from tests.kit.simulation.shrink import P, Shrinker

T = TypeVar("T")
ERROR: Final = "error"
"""Stands for the invariant where the product ended by an error."""
FAULT: Final = "fault"
"""Stands for the invariant where a part of the product raised an error that it survived."""


@dataclass(frozen=True)
class Violation:
    """A violated invariant and the values that violate it."""

    invariant: str
    what: str

    def __str__(self) -> str:
        return f"{self.invariant}: {self.what}"


class Caught(NamedTuple):
    """A planted bug that was caught: the number of seeds until then, the last of them, and its violation."""

    seeds: int
    seed: int
    violation: Violation


class Ended(Protocol):
    """The result of a run."""

    @property
    def violation(self) -> Violation | None:
        """Returns the first violated invariant."""


def pool(jobs: int | None) -> multiprocessing.pool.Pool:
    """Starts children, each for one call; None: one per core."""
    gc.collect()
    gc.freeze()
    return multiprocessing.get_context("fork").Pool(jobs or os.cpu_count() or 1, gc.disable, maxtasksperchild=1)


def batches(seeds: range, size: int) -> list[range]:
    """Cuts seeds into parts, one for each child."""
    return [seeds[at : at + size] for at in range(0, len(seeds), size)]


def in_child(call: Callable[..., T], *args: object) -> T:
    """Returns the result of a call in a process of its own."""
    with pool(1) as child:
        return child.apply(call, args)


@dataclass(frozen=True)
class Bench(Generic[P]):
    """Catches planted bugs by seeds. ``generate`` draws a plan, ``play`` plays it with a named bug or None."""

    generate: Callable[[int], P]
    play: Callable[[P, str | None], Ended]
    shrinker: type[Shrinker[Any]] = Shrinker

    def catch_each(
        self, names: Sequence[str], seeds: int, jobs: int | None = None
    ) -> Iterator[tuple[str, Caught | None]]:
        """Yields planted bugs with the seeds until each was caught; None where it was not."""
        with pool(jobs) as children:
            yield from children.imap_unordered(self._catch, [(name, seeds) for name in names])

    def _catch(self, wanted: tuple[str, int]) -> tuple[str, Caught | None]:
        """Plays seeds until one fails by the bug alone.

        A seed that also fails without the bug shows nothing. Nor does an error, or a fault: the bug may not fit.
        """
        name, seeds = wanted
        for seed in range(seeds):
            violation = self.play(self.generate(seed), name).violation
            if violation is None or violation.invariant in (ERROR, FAULT):
                continue
            if self.play(self.generate(seed), None).violation is None:
                return name, Caught(seed + 1, seed, violation)
        return name, None

    def shrunk(self, plan: P, invariant: str, mutation: str | None = None) -> P:
        """Returns the shortest plan that still violates the invariant."""
        return in_child(self._shrunk, plan, invariant, mutation)

    def _shrunk(self, plan: P, invariant: str, mutation: str | None) -> P:
        def fails(candidate: P) -> bool:
            found = self.play(candidate, mutation).violation
            return found is not None and found.invariant == invariant

        shrinker: Shrinker[P] = self.shrinker(fails)
        return shrinker.shrink(plan)
