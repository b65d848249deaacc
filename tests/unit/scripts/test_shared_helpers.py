"""Folders of tests share helpers in tests/kit: beside the unit tests, none imports from the modules of these."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
FOLDERS = ("contracts", "kills", "kit", "mutants", "real", "simulation", "stories", "verify")
UNIT = ["tests", "unit"]


def imported(tree: ast.AST, package: str) -> Iterator[str]:
    """Yields the names of what a module of a package imports, also inside of its functions."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            above = package.split(".")[: -(node.level - 1) or None] if node.level else []
            parts = [*above, *([node.module] if node.module else [])]
            yield from (".".join([*parts, alias.name]) for alias in node.names)


def of_unit_tests(code: str, package: str) -> list[str]:
    return [name for name in imported(ast.parse(code), package) if name.split(".")[:2] == UNIT]


@pytest.mark.parametrize("folder", FOLDERS)
def test_no_module_imports_from_the_unit_tests(folder: str) -> None:
    modules = sorted((ROOT / "tests" / folder).rglob("*.py"))
    packages = {path: ".".join(path.relative_to(ROOT).parent.parts) for path in modules}
    found = {str(path): names for path in modules if (names := of_unit_tests(path.read_text(), packages[path]))}
    assert modules
    assert not found


@pytest.mark.parametrize(
    ("code", "names"),
    [
        ("from tests.unit.cli.test_x import a, b", ["tests.unit.cli.test_x.a", "tests.unit.cli.test_x.b"]),
        ("import tests.unit.cli.test_x as x", ["tests.unit.cli.test_x"]),
        ("from tests import unit", ["tests.unit"]),
        ("def f():\n    from tests.unit import cli", ["tests.unit.cli"]),
        ("from ...unit.cli import test_x", ["tests.unit.cli.test_x"]),
        ("from .unit import x\nfrom tests.kit import unit\nimport tests.united", []),
    ],
)
def test_an_import_from_the_unit_tests_is_found_in_each_form(code: str, names: list[str]) -> None:
    assert of_unit_tests(code, "tests.kit.kafka") == names
