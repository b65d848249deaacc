"""Reads the admin secret again while a daemon runs: a repaired or replaced file needs no restart."""

from __future__ import annotations

import asyncio
import logging
from pathlib import Path
from typing import Final

import anyio

from brokers.security.shared_secret import SecretUnusable, present_secret, shared_secret
from controller.daemon.state import DaemonState
from metadata_store.errors import ZooKeeperError

log = logging.getLogger("regent.daemon")

READ_S: Final = 2.0
"""Time between two reads of the file."""


class SecretWatch:
    """Follows the file of a daemon's secret; ``trouble`` is why it cannot be used now, None while it can."""

    def __init__(self, daemon: DaemonState, file: Path | None) -> None:
        self.trouble: str | None = None
        self._d = daemon
        self._file = file

    async def keep(self) -> None:
        """Reads the file now and every two seconds until cancelled; returns at once without a file."""
        while self._file is not None:
            await self._look(self._file)
            await asyncio.sleep(READ_S)

    async def _look(self, file: Path) -> None:
        """Takes the secret in the file; an unusable file leaves the secret that was read before."""
        read = shared_secret if self._d.secret is None else present_secret
        try:
            found = await anyio.to_thread.run_sync(read, file)
            self.trouble = None
        except SecretUnusable as error:
            if str(error) != self.trouble:
                log.warning("%s: %s", self._consequence(), error)
            self.trouble, found = str(error), None
        if found is not None and found != self._d.secret:
            log.info(
                "the admin secret in %s is in force: an admin endpoint with the same one reaches this daemon", file
            )
            self._d.take_secret(found)
        await self._seal()

    def _consequence(self) -> str:
        if self._d.secret is None:
            return "no admin endpoint can reach this daemon"
        return "the daemon continues with the admin secret that it read before, and its admin endpoint will not start"

    async def _seal(self) -> None:
        """Seals this daemon's znodes; after a failure tries again at the next read."""
        d, role, term = self._d, self._d.role, self._d.term
        if role is None or d.secret is None:
            return
        claim = term.claim if term is not None and term.gate.open() else None
        try:
            await role.seal_again(claim)
            seals = await role.seals()
            if claim is not None and seals is not None:
                d.listener.identify(seals.cluster_id, d.me.id)
        except ZooKeeperError as error:
            log.debug("the seals under the admin secret could not be written, the next read tries again: %s", error)
