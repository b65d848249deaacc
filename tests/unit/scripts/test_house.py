"""Figures of the structure of a tree, from small trees whose rooms and imports are known."""

from __future__ import annotations

from pathlib import Path

import pytest

from scripts.house import Rooms, figures, files_of, rooms_of

LAYERS = """[importlinter:contract:x]
containers =
    house
exhaustive = True
layers =
    roof
    left | right
    ground

"""


def built(tree: Path, layers: str = LAYERS, **modules: str) -> Path:
    """Writes modules of a package by their paths, where ``_in_`` follows a folder."""
    (tree / ".importlinter").write_text(layers)
    for name, text in {"__init__": "", **modules}.items():
        file = tree / "house" / f"{name.replace('_in_', '/')}.py"
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
    return tree


def test_a_room_is_a_folder_or_a_module_and_an_arrow_counts_once(tmp_path: Path) -> None:
    tree = built(
        tmp_path,
        roof="from house.left.door import a\nfrom house.left import window\nfrom house import right\n",
        left_in_door="import house.ground\nfrom house.left.window import b\n",
        left_in_window="",
        right="",
        ground="import json\n",
    )
    assert rooms_of(tree, "house") == Rooms(rooms=4, floors=3, arrows=3, circles=0, upward=0)


def test_rooms_that_reach_each_other_are_one_circle_on_one_floor(tmp_path: Path) -> None:
    tree = built(tmp_path, left="import house.right\n", right="import house.ground\n", ground="import house.left\n")
    assert rooms_of(tree, "house") == Rooms(rooms=3, floors=1, arrows=3, circles=1, upward=1)


def test_the_rooms_of_a_package_inside_are_measured_by_its_own_contract(tmp_path: Path) -> None:
    layers = LAYERS.replace("house", "house.left").replace("roof", "door").replace("left | right", "window")
    modules = {"left_in_door": "import house.left.window\n", "left_in_window": "", "right": ""}
    assert rooms_of(built(tmp_path, layers, **modules), "house.left") == Rooms(2, 2, 1, 0, 0)
    modules["left_in_window"] = "import house.left.door\nimport house.right\n"
    assert rooms_of(built(tmp_path, layers, **modules), "house.left") == Rooms(2, 1, 2, 1, 1)


def test_two_rooms_that_import_each_other_are_a_circle(tmp_path: Path) -> None:
    tree = built(tmp_path, roof="import house.left\n", left="import house.right\n", right="import house.left\n")
    assert rooms_of(tree, "house")[:4] == (3, 2, 3, 1)


@pytest.mark.parametrize("layers", [LAYERS, ""])
def test_an_arrow_against_the_contract_runs_upwards(tmp_path: Path, layers: str) -> None:
    tree = built(tmp_path, layers, roof="", ground="import house.roof\n")
    assert rooms_of(tree, "house").upward == (1 if layers else 0)


def test_files_are_counted_with_their_lengths(tmp_path: Path) -> None:
    tree = built(tmp_path, left="x\n" * 60, right="x\n" * 30)
    assert tuple(files_of([tree / "house"])) == (3, 90, 30, 30, 2)


def test_a_tree_has_the_same_figures_beside_another(tmp_path: Path) -> None:
    for folder in ("cli", "tests"):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "one.py").write_text("x = 1\n")
    found = dict(figures(built(tmp_path, roof="import house.ground\n", ground=""), "house"))
    assert (found["house: arrows"], found["house: files"], found["tests: lines"]) == ("1", "3", "1")
