"""Reads the history of a partition from this daemon's journal, for operators."""

from __future__ import annotations

import logging

import anyio

from configs.settings import Settings
from controller.http.models import HistoryRow
from controller.journal.query import history
from controller.journal.segments import folder_in
from controller.operator.items import history_rows

log = logging.getLogger("regent.journal")


async def history_of(settings: Settings, topic: str, partition: int) -> list[HistoryRow]:
    """Reads the journal's files in a thread, because a disk may be slow; empty where they cannot be read."""
    if not settings.journal.enabled:
        return []
    folder = folder_in(settings.state.directory)
    try:
        return history_rows(await anyio.to_thread.run_sync(history, folder, topic, partition))
    except OSError as error:
        log.warning("the journal in %s cannot be read: %s", folder, error)
        return []
