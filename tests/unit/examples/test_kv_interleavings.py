"""Owners of a region freeze, are fenced and wake up between any two steps on files; a crash may come at each step."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.unit.examples.disk_kit import Disk, Owners

DEPTH_MAX = 3
"""Actions that may be frozen within each other."""
KEYS = (b"a", b"b", b"c")
Action = tuple[str, int]
WEIGHTS = {
    "put": 2,
    "write": 1,
    "put_and_write": 3,
    "flush": 2,
    "trim": 2,
    "compact": 2,
    "inherit": 1,
    "move": 1,
    "move_late": 1,
    "wake": 1,
    "take_over": 1,
    "split_again": 1,
}
ACTIONS = st.tuples(
    st.sampled_from([what for what, weight in WEIGHTS.items() for _ in range(weight)]), st.integers(0, 11)
)


class Run:
    """Carries out actions. ``between``: others that come after a number of steps on files, within the one at work."""

    def __init__(self, owners: Owners, disk: Disk, between: list[tuple[int, Action]], crashes: set[int]) -> None:
        self._owners, self._disk, self._between, self._crashes = owners, disk, list(between), crashes
        self._depth = 0
        self._left = self._between[0][0] if self._between else 0
        disk.steps = 0
        disk.hook = self._step

    def act(self, action: Action) -> None:
        what, number = action
        owners = self._owners
        owner = owners.all[-1 - number % min(3, len(owners.all))]
        self._depth += 1
        match what:
            case "put" | "put_and_write":
                owners.put(owner, KEYS[number % 3])
                if what == "put_and_write":
                    owners.write(owner)
            case "write" | "flush" | "trim" | "compact":
                getattr(owners, what)(owner)
            case "move":
                owners.move(same_process=bool(number % 2))
            case "inherit" | "move_late" | "wake" | "take_over":
                getattr(owners, what)()
            case "split_again" if owners.fenced:
                owners.fence_and_split(owners.fenced[-1 - number % min(3, len(owners.fenced))])
        self._depth -= 1

    def _step(self) -> None:
        if self._disk.steps in self._crashes:
            self._owners.judge_crash()
        if not self._between or self._depth >= DEPTH_MAX:
            return
        self._left -= 1
        if self._left <= 0:
            _, action = self._between.pop(0)
            self._left = self._between[0][0] if self._between else 0
            self.act(action)


@contextmanager
def watched() -> Iterator[tuple[Owners, Disk]]:
    with tempfile.TemporaryDirectory() as scratch, pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "fsync", lambda _: None)  # the disk keeps account of what is durable
        root = Path(scratch, "data")
        root.mkdir()
        disk = Disk(root, patch)
        try:
            yield Owners(disk, Path(scratch)), disk
        finally:
            disk.close()


@pytest.mark.timeout(600)  # to find the smallest failure takes long
@settings(max_examples=60, suppress_health_check=[HealthCheck.too_slow])
@given(
    actions=st.lists(ACTIONS, min_size=3, max_size=25),
    between=st.lists(st.tuples(st.integers(1, 60), ACTIONS), max_size=10),
    crashes=st.sets(st.integers(1, 600), max_size=3),
)
def test_no_acknowledged_edit_is_lost_or_overwritten(
    actions: list[Action], between: list[tuple[int, Action]], crashes: set[int]
) -> None:
    with watched() as (owners, disk):
        run = Run(owners, disk, between, crashes)
        for action in actions:
            run.act(action)
        owners.judge_crash()
        owners.take_over()
        owners.judge_crash()


@pytest.mark.timeout(600)  # it copies the folder at each step
def test_a_crash_may_come_at_each_step() -> None:
    """Also in the middle of a record; of all processes, or of the machine, which loses what was not synced."""
    with watched() as (owners, disk):
        run = Run(owners, disk, [], set(range(1, 10_000)))
        write = [("put_and_write", key) for key in (0, 3, 6)]
        heirs = [("inherit", 0), write[0], ("flush", 0), write[1], ("take_over", 0), write[2], ("compact", 0), write[0]]
        before = [*write, ("flush", 0), *write, ("trim", 0), ("move", 1), *write, ("take_over", 0), *write]
        for action in [*before, *heirs]:
            run.act(action)
        owners.take_over()
        assert disk.steps > 300
