"""Opens accounts of calls under a mutation quota (KIP-599), and reads unknown rates."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from controller.kafka.access.quota_buckets import Account, Payer
from controller.kafka.path.controller import Controller
from metadata_store.codecs.base import Malformed
from metadata_store.nodes.entity_configs import read_rates
from state_machines.admin_rules.create_topics import TopicError, TopicRefusal
from state_machines.admin_rules.mutation_quotas import Level

THROTTLED: Final = TopicRefusal(TopicError.THROTTLING_QUOTA_EXCEEDED, "The throttling quota has been exceeded.")


async def accounts(c: Controller, payers: Sequence[Payer]) -> list[Account]:
    """Returns the accounts in the order of the calls. Reads rates of callers that are unknown or were changed."""
    unknown = c.quotas.unknown(payers)
    return c.quotas.accounts(payers, await _rates(c, unknown) if unknown else {})


async def _rates(c: Controller, levels: Sequence[Level]) -> dict[Level, float]:
    """Reads rates. A malformed znode sets none; it is reported, and watched until it is repaired."""

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
