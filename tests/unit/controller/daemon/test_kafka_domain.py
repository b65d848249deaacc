"""The daemon of Kafka's controller as a domain of the process."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import cast

import anyio
import pytest

from brokers.security.access import Access
from controller.daemon.daemon import Daemon
from controller.daemon.domain import KafkaDomain
from controller.domain import running
from tests.kit.regions.daemon import settings_of


class Leaving:
    """A daemon that leaves its place, and notes when that is done; ``stays``: until cancelled."""

    def __init__(self, *, stays: bool) -> None:
        self.began = asyncio.Event()
        self.left = False
        self._stays = stays

    async def run(self) -> None:
        try:
            if self._stays:
                await anyio.sleep_forever()
        finally:
            with anyio.CancelScope(shield=True):
                self.began.set()
                await asyncio.sleep(0.02)
                self.left = True


def domain_with(daemon: Leaving, folder: Path) -> KafkaDomain:
    domain = KafkaDomain(settings_of(folder), Access(), None, shadow=True)
    domain.daemon = cast(Daemon, daemon)
    return domain


@pytest.mark.parametrize("stays", [True, False], ids=["it serves", "it leaves already"])
async def test_a_cancelled_daemon_finishes_what_it_shields(tmp_path: Path, stays: bool) -> None:
    domain = domain_with(daemon := Leaving(stays=stays), tmp_path)
    async with running(domain):
        if stays:
            await asyncio.sleep(0.02)
        else:
            await daemon.began.wait()
    assert daemon.left


async def test_the_process_may_end_once_the_daemon_has_stopped(tmp_path: Path) -> None:
    domain = domain_with(daemon := Leaving(stays=False), tmp_path)
    async with running(domain) as tasks:
        await asyncio.wait_for(domain.over.wait(), 60)
        assert daemon.left
        await tasks[0]
