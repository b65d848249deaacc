"""Collects bugs planted in the product, one at a time: the simulation must catch every one of them.

Each is a small patch of one place, as an engineer might have written it.
"""

from __future__ import annotations

from tests.simulation.kafka import (
    mutations_calls,
    mutations_deletion,
    mutations_drains,
    mutations_elections,
    mutations_foreign,
    mutations_plans,
    mutations_reassignment,
    mutations_role,
    mutations_sending,
    mutations_strays,
    mutations_stuck,
    mutations_writing,
)
from tests.simulation.kafka.planting import MUTATIONS

__all__ = [
    "MUTATIONS",
    "mutations_calls",
    "mutations_deletion",
    "mutations_drains",
    "mutations_elections",
    "mutations_foreign",
    "mutations_plans",
    "mutations_reassignment",
    "mutations_role",
    "mutations_sending",
    "mutations_strays",
    "mutations_stuck",
    "mutations_writing",
]
