"""Warns of listings that brokers cannot read: kazoo takes replies of any size, ZooKeeper's Java client does not."""

from __future__ import annotations

import logging
from typing import Final

JAVA_ANSWER_BYTES_MAX: Final = 1_048_575
"""Larger replies are refused by ZooKeeper's Java client as shipped (its own ``jute.maxbuffer``)."""
ENOUGH_BYTES: Final = 4 * 1024 * 1024

_log = logging.getLogger("regent.metadata_store")


class Listings:
    """Remembers the paths that it warned of: once each."""

    def __init__(self) -> None:
        self._warned: set[str] = set()

    def read(self, path: str, size: int) -> None:
        """Warns where brokers could not read the children of ``path``, which came in ``size`` bytes."""
        if size <= JAVA_ANSWER_BYTES_MAX or path in self._warned:
            return
        self._warned.add(path)
        _log.warning(
            "the children of %s take %d bytes, and brokers list at most %d by default: start them with "
            "KAFKA_OPTS=-Djute.maxbuffer=%d before one of them gets the controller role",
            path,
            size,
            JAVA_ANSWER_BYTES_MAX,
            ENOUGH_BYTES,
        )


listings: Final = Listings()
"""Those of the process."""
