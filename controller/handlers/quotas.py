"""Accounts of calls that are subject to a quota on mutations (KIP-599); rates are read where they are not known."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from controller.access.quota_buckets import Account, Payer
from controller.engine.controller import Controller
from metadata_store.codecs.base import Malformed
from metadata_store.nodes.quota_nodes import read_rates
from state_machines.admin_rules.create_topics import TopicError, TopicRefusal
from state_machines.admin_rules.mutation_quotas import Level

THROTTLED: Final = TopicRefusal(TopicError.THROTTLING_QUOTA_EXCEEDED, "The throttling quota has been exceeded.")


async def accounts(c: Controller, payers: Sequence[Payer]) -> list[Account]:
    """In order. Nothing is read for callers that are known, until a configuration changed."""
    unknown = c.quotas.unknown(payers)
    return c.quotas.accounts(payers, await _rates(c, unknown) if unknown else {})


async def _rates(c: Controller, levels: Sequence[Level]) -> dict[Level, float]:
    """A znode that cannot be used sets no rate; it is reported, and watched until it is mended."""

    async def read() -> tuple[dict[Level, float], list[Malformed]]:
        since = c.zk.last_zxid
        rates, malformed = await read_rates(c.zk, levels)
        if malformed:
            await c.zk.watch(data=[found.path for found in malformed], since_zxid=since)
        return rates, malformed

    rates, malformed = await c.until_read(read)
    for found in malformed:
        c.malformed(found)
    return rates
