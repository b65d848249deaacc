"""Plants bugs in the look at the claim, and in what a daemon does about a store that was restored."""

from __future__ import annotations

from contextlib import ExitStack, suppress
from typing import Any

from controller.regions.claim import ClaimLooks
from controller.regions.restored import Seen
from metadata_store.records.port import Above, StoreFailed
from tests.kit.simulation.planting import put
from tests.simulation.regions.planting import mutation


@mutation
def go_on_after_a_claim_that_was_lost(stack: ExitStack) -> None:
    """Takes a look that finds the claim lost for one that failed by chance."""
    init = ClaimLooks.__init__

    def lenient(looks: ClaimLooks, *args: Any) -> None:
        init(looks, *args)
        look = looks._look

        async def forgiving() -> None:
            with suppress(StoreFailed):
                await look()

        looks._look = forgiving

    put(stack, ClaimLooks, "__init__", lenient)


@mutation
def repeat_tokens_after_a_restore(stack: ExitStack) -> None:
    """Goes above the epoch alone."""

    def epoch_only(seen: Seen) -> Above:
        return Above(seen._above.epoch, min(seen._above.number, 1))

    put(stack, Seen, "above", property(epoch_only))


@mutation
def ignore_what_servers_have_seen(stack: ExitStack) -> None:
    """Serves as if the store were the latest one."""

    async def named(_seen: Seen, _proof: str, _epoch: int, _token: int) -> str:
        return ""

    put(stack, Seen, "named", named)
