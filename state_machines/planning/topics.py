"""Chooses the topics that a goal is limited to: by names, patterns and exclusions."""

from __future__ import annotations

from collections.abc import Collection
from fnmatch import fnmatchcase
from typing import Final

from state_machines.planning.goals import Topics

EXCLUDED: Final = "!"
"""Begin of a pattern whose topics are left out; no topic's name has it."""
_WILD: Final = frozenset("*?[")


def chosen_topics(given: Topics, existing: Collection[str]) -> Topics:
    """Returns the topics that names and patterns choose, None for all; exclusions alone leave all others.

    A name or pattern that no topic has stays as it is, so that a plan refuses it.
    """
    if not given:
        return given
    wanted = [one for one in given if not one.startswith(EXCLUDED)]
    left_out = [one[len(EXCLUDED) :] for one in given if one.startswith(EXCLUDED)]
    found: dict[str, None] = {}
    for one in wanted or ["*"]:
        matching = [topic for topic in existing if fnmatchcase(topic, one)] if _WILD.intersection(one) else [one]
        found |= dict.fromkeys(matching or [one])
    return tuple(topic for topic in found if not any(fnmatchcase(topic, one) for one in left_out))
