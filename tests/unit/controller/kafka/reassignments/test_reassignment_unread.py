"""Reassignments of partitions whose state znode is garbage when a term begins: they wait until it is mended."""

from __future__ import annotations

import pytest

from metadata_store import paths
from metadata_store.codecs.state import encode_state
from metadata_store.codecs.topic import encode_topic
from metadata_store.port import ANY_VERSION
from state_machines.model.types import Assignment
from tests.kit.controller_kafka import id_of
from tests.kit.controller_parts import LEADER_AND_ISR, STOP_REPLICA
from tests.kit.controller_world import World, in_world
from tests.kit.reassignment_kit import caught_up, propagated, written

OVERRIDDEN = Assignment((2, 4, 1, 3), (4, 3), (1, 3))
"""To 2 and 3 first, then to 2 and 4: 3 is dropped."""
BEGUN = Assignment((2, 4, 1), (4,), (1,))


async def serving(w: World, moved: Assignment, state: bytes) -> None:
    """A term of a topic whose partition is being moved."""
    await w.topic("t", (1, 2), leaders=True)
    await w.operator.set(paths.topic("t"), encode_topic({0: moved}, id_of("t")), ANY_VERSION)
    await w.operator.set(paths.state("t", 0), state, ANY_VERSION)
    await w.begin_term()
    await propagated(w)


@pytest.mark.parametrize("moved", [OVERRIDDEN, BEGUN])
@in_world(1, 2, 3, 4)
async def test_nothing_is_dropped_of_a_partition_before_its_isr_is_known(w: World, moved: Assignment) -> None:
    await serving(w, moved, b"{")
    assert written(w, "t") == moved
    assert not any(w.wires.partitions(broker, LEADER_AND_ISR) for broker in (1, 2, 3, 4))
    await w.operator.set(paths.state("t", 0), encode_state(1, 3, (1, 2), 0), ANY_VERSION)
    await propagated(w)
    assert written(w, "t") == BEGUN
    assert any(p.is_new for _, p in w.wires.partitions(4, LEADER_AND_ISR))
    assert len(w.wires.partitions(3, STOP_REPLICA)) == (1 if moved is OVERRIDDEN else 0)
    await caught_up(w)
    assert (written(w, "t"), w.leaders()) == (Assignment((2, 4)), {("t", 0): (2, (2, 4))})
    w.agreed()
