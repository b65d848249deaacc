"""Knows which tests run which functions of the product: recorded once, and again for test files that changed.

A copy of the repository is recorded in which each function of the product begins with a line that notes it. Tests that
fail there, without any mutant, catch nothing.
"""

from __future__ import annotations

import ast
import hashlib
import json
import os
from collections import defaultdict
from collections.abc import Collection, Iterable, Sequence
from pathlib import Path, PurePosixPath
from typing import Final

import msgspec

from tests.mutants import hits, recorder
from tests.mutants.source import MODULE, ROOT, Function, functions, product_files
from tests.mutants.workplace import Workplace

MAP: Final = ROOT / "build" / "mutants-coverage.json"
LATER: Final = ("real", "verify", "mutants")
"""Folders of tests that are not selected by what they run."""
RECORD_S_MAX: Final = 7_200.0
IMPORTS: Final = ""
"""Stands for the imports before the first test."""
_IMPORT: Final = "from tests.mutants.hits import hits as _hits\n"


class Ran(msgspec.Struct):
    """What a test ran: functions as ``file::name``; ``failed``: without any mutant."""

    functions: list[str]
    seconds: float
    failed: bool = False


class Coverage(msgspec.Struct):
    """What tests ran, by test, and the hashes of the test files that were recorded."""

    files: dict[str, str] = {}
    tests: dict[str, Ran] = {}

    def covering(self, file: str, function: str, only: Collection[str] = ()) -> list[str]:
        """Selects the tests that run a function: those of its room first, and the files that cost least per test first.

        Code that runs at the import of its module is covered by the tests that run anything of the module.
        """
        wanted, head = f"{file}::{function}", f"{file}::"
        sound = {test: ran.functions for test, ran in self.tests.items() if not ran.failed and test != IMPORTS}
        found = [test for test, ran in sound.items() if wanted in ran]
        imported = self.tests.get(IMPORTS, Ran([], 0.0)).functions
        if not found and (function == MODULE or wanted in imported):
            found = [test for test, ran in sound.items() if any(one.startswith(head) for one in ran)]
        by_file: dict[str, list[str]] = defaultdict(list)
        for test in found:
            if not only or file_of(test) in only:
                by_file[file_of(test)].append(test)
        cost = {name: (0.2 + self.seconds(tests)) / len(tests) for name, tests in by_file.items()}
        near = nearest(file, by_file)
        order = sorted(by_file, key=lambda name: (not name.startswith(near), cost[name], name))
        return [test for name in order for test in by_file[name]]

    def seconds(self, tests: Iterable[str]) -> float:
        """Adds up how long tests took; a mutant may give a test another id, which took no time."""
        return sum(self.tests[test].seconds for test in tests if test in self.tests)


def file_of(test: str) -> str:
    """Returns the file of a test."""
    return test.partition("::")[0]


def nearest(file: str, tests: Iterable[str]) -> str:
    """Returns the folder below ``tests/unit`` that mirrors the folder of a product file, or the next one above.

    Empty where none of the tests stands in one of these.
    """
    listed = list(tests)
    for folder in PurePosixPath(file).parents[:-1]:
        if any(test.startswith(f"tests/unit/{folder}/") for test in listed):
            return f"tests/unit/{folder}/"
    return ""


def selectable_files() -> list[str]:
    """Lists the test files that may be selected."""
    found = (path.relative_to(ROOT).as_posix() for path in (ROOT / "tests").rglob("test_*.py"))
    return sorted(file for file in found if file.split("/")[1] not in LATER)


