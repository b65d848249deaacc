"""Judges UpdateFeatures, changes of ``/feature`` (KIP-584; Kafka ``KafkaController.processFeatureUpdates``).

Brokers of 3.9 support no feature in ZooKeeper mode, so nothing can be finalised; features that an older controller left
may be deleted.
"""

from __future__ import annotations

from collections.abc import Collection
from enum import IntEnum
from typing import Final

from msgspec import Struct


class UpgradeType(IntEnum):
    """Changes of a level; 0 and all other numbers are unknown."""

    UPGRADE = 1
    SAFE_DOWNGRADE = 2
    UNSAFE_DOWNGRADE = 3


UPGRADE_TYPES: Final = frozenset(map(int, UpgradeType))


class LevelWanted(Struct, frozen=True, gc=False):
    """A feature and its level; below 1: it is to be deleted. ``upgrade_type`` is any number that a client sent."""

    feature: str
    level: int
    upgrade_type: int


def refusal(wanted: LevelWanted, finalised: Collection[str], *, again: bool = False) -> str | None:
    """Returns why a feature stays as it is; None where it is to be deleted.

    ``finalised``: the features that have a level. ``again``: an earlier attempt may have deleted it.
    """
    if not wanted.feature:
        return "Feature name can not be empty."
    if wanted.upgrade_type not in UPGRADE_TYPES:
        return "Received unknown upgrade type."
    downgrade = wanted.upgrade_type != UpgradeType.UPGRADE
    if wanted.level < 1 and downgrade:
        return None if again or wanted.feature in finalised else "Can not delete non-existing finalized feature."
    if wanted.level < 1:
        return (
            f"Can not provide maxVersionLevel: {wanted.level} less than 1 without setting the allowDowngrade flag to "
            "true in the request."
        )
    return "Could not apply finalized feature update because the provided feature is not supported."
