"""A term changes its model by decisions and facts alone, and operators change nothing that decisions read."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

from controller.kafka.journal.term_journal import KafkaJournal
from state_machines.model.cluster import Cluster

ROOT = Path(__file__).parents[5]
OBSERVING = frozenset(name for name in dir(Cluster) if name.startswith("observe_")) | {"load_leadership"}
"""Methods by which facts change a model; nothing else has methods of these names."""
CHANGING = frozenset({"apply", "apply_replicas", "end_rows", "intern_isr"}) | {
    name for kind in (dict, set, list) for name in dir(kind) if not name.startswith("_") and name not in dir(frozenset)
} - {"get", "items", "keys", "values", "index", "count"}
"""Methods that change a model or a collection in it."""
MODEL = frozenset({"cluster", "_cluster", "model"})
TERM = MODEL | {"term", "controller", "c"}
KAFKA = {
    room.name
    for room in (ROOT / "controller" / "kafka").iterdir()
    if (room / "__init__.py").exists() or (room.suffix == ".py" and room.stem != "__init__")
}
OF_KAFKA = sorted(KAFKA - {"path", "shadow"})
HANDLING = (*(f"kafka/{room}" for room in OF_KAFKA), "daemon", "operator", "http", "domain.py")
ROOMS = ("kafka/path", *HANDLING)
"""All but the shadow, whose model is its own."""
THE_PATH = {
    "controller/kafka/path/controller.py: self.cluster.apply",
    "controller/kafka/path/controller.py: self.cluster.apply_replicas",
}
"""Where a committed decision enters the model."""


def changes(tree: ast.AST, owners: frozenset[str]) -> Iterator[str]:
    """Yields what code changes of objects with the names ``owners``: attributes that it sets, methods that change."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute | ast.Subscript) and isinstance(node.ctx, ast.Store | ast.Del):
            names = named(node)
            if not owners.isdisjoint(names[:-1]):
                yield ".".join(names)
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            names = named(node.func)
            if node.func.attr in OBSERVING or (node.func.attr in CHANGING and not owners.isdisjoint(names[:-1])):
                yield ".".join(names)


def named(node: ast.expr) -> list[str]:
    """Returns the names of ``a.b[c].d``: a, b, d."""
    if isinstance(node, ast.Attribute):
        return [*named(node.value), node.attr]
    if isinstance(node, ast.Subscript):
        return named(node.value)
    return [node.id] if isinstance(node, ast.Name) else []


def found(owners: frozenset[str], *rooms: str) -> set[str]:
    """Returns what the code of rooms changes, by file."""
    trees = ((path.relative_to(ROOT), ast.parse(path.read_text())) for room in rooms for path in files(room))
    return {f"{path}: {change}" for path, tree in trees for change in changes(tree, owners)}


def files(room: str) -> list[Path]:
    place = ROOT / "controller" / room
    found = [place] if place.is_file() else sorted(place.rglob("*.py"))
    assert found, f"the controller has no room {room}"
    return found


@pytest.mark.parametrize(
    "code",
    [
        "c.cluster.observe_drained(now)",
        "model.observe_drained(now)",
        "self.cluster.drained = now",
        "c.cluster.rows[i] = row",
        "term.cluster.leaderless.discard(i)",
        "c.cluster.reassigning |= found",
        "del cluster.given_up[i]",
        "for c.cluster.epoch in range(3): pass",
    ],
)
def test_a_change_of_a_model_is_found(code: str) -> None:
    assert list(changes(ast.parse(code), MODEL))


@pytest.mark.parametrize("code", ["c.enter(fact)", "rows = c.cluster.rows[:]", "c.cluster.rows.index(row)"])
def test_reading_and_entering_facts_change_no_model_by_hand(code: str) -> None:
    assert not list(changes(ast.parse(code), MODEL))


def test_a_term_changes_its_model_by_decisions_and_facts_alone() -> None:
    assert found(MODEL, *ROOMS) == THE_PATH


def test_facts_alone_begin_channels_and_record_what_was_observed() -> None:
    """No handler repeats a part of what entering a fact does: rows, channels, topics that are handed out."""
    entering = {"channels": {"add", "remove", "live_list_changed", "hand_out"}, "journal": set(vars(KafkaJournal))}
    rooms = [room for room in HANDLING if room not in ("kafka/journal", "kafka/snapshots", "operator")]
    trees = [(path.stem, ast.parse(path.read_text())) for room in rooms for path in files(room)]
    nodes = [(stem, named(node.func)) for stem, tree in trees for node in ast.walk(tree) if isinstance(node, ast.Call)]
    calls = {
        (stem, ".".join(chain[-2:]))
        for stem, chain in nodes
        if chain[-1:] and chain[-1] in entering.get(chain[-2:][0], ())
    }
    assert calls == {("term", "journal.request")}


def test_handlers_set_no_attribute_of_the_controller() -> None:
    """It hands objects to them; what a handler remembers is an attribute of one of these."""
    trees = [ast.parse(path.read_text()) for room in HANDLING for path in files(room)]
    nodes = (node for tree in trees for node in ast.walk(tree) if isinstance(node, ast.Attribute))
    chains = [named(node) for node in nodes if isinstance(node.ctx, ast.Store)]
    assert chains, "objects have attributes that are set"
    assert [chain for chain in chains if chain[-2:-1] in (["c"], ["controller"])] == []


def test_operators_code_changes_nothing_that_decisions_read() -> None:
    assert found(TERM, "operator", "http", "domain.py", "kafka/snapshots") == set()


def test_operators_code_enters_one_fact_alone() -> None:
    """Their status reads ``min.insync.replicas`` for the term, too: all else that decisions read, the term reads."""
    trees = {path.name: ast.parse(path.read_text()) for room in ("operator", "http") for path in files(room)}
    nodes = [(name, node) for name, tree in trees.items() for node in ast.walk(tree) if isinstance(node, ast.Call)]
    entered = [(name, ast.unparse(node)) for name, node in nodes if named(node.func)[-2:] == ["term", "enter"]]
    assert entered == [("view.py", "term.enter(MinIsrRead(found))")]


def test_machines_alone_draw_states() -> None:
    """Their tables say which transitions there are: a decision that drew a state itself would bypass them."""
    drawing = {"lead", "move", "move_replica"}
    calls = {
        str(path.relative_to(ROOT))
        for path in (ROOT / "state_machines").rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Attribute) and node.attr in drawing and named(node)[-2] == "draft"
    }
    planning = {call for call in calls if call.startswith("state_machines/planning/")}
    assert calls - planning == {"state_machines/machines/partition.py", "state_machines/machines/replica.py"}