def coverage(jobs: int, only: Sequence[str] = (), *, afresh: bool = False) -> Coverage:
    """Reads the map, after new and changed test files were recorded."""
    known = msgspec.json.decode(MAP.read_bytes(), type=Coverage) if MAP.exists() and not afresh else Coverage()
    files = {file: _digest(file) for file in only or selectable_files()}
    new = [file for file, digest in files.items() if known.files.get(file) != digest]
    if new:
        print(f"recording what {len(new)} test files run", flush=True)
        fresh = _recorded(new, jobs)
        for test in sorted(test for test, ran in fresh.items() if ran.failed):
            print(f"fails without any mutant, and catches none: {test}")
        kept = {test: ran for test, ran in known.tests.items() if file_of(test) not in new}
        kept.pop(IMPORTS, None)
        before = known.tests.get(IMPORTS, Ran([], 0.0)).functions
        fresh[IMPORTS].functions = sorted({*fresh[IMPORTS].functions, *before})
        known = Coverage(known.files | {file: files[file] for file in new}, kept | fresh)
        MAP.parent.mkdir(exist_ok=True)
        MAP.write_bytes(msgspec.json.encode(known))
    return known


def _digest(file: str) -> str:
    return hashlib.sha256((ROOT / file).read_bytes()).hexdigest()[:16]


def _recorded(files: Sequence[str], jobs: int) -> dict[str, Ran]:
    place = Workplace()
    try:
        names: list[str] = []
        for file in product_files():
            place.write(file, reporting((ROOT / file).read_text(encoding="utf-8"), file, names))
        records = place.root / "build" / "record"
        records.mkdir()
        workers = ["-n", str(jobs), "--dist=loadfile"] if jobs > 1 else []
        environ = {hits.FOLDER: str(records), "PYTEST_PLUGINS": recorder.__name__}
        ran = place.run(["-m", "pytest", "-q", "-p", "no:cacheprovider", *workers, *files], RECORD_S_MAX, environ)
        found = _read(records, names)
        if not found:
            raise RuntimeError(f"no test was recorded:\n{ran.output}")
        if ran.code is None:
            raise RuntimeError(f"the tests were not recorded to their end within {RECORD_S_MAX:g} s")
        return found
    finally:
        place.close()


def _read(records: Path, names: Sequence[str]) -> dict[str, Ran]:
    found: dict[str, Ran] = {}
    for path in records.glob("*.jsonl"):
        for line in path.read_text(encoding="utf-8").splitlines():
            record = json.loads(line)
            ran = found.setdefault(record["test"], Ran([], 0.0))
            ran.functions = sorted({*ran.functions, *(names[hit] for hit in record["hits"])})
            ran.seconds += record["seconds"]
            ran.failed = ran.failed or record["failed"]
    return found


def reporting(text: str, file: str, names: list[str]) -> str:
    """Adds the line that notes a function to each function of a module."""
    tree = ast.parse(text)
    lines = text.splitlines(keepends=True)
    added: list[tuple[int, str]] = []
    for name, function in functions(tree).items():
        body = _first(function)
        if body is not None:
            line = min([body.lineno, *(one.lineno for one in getattr(body, "decorator_list", ()))])
            added.append((line, f"{' ' * body.col_offset}_hits.add({len(names)})\n"))
            names.append(f"{file}::{name}")
    for line, note in sorted(added, reverse=True):
        lines.insert(line - 1, note)
    after = _behind_future(tree)
    return "".join([*lines[:after], _IMPORT if added else "", *lines[after:]])


def _first(function: Function) -> ast.stmt | None:
    """Returns the first statement that stands on a line of its own."""
    body = function.body[1:] if ast.get_docstring(function) is not None else function.body
    if not body or body[0].lineno == function.lineno:
        return None
    return body[0]


def _behind_future(tree: ast.Module) -> int:
    """Returns the line behind a module's docstring and its imports of ``__future__``."""
    last = 0
    for at, node in enumerate(tree.body):
        is_docstring = at == 0 and isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
        if not is_docstring and not (isinstance(node, ast.ImportFrom) and node.module == "__future__"):
            break
        last = node.end_lineno or 0
    return last


def default_jobs() -> int:
    """Returns half of the processors."""
    return max(1, (os.cpu_count() or 2) // 2)
