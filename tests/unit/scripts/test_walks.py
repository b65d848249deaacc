"""Walks of the in-memory world: which rooms an event passes, in order."""

from __future__ import annotations

from scripts.walks import Walk, broker_dies, figures, room
from tests.kit.kafka.world import KafkaWorld, in_world


def test_a_room_stands_in_a_domain_or_is_a_top_package() -> None:
    files = (
        "controller/kafka/path/gate.py",
        "controller/role/claim.py",
        "controller/main.py",
        "brokers/wire/errors.py",
    )
    assert [room(file) for file in files] == ["controller.kafka.path", "controller.role", "controller.main", "brokers"]


def test_returns_are_stays_in_rooms_of_earlier_ones() -> None:
    assert figures([("a", []), ("b", []), ("a", [])]) == "2 rooms, 3 stays, 1 returns"


@in_world()
async def test_the_walk_of_a_death_leads_from_the_watch_by_the_one_path_to_the_channels(w: KafkaWorld) -> None:
    walk = Walk()
    await broker_dies(walk, w)
    functions = [name for _, some in walk.stays() for name in some]
    way = ["term.Term.watched", "broker_change.broker_change", "facts.Facts.enter", "controller.Controller.carry_out"]
    found = [functions.index(name) for name in (*way, "channels.Channels.propagate")]
    assert found == sorted(found)
    assert not any("test_walks" in name or "KafkaWorld" in name for name in functions)
