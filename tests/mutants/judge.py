"""Judges a mutant: the tests that run its function, then seeds of the simulation, until one of them fails.

Types and imports catch nothing here: `make check` is not run. A stage that does not end in time has caught the mutant.
A test that fails is run once more alone, with the mutant: one that passes then is unsteady, and the others go on.
"""

from __future__ import annotations

import importlib.util
import re
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Final, Protocol

import msgspec

from tests.mutants import recorder
from tests.mutants.coverage import Coverage, file_of, nearest
from tests.mutants.workplace import Ran, Workplace

CAUGHT: Final = "caught"
SURVIVED: Final = "survived"
UNCOVERED: Final = "no test runs it"
UNJUDGED: Final = "not judged"

SEEDS: Final = 60
OF_REGIONS: Final = ("state_machines/regions/", "controller/regions/", "brokers/regions/", "regent_agent/")
PROCEDURES: Final = ("state_machines/procedures/", "controller/procedures/")
SIMULATED: Final = ("state_machines/", "controller/", "metadata_store/", "brokers/outbound/")
SIMULATION_S_MAX: Final = 900.0
TESTS_S_MAX: Final = 240.0
"""Tests that take longer in all, as recorded, are cut: the files with the most tests for their time stay."""
SLOWER_MAX: Final = 6.0
START_S: Final = 60.0
TEST_S_MIN: Final = 30.0
UNSTEADY_MAX: Final = 3
FAILED_SEED: Final = re.compile(r"seed \d+ failed: ")
NOT_FOUND: Final = 4
"""Exit code of pytest where the mutant changed the names of tests: their files are run instead."""
PIPELINE_S_MAX: Final = 1_200.0


class Mutant(Protocol):
    """A change of one function."""

    @property
    def id(self) -> str: ...
    @property
    def file(self) -> str: ...
    @property
    def function(self) -> str: ...
    @property
    def wrong(self) -> str: ...
    @property
    def mutant(self) -> str: ...


class Verdict(msgspec.Struct):
    """The fate of a mutant. ``by``: the test or the stage that failed; ``left_out``: tests there was no time for.

    ``room``: of a bug that was written by hand.
    """

    id: str
    area: str
    file: str
    function: str
    wrong: str
    by_hand: bool
    outcome: str
    by: str = ""
    tests: int = 0
    left_out: int = 0
    unsteady: list[str] = []
    seconds: float = 0.0
    room: str = ""


