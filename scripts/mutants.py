"""Measures the tests: plants bugs one at a time, after which the tests that run the changed function must fail.

``python -m scripts.mutants``          the bugs written by hand, and 40 that are drawn from the syntax
``--generated 400 --seed 2``           more of those, others
``--only ID ...``, ``--area AREA``     some of them
``--room ROOM ...``                    those by hand that are in some files of ``tests/mutants/planted/``
``--again build/mutants.json``         the same ones as in an earlier result
``--tests tests/unit/cli/test_a.py ...``   only some test files
``--list``                             lists them and plants nothing

The result is kept in build/mutants.json after each mutant: a second run goes on where the first was stopped. Another
``--out`` begins anew, after the tests were changed. Types and imports are not used to catch: only tests are.
"""

from __future__ import annotations

import argparse
import queue
import signal
import threading
from collections import defaultdict
from collections.abc import Iterable, Sequence
from pathlib import Path

import msgspec

from tests.mutants.coverage import Coverage, coverage, default_jobs
from tests.mutants.judge import CAUGHT, SURVIVED, UNCOVERED, Judge, Mutant, Verdict
from tests.mutants.planted import Planted, planted, rooms
from tests.mutants.sites import all_generated, drawn
from tests.mutants.source import AREAS, ROOT

RESULTS = ROOT / "build" / "mutants.json"


def main() -> None:
    options = _options()
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    mutants = _chosen(options)
    if options.list:
        for mutant, _ in mutants:
            print(f"{mutant.id}  {mutant.file}  {mutant.function}  {mutant.wrong}")
        return
    results = _Results(options.out)
    left = [one for one in mutants if one[0].id not in results.verdicts]
    print(f"{len(mutants)} mutants, {len(left)} of them are still to be judged", flush=True)
    if left:
        known = coverage(options.jobs, options.tests, afresh=options.afresh)
        _judge_all(left, known, results, options)
    wanted = {mutant.id for mutant, _ in mutants}
    print(_table([verdict for verdict in results.verdicts.values() if verdict.id in wanted]))


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--generated", type=int, default=40, help="how many are drawn")
    parser.add_argument("--seed", type=int, default=1, help="which ones")
    parser.add_argument("--by-hand", choices=("yes", "no"), default="yes", help="with those written by hand")
    parser.add_argument("--area", nargs="+", choices=AREAS, default=AREAS)
    parser.add_argument("--room", nargs="+", choices=rooms(), default=[])
    parser.add_argument("--only", nargs="+", metavar="ID", default=[])
    parser.add_argument("--again", type=Path, metavar="JSON", help="those of an earlier result")
    parser.add_argument("--tests", nargs="+", metavar="FILE", default=[], help="test files; all that need no Java")
    parser.add_argument("--simulation", choices=("yes", "no"), default="yes")
    parser.add_argument("--jobs", type=int, default=default_jobs(), help="copies of the repository at work")
    parser.add_argument("--out", type=Path, default=RESULTS)
    parser.add_argument("--afresh", action="store_true", help="record anew what tests run")
    parser.add_argument("--list", action="store_true")
    return parser.parse_args()


def _chosen(options: argparse.Namespace) -> list[tuple[Mutant, bool]]:
    """Returns the mutants, and whether they were written by hand."""
    by_hand: list[tuple[Mutant, bool]] = [(one, True) for one in planted()] if options.by_hand == "yes" else []
    if options.room:
        return [(one, True) for one in planted() if one.room in options.room]
    wanted = set(options.only)
    if options.again is not None:
        wanted = {verdict.id for verdict in _read(options.again)}
    if wanted:
        every = {one.id: (one, False) for one in all_generated()} | {one.id: (one, True) for one in planted()}
        if gone := sorted(wanted - every.keys()):
            print(f"{len(gone)} mutants are not there any more, because their function changed: {', '.join(gone)}")
        return [every[one] for one in sorted(wanted & every.keys())]
    found = by_hand + [(one, False) for one in drawn(options.generated, options.seed)]
    return [one for one in found if one[0].file.startswith(tuple(f"{area}/" for area in options.area))]


class _Results:
    """Verdicts by id, written to a file after each."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._lock = threading.Lock()
        self.verdicts = {verdict.id: verdict for verdict in _read(path)} if path.exists() else {}

    def add(self, verdict: Verdict) -> None:
        with self._lock:
            self.verdicts[verdict.id] = verdict
            self._path.parent.mkdir(exist_ok=True)
            draft = self._path.with_suffix(".draft")
            draft.write_bytes(msgspec.json.format(msgspec.json.encode(list(self.verdicts.values())), indent=1))
            draft.replace(self._path)


def _read(path: Path) -> list[Verdict]:
    return msgspec.json.decode(path.read_bytes(), type=list[Verdict])


def _judge_all(
    mutants: Iterable[tuple[Mutant, bool]], known: Coverage, results: _Results, options: argparse.Namespace
) -> None:
    waiting: queue.SimpleQueue[tuple[Mutant, bool]] = queue.SimpleQueue()
    for one in mutants:
        waiting.put(one)
    errors: list[BaseException] = []
    judges = [Judge(known, only=options.tests, simulation=options.simulation == "yes") for _ in range(options.jobs)]

    def work(judge: Judge) -> None:
        try:
            while not errors:
                mutant, by_hand = waiting.get_nowait()
                verdict = judge.judge(mutant, by_hand=by_hand)
                verdict.room = mutant.room if isinstance(mutant, Planted) else ""
                if errors:  # the run was stopped: tests that were ended by force judge no mutant
                    return
                results.add(verdict)
                print(f"{verdict.outcome:>15}  {verdict.id}  {verdict.by}  ({verdict.seconds:.0f} s)", flush=True)
        except queue.Empty:
            pass
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=work, args=[judge], daemon=True) for judge in judges]
    try:
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    except KeyboardInterrupt as stopped:
        errors.insert(0, stopped)
    finally:
        for judge in judges:
            judge.close()
    if errors:
        raise errors[0]


def _table(verdicts: Sequence[Verdict]) -> str:
    """Counts the mutants by room or area, kind and outcome, and lists those that no test caught."""
    rows: dict[tuple[str, bool], list[Verdict]] = defaultdict(list)
    for verdict in verdicts:
        rows[verdict.room or verdict.area, verdict.by_hand].append(verdict)
    lines = [f"{'room':<20} {'kind':<9} {'mutants':>7} {'caught':>7} {'survived':>8} {'not run':>7} {'score':>6}"]
    for (area, by_hand), found in [*sorted(rows.items()), (("all", True), list(verdicts))]:
        caught, survived, not_run = (sum(v.outcome == what for v in found) for what in (CAUGHT, SURVIVED, UNCOVERED))
        judged = caught + survived + not_run
        kind = "" if area == "all" else "by hand" if by_hand else "drawn"
        score = f"{100 * caught / judged:.0f} %" if judged else "-"
        lines.append(f"{area:<20} {kind:<9} {len(found):>7} {caught:>7} {survived:>8} {not_run:>7} {score:>6}")
    missed = [verdict for verdict in verdicts if verdict.outcome in (SURVIVED, UNCOVERED)]
    lines += [f"{v.outcome}: {v.id}, {v.file} {v.function}: {v.wrong}" for v in missed]
    return "\n".join(lines)


if __name__ == "__main__":
    main()
