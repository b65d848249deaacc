"""Checks names of topics (Kafka ``Topic``)."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final

METADATA_TOPIC: Final = "__cluster_metadata"
"""The log of a KRaft quorum: never a topic of a cluster."""
NAME_CHARS_MAX: Final = 249

_LEGAL: Final = re.compile(r"[a-zA-Z0-9._-]+")


def wrong_name(name: str) -> str | None:
    """Returns why a topic cannot have this name, in Kafka's words; None if it can."""
    if not name:
        return "the empty string is not allowed"
    if name in (".", ".."):
        return f"'{name}' is not allowed"
    if len(name) > NAME_CHARS_MAX:
        return f"the length of '{name}' is longer than the max allowed length {NAME_CHARS_MAX}"
    if not _LEGAL.fullmatch(name):
        return f"'{name}' contains one or more characters other than ASCII alphanumerics, '.', '_' and '-'"
    return None


def metric_name(name: str) -> str:
    """Returns the name in metrics: names that differ in ``.`` and ``_`` alone collide there."""
    return name.replace(".", "_")


class TakenNames:
    """Names of existing topics by their names in metrics; counted once a name with ``.`` or ``_`` is checked."""

    def __init__(self, names: Iterable[str]) -> None:
        self._names = names
        self._by_metric: dict[str, str] | None = None

    def colliding(self, name: str) -> str | None:
        """Returns a topic whose name collides with ``name``, or None."""
        if "." not in name and "_" not in name:
            return None
        if self._by_metric is None:
            self._by_metric = {metric_name(taken): taken for taken in self._names}
        return self._by_metric.get(metric_name(name))

    def add(self, name: str) -> None:
        """Adds a topic."""
        self.colliding(name)
        if self._by_metric is not None:
            self._by_metric[metric_name(name)] = name
