"""Traces which rooms a reader passes who follows an event, on the in-memory world of the tests.

A walk lists the functions that an event enters and that hand on to another file, each at its first call. A function
that hands on to none needs no reading: its name says what it does. Tasks follow one after the other.

A room is what stands directly in `controller`, `controller.kafka` or `controller.regions`, or another top package. A
stay is a run of functions in one room, a return a stay in a room of an earlier one.

    python -m scripts.walks                     the walks of this tree
    python -m scripts.walks --beside OTHER      their figures, and those of a checkout of another revision
    python -m scripts.walks --functions         each stay with its functions
    python -m scripts.walks --only failover     one walk
"""

from __future__ import annotations

import argparse
import asyncio
import importlib
import json
import subprocess
import sys
from collections.abc import Awaitable, Callable, Iterable
from functools import partial
from itertools import groupby
from pathlib import Path
from types import CodeType, FrameType
from typing import Any, Final

ROOT: Final = Path.cwd()
PRODUCT: Final = ("controller/", "brokers/", "metadata_store/", "state_machines/", "configs/")
INSIDE: Final = frozenset({("controller",), ("controller", "kafka"), ("controller", "regions")})
"""Packages whose rooms are told apart."""
ELSEWHERE: Final = "import runpy, sys; sys.argv = ['walks', '--json']; runpy.run_path({!r}, run_name='__main__')"

Stays = list[tuple[str, list[str]]]
"""Rooms in order, each with its functions."""


class Walk:
    """Notes the first call of each function, and which of them hand on, while it is entered as a context."""

    def __init__(self) -> None:
        self._tasks = [""]
        self._entered: dict[CodeType, int] = {}
        self._handing_on: set[CodeType] = set()

    def __enter__(self) -> None:
        sys.setprofile(self._note)

    def __exit__(self, *_: object) -> None:
        sys.setprofile(None)

    def stays(self) -> Stays:
        """Returns the rooms in the order in which they are entered, task by task."""
        ordered = sorted(self._entered, key=self._entered.__getitem__)
        steps = [(room(file_of(code)), title(code)) for code in ordered if code in self._handing_on]
        return [(name, [function for _, function in some]) for name, some in groupby(steps, key=lambda step: step[0])]

    def _note(self, frame: FrameType, event: str, _: object) -> None:
        code = frame.f_code
        if event != "call" or not file_of(code).startswith(PRODUCT) or is_of_test(frame):
            return
        caller = frame.f_back
        while caller is not None and is_inside(caller.f_code):
            caller = caller.f_back
        if not is_inside(code) and code not in self._entered:
            self._entered[code] = self._task()
        if caller is not None and file_of(caller.f_code) != file_of(code):
            self._handing_on.add(caller.f_code)

    def _task(self) -> int:
        """Returns the number of the running task; tasks that run the same function have the same."""
        try:
            task = asyncio.current_task()
        except RuntimeError:
            task = None
        name = "" if task is None else getattr(task.get_coro(), "__qualname__", "")
        if name not in self._tasks:
            self._tasks.append(name)
        return self._tasks.index(name)


def is_inside(code: CodeType) -> bool:
    """Checks whether code is a lambda, a comprehension or an inner function: it belongs to its caller."""
    return "<" in code.co_qualname


def is_of_test(frame: FrameType) -> bool:
    """Checks whether a test calls the function for itself; a method that overrides another hands the call on."""
    below, above = frame, frame.f_back
    while above is not None and file_of(above.f_code).startswith((*PRODUCT, "tests/")):
        if file_of(above.f_code).startswith("tests/") and above.f_code.co_name != below.f_code.co_name:
            return True
        below, above = above, above.f_back
    return False


def file_of(code: CodeType) -> str:
    """Returns the file of code, as a path from the root of the tree."""
    return code.co_filename.removeprefix(f"{ROOT}/")


def title(code: CodeType) -> str:
    return f"{Path(code.co_filename).stem}.{code.co_qualname}"


def room(file: str) -> str:
    parts = Path(file).with_suffix("").parts
    depth = 1
    while parts[:depth] in INSIDE and depth < len(parts):
        depth += 1
    return ".".join(parts[:depth])


def kit(*names: str) -> Any:
    """Imports the first module of the tests that this tree has; earlier revisions have others."""
    found = next(name for name in names if (ROOT / "tests" / f"{name.replace('.', '/')}.py").exists())
    return importlib.import_module(f"tests.{found}")


# -- the stories


async def broker_dies(walk: Walk, w: Any) -> None:
    await w.topic("t", (1, 2, 3), (2, 3, 1), leaders=True)
    await w.serve()
    with walk:
        w.die(1)
        await w.propagated()


async def failover(walk: Walk, w: Any) -> None:
    await w.topic("t", (1, 2, 3), (2, 3, 1), leaders=True)
    w.die(1)
    seat = await w.seat()
    with walk:
        await seat.begin()
        await w.propagated()


async def topic_is_created(walk: Walk, w: Any) -> None:
    calls = kit("kit.kafka.calls", "core.carried_kit")
    await w.serve()
    with walk:
        await calls.carried(w, calls.create(calls.topic("t", 3, 2)))


async def configuration_changes(walk: Walk, w: Any) -> None:
    await w.topic("t", (1,), leaders=True)
    await w.serve()
    w.die(1)
    await w.propagated()
    with walk:
        await w.configure("topics", "t", **{"unclean.leader.election.enable": "true"})
        await w.propagated()


STORIES: Final[dict[str, Callable[[Walk, Any], Awaitable[None]]]] = {
    "a broker dies": broker_dies,
    "failover": failover,
    "CreateTopics": topic_is_created,
    "a configuration changes": configuration_changes,
}


def walks(names: Iterable[str] = STORIES) -> dict[str, Stays]:
    """Returns the walk of each of these stories."""
    in_world = kit("kit.kafka.world", "core.controller_world").in_world
    found: dict[str, Stays] = {}
    for name in names:
        story, walk = STORIES[name], Walk()

        async def told(w: Any, tell: Callable[[Any], Awaitable[None]]) -> None:
            await tell(w)

        in_world()(told)(tell=partial(story, walk))
        found[name] = walk.stays()
    return found


def walks_of(tree: Path) -> dict[str, Stays]:
    """Returns the walks of another checkout, which has none of this file."""
    code = ELSEWHERE.format(str(Path(__file__).resolve()))
    told = subprocess.run([sys.executable, "-c", code], cwd=tree, check=True, stdout=subprocess.PIPE)
    found: dict[str, Stays] = json.loads(told.stdout)
    return found


def figures(stays: Stays) -> str:
    rooms = len({name for name, _ in stays})
    return f"{rooms} rooms, {len(stays)} stays, {len(stays) - rooms} returns"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--beside", type=Path, metavar="OTHER", help="checkout of another revision")
    parser.add_argument("--functions", action="store_true", help="print the functions of each stay")
    parser.add_argument("--only", choices=STORIES, help="print this walk alone")
    parser.add_argument("--json", action="store_true", help="print the walks for another program")
    options = parser.parse_args()
    here = walks((options.only,) if options.only else STORIES)
    if options.json:
        print(json.dumps(here))
        return
    other = walks_of(options.beside) if options.beside else {}
    for name, stays in here.items():
        print(f"{name}: {figures(stays)}", f"beside {figures(other[name])}" if name in other else "")
        for number, (at, functions) in enumerate(stays, 1):
            print(f"{number:>6}  {at}", *functions if options.functions else (), sep="  ")


if __name__ == "__main__":
    main()
