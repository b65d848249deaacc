"""How large requests may be: learned from connections that ended while a large one was under way.

A server closes the connection of a client that announces more than ``jute.maxbuffer`` bytes, and says so in its own
log alone. A daemon that sends the same again meets the same end, for ever.
"""

from __future__ import annotations

import logging
from typing import Final

from metadata_store.port import REQUEST_BYTES_MAX, WRITE_BYTES_MAX

SUSPECT_BYTES: Final = 64 * 1024
"""Requests up to this size are never taken for the reason: they are what is left of a batch when it was cut often."""

_log = logging.getLogger("regent.metadata_store")


class Limits:
    """``batch_bytes``: where batches are cut; ``write_bytes``: larger single writes are refused instead of sent."""

    def __init__(self) -> None:
        self.batch_bytes = REQUEST_BYTES_MAX
        self.write_bytes = WRITE_BYTES_MAX
        self._suspect = REQUEST_BYTES_MAX + WRITE_BYTES_MAX

    def lost(self, size: int) -> None:
        """A connection ended; the largest of its unanswered requests had ``size`` bytes.

        Batches are halved. What is not smaller than at the last such end cannot be cut, so it is not sent again.
        """
        if size <= SUSPECT_BYTES:
            return
        if size >= self._suspect:
            self.write_bytes = min(self.write_bytes, size - 1)
            what, bytes_max = "writes are refused above", self.write_bytes
        else:
            self.batch_bytes = max(SUSPECT_BYTES, min(self.batch_bytes, size) // 2)
            what, bytes_max = "batches are cut at", self.batch_bytes
        self._suspect = size
        _log.warning(
            "the connection to ZooKeeper ended while a request of %d bytes was under way: %s %d bytes from now on. "
            "Where the servers' logs say 'Len error', their jute.maxbuffer is too small: raise it to 1048575 (its "
            "default) or above",
            size,
            what,
            bytes_max,
        )
