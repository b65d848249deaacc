"""Listings that brokers cannot read: kazoo takes answers of any size, ZooKeeper's Java client does not."""

from __future__ import annotations

import logging
from typing import Final

JAVA_ANSWER_BYTES_MAX: Final = 1_048_575
"""Larger answers are refused by ZooKeeper's Java client as shipped (its own ``jute.maxbuffer``)."""
ENOUGH_BYTES: Final = 4 * 1024 * 1024

_log = logging.getLogger("regent.metadata_store")


class Listings:
    """Remembers of which paths it was told: once each."""

    def __init__(self) -> None:
        self._told: set[str] = set()

    def read(self, path: str, size: int) -> None:
        """The children of ``path`` came in ``size`` bytes; warns where brokers could not read them."""
        if size <= JAVA_ANSWER_BYTES_MAX or path in self._told:
            return
        self._told.add(path)
        _log.warning(
            "the children of %s take %d bytes, and brokers cannot list more than %d unless they are told to: start "
            "them with KAFKA_OPTS=-Djute.maxbuffer=%d before one of them gets the controller role",
            path,
            size,
            JAVA_ANSWER_BYTES_MAX,
            ENOUGH_BYTES,
        )


listings: Final = Listings()
"""Those of the process."""
