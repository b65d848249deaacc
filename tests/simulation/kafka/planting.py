"""Registers planted bugs of Kafka's simulation."""

from __future__ import annotations

from tests.kit.simulation.planting import Bugs

MUTATIONS = Bugs()
mutation = MUTATIONS.add
mutation_in_a_story = MUTATIONS.add_apart
"""Registers a bug that a story catches, because seeds meet it too rarely: not in the table of all."""