class Judge:
    """Judges mutants one after the other in a copy of the repository."""

    def __init__(self, coverage: Coverage, *, only: Sequence[str] = (), simulation: bool = True) -> None:
        self._coverage = coverage
        self._only = only
        self._simulation = simulation
        self._place = Workplace()

    @property
    def root(self) -> Path:
        """Returns the folder of the copy."""
        return self._place.root

    def close(self) -> None:
        """Removes the copy."""
        self._place.close()

    def judge(self, mutant: Mutant, *, by_hand: bool) -> Verdict:
        """Plants a mutant, looks for a test that fails, and takes the mutant out again."""
        area = mutant.file.partition("/")[0]
        verdict = Verdict(mutant.id, area, mutant.file, mutant.function, mutant.wrong, by_hand, UNCOVERED)
        began_s = time.monotonic()
        self._place.write(mutant.file, mutant.mutant)
        try:
            self._tests(verdict)
            if verdict.outcome != CAUGHT and area == "pipeline":
                self._pipeline(verdict)
            for module in _simulations(mutant.file) if self._simulation else ():
                if verdict.outcome != CAUGHT:
                    self._seeds(verdict, module)
        finally:
            self._place.restore(mutant.file)
        verdict.seconds = round(time.monotonic() - began_s, 1)
        return verdict

    def _tests(self, verdict: Verdict) -> None:
        """Runs the tests of the function's own room first: to collect all others takes longer than to run these."""
        covering = self._coverage.covering(verdict.file, verdict.function, self._only)
        tests = self._affordable(covering)
        verdict.tests, verdict.left_out = len(tests), len(covering) - len(tests)
        if tests:
            verdict.outcome = SURVIVED
        room = nearest(verdict.file, tests)
        for part in (
            [test for test in tests if test.startswith(room)],
            [test for test in tests if not test.startswith(room)],
        ):
            if verdict.outcome != CAUGHT:
                self._part(verdict, part)

    def _part(self, verdict: Verdict, tests: list[str]) -> None:
        while tests:
            ran, failed = self._pytest(tests)
            if ran.code in (0, 5):
                return
            if ran.code is None or failed is None or file_of(failed) == failed:  # ended by force, or cannot be imported
                verdict.outcome, verdict.by = CAUGHT, failed or "the run of tests ended"
                return
            again, _ = self._pytest([failed])
            if again.code or again.code is None or len(verdict.unsteady) >= UNSTEADY_MAX:
                verdict.outcome, verdict.by = CAUGHT, failed
                return
            verdict.unsteady.append(failed)
            tests = tests[tests.index(failed) + 1 :] if failed in tests else []

    def _affordable(self, tests: Sequence[str]) -> list[str]:
        chosen: list[str] = []
        left_s = TESTS_S_MAX
        for test in tests:
            left_s -= self._coverage.seconds([test])
            if left_s < 0 and chosen:
                break
            chosen.append(test)
        return chosen

    def _pytest(self, tests: Sequence[str]) -> tuple[Ran, str | None]:
        """Runs tests until one fails; returns that one, or the one that was running when the run was ended."""
        listed, progress = (self._place.root / "build" / name for name in ("mutant-tests", "mutant-progress"))
        slowest_s = max(self._coverage.seconds([test]) for test in tests)
        timeout = f"--timeout={max(TEST_S_MIN, SLOWER_MAX * slowest_s):.0f}"
        options = ["-x", "-q", "--no-header", timeout, "-p", "no:cacheprovider", "--hypothesis-seed=0"]
        limit_s = START_S + SLOWER_MAX * self._coverage.seconds(tests)
        environ = {recorder.PROGRESS: str(progress), "PYTEST_PLUGINS": recorder.__name__}
        ran = Ran(NOT_FOUND, "")
        for names in (tests, list(dict.fromkeys(map(file_of, tests)))):
            if ran.code == NOT_FOUND:
                listed.write_text("\n".join(names), encoding="utf-8")
                progress.write_text("", encoding="utf-8")
                ran = self._place.run(["-m", "pytest", *options, f"@{listed}"], limit_s, environ)
        return ran, _last(progress)

    def _seeds(self, verdict: Verdict, module: str) -> None:
        arguments = ["-m", module, "--seeds", str(SEEDS), "--jobs", "1"]
        ran = self._place.run(arguments, SIMULATION_S_MAX, until=FAILED_SEED)
        if ran.code == 0:
            verdict.outcome = SURVIVED
        else:
            verdict.outcome, verdict.by = CAUGHT, f"{module}: {ran.found or 'it did not end well'}"

    def _pipeline(self, verdict: Verdict) -> None:
        if importlib.util.find_spec("pyspark") is None:
            verdict.outcome, verdict.by = UNJUDGED, "PySpark is not installed: make venv-pipeline"
            return
        ran = self._place.run(["-m", "pytest", "-x", "-q", "tests/real/pipeline", "--timeout=300"], PIPELINE_S_MAX)
        if ran.code == 0 and " passed" not in ran.output:
            verdict.outcome, verdict.by = UNJUDGED, "the tests of the pipeline need Java 17"
            return
        verdict.outcome, verdict.by = (SURVIVED, "") if ran.code == 0 else (CAUGHT, "tests/real/pipeline")


def _simulations(file: str) -> list[str]:
    """Returns the simulations that run a file: of the regions of a service, of a Kafka cluster, or both."""
    found = ["tests.simulation.regions"] if file.startswith((*OF_REGIONS, *PROCEDURES)) else []
    return (
        [*found, "tests.simulation.kafka"] if file.startswith(SIMULATED) and not file.startswith(OF_REGIONS) else found
    )


def _last(progress: Path) -> str | None:
    lines = progress.read_text(encoding="utf-8").splitlines()
    failed = next((line for line in lines if line.startswith("failed ")), lines[-1] if lines else "")
    return failed.partition(" ")[2] or None
