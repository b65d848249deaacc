"""Measures the structure of a tree, also beside another one: rooms, floors, arrows, circles, lengths of files.

A room is what stands directly in a package: a folder with all that is in it, or a module. An arrow leads from one room
to another that it imports. A floor is one more than the highest floor among the rooms that a room imports.

    python -m scripts.house controller                  this tree
    python -m scripts.house controller.kafka            the rooms of a package inside
    python -m scripts.house controller --beside OTHER   and a checkout of another revision
"""

from __future__ import annotations

import argparse
import ast
import re
import statistics
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parent.parent
PRODUCT = (
    *("cli", "controller", "pipeline", "admin", "brokers"),
    *("metadata_store", "state_machines", "configs", "regent_agent"),
)
SHORT_LINES = 50

Graph = dict[str, set[str]]


class Rooms(NamedTuple):
    """Holds the figures of one package."""

    rooms: int
    floors: int
    arrows: int
    circles: int
    upward: int


class Files(NamedTuple):
    """Holds the figures of some files, lengths in lines."""

    files: int
    lines: int
    median: int
    average: int
    short: int


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("package", nargs="?", default="controller", help="dotted name, such as controller.kafka")
    parser.add_argument("--beside", type=Path, metavar="OTHER", help="checkout of another revision")
    options = parser.parse_args()
    trees = [tree for tree in (options.beside, ROOT) if tree]
    for tree in trees:
        if not any(folder_of(tree, options.package).rglob("*.py")):
            parser.error(f"{tree} has no package {options.package}: give a dotted name, such as controller.kafka")
    tables = [dict(figures(tree, options.package)) for tree in trees]
    for name in tables[-1]:
        print(f"{name:<40}", *(f"{table.get(name, '-'):>10}" for table in tables))


def figures(tree: Path, package: str) -> Iterator[tuple[str, str]]:
    """Yields each figure with its name, as text."""
    for name, value in rooms_of(tree, package)._asdict().items():
        yield f"{package}: {name}", f"{value:,}"
    for title, packages in ((package, (package,)), ("product", PRODUCT), ("tests", ("tests",))):
        for name, value in files_of(folder_of(tree, one) for one in packages)._asdict().items():
            yield f"{title}: {name}", f"{value:,}"


def folder_of(tree: Path, package: str) -> Path:
    return tree.joinpath(*package.split("."))


def files_of(folders: Iterable[Path]) -> Files:
    lengths = [len(file.read_text().splitlines()) for folder in folders for file in folder.rglob("*.py")]
    average = round(statistics.fmean(lengths))
    short = sum(length < SHORT_LINES for length in lengths)
    return Files(len(lengths), sum(lengths), round(statistics.median(lengths)), average, short)


def rooms_of(tree: Path, package: str) -> Rooms:
    """Counts rooms, floors and arrows; a circle is a group of rooms of which each reaches each."""
    graph = imports_between(tree, package)
    groups = reaching_each_other(graph)
    floors = floors_of(graph, groups)
    layers = layers_of(tree, package)
    upward = sum(layers.get(a, 0) < layers.get(b, 0) for a, others in graph.items() for b in others) if layers else 0
    arrows = sum(len(others) for others in graph.values())
    return Rooms(len(graph), max(floors.values()), arrows, sum(len(group) > 1 for group in groups), upward)


def imports_between(tree: Path, package: str) -> Graph:
    """Returns the rooms of a package with the rooms that each imports. Type-checking imports count as others do."""
    graph: Graph = {}
    inside = folder_of(tree, package)
    for file in sorted(inside.rglob("*.py")):
        parts = file.relative_to(inside).with_suffix("").parts
        if parts == ("__init__",):
            continue
        others = graph.setdefault(parts[0], set())
        others |= {room for name in imported(file, package) if (room := room_of(name, package)) != parts[0]}
    return {room: others & graph.keys() for room, others in graph.items()}


def room_of(name: str, package: str) -> str:
    return name.removeprefix(f"{package}.").split(".")[0]


def imported(file: Path, package: str) -> Iterator[str]:
    """Yields the dotted names below the package that a file imports."""
    for node in ast.walk(ast.parse(file.read_text())):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names if alias.name.startswith(package + "."))
        elif isinstance(node, ast.ImportFrom) and node.module == package:
            yield from (f"{package}.{alias.name}" for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and (node.module or "").startswith(package + "."):
            yield node.module or ""


def reaching_each_other(graph: Graph) -> list[frozenset[str]]:
    reached = {room: set(others) for room, others in graph.items()}
    for through in graph:
        for room in graph:
            if through in reached[room]:
                reached[room] |= reached[through]
    return sorted({frozenset({a} | {b for b in reached[a] if a in reached[b]}) for a in graph}, key=min)


def floors_of(graph: Graph, groups: list[frozenset[str]]) -> dict[frozenset[str], int]:
    """Returns the floor of each group; the groups have no circle between them."""
    of = {room: group for group in groups for room in group}
    below = {group: {of[other] for room in group for other in graph[room]} - {group} for group in groups}
    floors: dict[frozenset[str], int] = {}
    while len(floors) < len(groups):
        for group in groups:
            if group not in floors and below[group] <= floors.keys():
                floors[group] = 1 + max((floors[other] for other in below[group]), default=0)
    return floors


def layers_of(tree: Path, package: str) -> dict[str, int]:
    """Returns the height of each room in the contract of the package's layers, empty where there is none."""
    layers = rf"containers =\n +{re.escape(package)}\n(?:\w.*\n)*?layers =\n((?: +.+\n)+)"
    contract = re.search(layers, (tree / ".importlinter").read_text())
    rows = contract.group(1).splitlines() if contract else []
    return {room: -at for at, row in enumerate(rows) for room in re.split(r"\W+", row.strip())}


if __name__ == "__main__":
    main()
