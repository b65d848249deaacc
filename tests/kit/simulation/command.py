"""Prints what both simulations print on the command line: failing seeds, one run, and the table of planted bugs."""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable, Iterable, Mapping, Sequence

from tests.kit.simulation.seeds import Caught, Violation

WHY_WIDTH = 110


def parser_of(prog: str, text: str | None) -> argparse.ArgumentParser:
    """Makes the parser of a module whose docstring has a summary, ``::``, and the usage."""
    summary, _, usage = (text or "").partition("::")
    return argparse.ArgumentParser(
        prog=f"python -m {prog}",
        description=summary,
        epilog=usage,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )


class Progress:
    """Names failing seeds once each, and every minute how far the run is."""

    def __init__(self) -> None:
        self._printed = set[int]()
        self._printed_s = time.monotonic()

    def show(self, seeds: int, failed: Mapping[int, object]) -> None:
        """Prints what is new."""
        for seed in failed.keys() - self._printed:
            self._printed.add(seed)
            print(f"seed {seed} failed: {failed[seed]}", file=sys.stderr, flush=True)
        if time.monotonic() - self._printed_s >= 60.0:
            self._printed_s = time.monotonic()
            print(f"{seeds} seeds, {len(failed)} failed", file=sys.stderr, flush=True)


def print_run(plan: object, seed: int, violation: Violation | None, trace: Sequence[str] | None, figures: str) -> int:
    """Prints one run, with its script and trace if there is one; returns exit code 1 where it failed."""
    if trace is not None:
        print(plan)
        print("\n".join(trace))
    print(f"seed {seed}: {violation or 'clean'}")
    print(figures)
    return 1 if violation is not None else 0


def caught_by_name(names: Sequence[str], found: Iterable[tuple[str, Caught | None]]) -> dict[str, Caught | None]:
    """Collects planted bugs, and prints how many are done."""
    by_name: dict[str, Caught | None] = {}
    for name, caught in found:
        by_name[name] = caught
        print(f"{len(by_name)} of {len(names)}: {name}", file=sys.stderr, flush=True)
    return by_name


def print_table(names: Sequence[str], found: Mapping[str, Caught | None], seeds: int, began_s: float) -> int:
    """Prints planted bugs with the seeds that each took; returns exit code 1 where one survived."""
    width = max(map(len, ["planted bug", *names]))
    print(f"\n{'planted bug':{width}} {'seeds':>5}  caught by")
    for name in names:
        caught = found[name]
        taken, why = (caught.seeds, str(caught.violation)) if caught else ("none", f"NOTHING in {seeds} seeds")
        print(f"{name:{width}} {taken:>5}  {why[:WHY_WIDTH]}")
    survivors = [name for name in names if found[name] is None]
    print(f"{len(names) - len(survivors)} of {len(names)} caught in {time.monotonic() - began_s:.0f} s")
    return 1 if survivors else 0


def print_failed(
    again: str, failed: Mapping[int, object], shrunk: Callable[[int, str], object], shrunk_max: int
) -> None:
    """Prints failing seeds with the command that plays each again, some of them as short stories.

    ``again``: the module, with the options that these seeds had.
    """
    for number, (seed, why) in enumerate(sorted(failed.items())):
        print(f"\nseed {seed} failed: {why}\nagain: .venv/bin/python -m {again} --seed {seed} --verbose")
        if number < shrunk_max:
            print(shrunk(seed, str(why).partition(":")[0]))
