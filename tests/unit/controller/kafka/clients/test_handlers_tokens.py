"""Delegation tokens that have expired: deleted by the active controller alone, each with a note for the brokers."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from itertools import product
from typing import Any
from unittest import mock

import pytest

from metadata_store import paths
from metadata_store.errors import OutcomeUnknown
from state_machines.admin_rules.credentials import Token, expired
from tests.kit.deadlines import in_virtual_time
from tests.kit.kafka.world import KafkaWorld, in_world, world

NOW_MS = 1_700_000_000_000
CHANGES = "/delegation_token/token_changes"
EVERY_MS = 60_000
SETTINGS: dict[str, Any] = {"delegation_token_expiry_check_interval_ms": EVERY_MS}


@pytest.fixture(autouse=True)
def clock() -> Iterator[mock.Mock]:
    with mock.patch("controller.kafka.clients.wall_ms", return_value=NOW_MS) as clock:
        yield clock


def znode(ends_in_ms: int, at_the_latest_in_ms: int | None = None, version: int = 3) -> bytes:
    """A token as a broker writes it."""
    latest = ends_in_ms if at_the_latest_in_ms is None else at_the_latest_in_ms
    return json.dumps(
        {
            "version": version,
            "owner": "User%3Aalice",
            "tokenRequester": "User%3Aalice",
            "renewers": [],
            "issueTimestamp": 0,
            "maxTimestamp": NOW_MS + latest,
            "expiryTimestamp": NOW_MS + ends_in_ms,
            "tokenId": "t",
        }
    ).encode()


async def tokens(w: KafkaWorld, **ends_in_ms: int) -> None:
    """Brokers with tokens, and some of them."""
    for path in ("/delegation_token", paths.DELEGATION_TOKENS, CHANGES):
        if await w.operator.exists(path) is None:
            await w.operator.create(path, None)
    for name, ends in ends_in_ms.items():
        await w.operator.create(paths.delegation_token(name), znode(ends))


async def left(w: KafkaWorld) -> list[str]:
    listed = await w.operator.children(paths.DELEGATION_TOKENS)
    return sorted(listed[0]) if listed is not None else []


async def noted(w: KafkaWorld) -> list[str]:
    """Tokens that brokers were told to look at, in order."""
    listed = await w.operator.children(CHANGES)
    found = [w.node(f"{CHANGES}/{name}") for name in sorted(listed[0] if listed is not None else ())]
    return [(node.data or b"").decode() for node in found if node is not None]


async def looked(w: KafkaWorld, seconds: float = 6.0) -> None:
    await asyncio.sleep(seconds)
    await w.settle()


@pytest.mark.parametrize(("expiry", "latest"), list(product([-1, 0, 1], repeat=2)))
def test_a_token_ends_when_either_of_its_ends_has_passed(expiry: int, latest: int) -> None:
    assert expired(Token("t", 0, NOW_MS + expiry, NOW_MS + latest), NOW_MS) == (-1 in (expiry, latest))


@in_world(**SETTINGS)
async def test_what_has_expired_is_deleted_and_noted_and_the_rest_stays(w: KafkaWorld) -> None:
    await tokens(w, young=EVERY_MS, old=-1, older=-5, now=0)
    await w.operator.create(paths.delegation_token("spent"), znode(9, -1, version=1))
    await w.begin_term()
    assert await noted(w) == []
    await looked(w)
    assert await left(w) == ["now", "young"]
    assert await noted(w) == ["old", "older", "spent"]
    w.agreed()


@in_world(**SETTINGS)
async def test_tokens_are_checked_again_every_interval(w: KafkaWorld, clock: mock.Mock) -> None:
    await tokens(w, t=10)
    await w.begin_term()
    await looked(w)
    clock.return_value = NOW_MS + 11
    await looked(w, 50.0)
    assert await left(w) == ["t"]
    await looked(w, 10.0)
    assert (await left(w), await noted(w)) == ([], ["t"])


@pytest.mark.parametrize("ever", [False, True])
@in_world(**SETTINGS)
async def test_without_tokens_the_parent_alone_is_looked_at(w: KafkaWorld, ever: bool) -> None:
    if ever:
        await tokens(w)
    await w.begin_term()
    zxid = w.server.tree.zxid
    zk = w.term.zk
    with (
        mock.patch.object(zk, "read_many", side_effect=zk.read_many) as reads,
        mock.patch.object(zk, "children", side_effect=zk.children) as listed,
    ):
        await looked(w, 66.0)
    assert [call.args for call in listed.call_args_list] == [(paths.DELEGATION_TOKENS,)] * 2
    assert not reads.called
    assert w.server.tree.zxid == zxid


@in_world(delegation_token_expiry_check_interval_ms=0)
async def test_the_check_can_be_switched_off(w: KafkaWorld) -> None:
    await tokens(w, old=-1)
    await w.begin_term()
    await looked(w, 10_000.0)
    assert await left(w) == ["old"]


@in_world(**SETTINGS)
async def test_a_token_that_is_renewed_meanwhile_stays_and_holds_no_other_up(w: KafkaWorld) -> None:
    await tokens(w, a=-1, b=-1, c=-1, d=-1)
    await w.begin_term()

    async def renew() -> None:
        await w.operator.set(paths.delegation_token("b"), znode(EVERY_MS), 0)
        await w.operator.delete(paths.delegation_token("d"), 0)

    w.active.script.at(paths.delegation_token("a"), renew)
    await looked(w)
    assert (await left(w), await noted(w)) == (["b"], ["a", "c"])


@in_virtual_time
async def test_a_write_whose_reply_is_lost_is_not_noted_twice() -> None:
    def lost() -> None:
        raise OutcomeUnknown("the reply is lost")

    async with world(**SETTINGS) as w:
        await tokens(w, a=-1, b=-1)
        await w.begin_term()
        w.active.script.at(paths.delegation_token("a"), lost, when="after")
        await looked(w)
        assert (await left(w), await noted(w)) == ([], ["a", "b"])
        assert not w.term.gate.ended


@in_world(**SETTINGS)
async def test_a_fenced_term_deletes_no_token(w: KafkaWorld) -> None:
    await tokens(w, a=-1)
    await w.begin_term()
    w.active.script.at(paths.delegation_token("a"), w.seize)
    await asyncio.sleep(6.0)
    await w.active.ended()
    assert (await left(w), await noted(w)) == (["a"], [])


@in_world(**SETTINGS)
async def test_a_token_that_cannot_be_understood_is_reported_and_stays(w: KafkaWorld) -> None:
    await tokens(w, a=-1)
    for name, data in (("bad", b"{"), ("empty", None), ("new", znode(-1, version=4))):
        await w.operator.create(paths.delegation_token(name), data)
    await w.begin_term()
    await looked(w)
    assert await left(w) == ["bad", "empty", "new"]
    assert sorted(w.counters.malformed) == [paths.delegation_token(name) for name in ("bad", "empty", "new")]
    await w.operator.set(paths.delegation_token("bad"), znode(-1), 0)
    await w.operator.delete(paths.delegation_token("empty"), 0)
    await looked(w, 60.0)
    assert await left(w) == ["new"]
    assert sorted(w.counters.malformed) == [paths.delegation_token("new")]


@in_virtual_time
async def test_more_than_fit_into_a_turn_are_deleted_in_several() -> None:
    with mock.patch("controller.kafka.clients.TOKENS_MAX", 3):
        async with world(**SETTINGS) as w:
            await tokens(w, **{f"t{n}": -1 for n in range(8)}, young=1)
            await w.begin_term()
            await looked(w)
            assert (await left(w), await noted(w)) == (["young"], [f"t{n}" for n in range(8)])


@in_world(**SETTINGS)
async def test_a_lost_connection_puts_the_check_of_tokens_off(w: KafkaWorld) -> None:
    await tokens(w, a=-1)
    await w.begin_term()
    await asyncio.sleep(4.0)
    w.server.suspend(w.active.zk.session_id)
    await asyncio.sleep(2.0)
    w.server.resume(w.active.zk.session_id)
    w.active.renew()
    await w.settle()
    assert await left(w) == ["a"]
    await looked(w, 30.0)
    assert (await left(w), await noted(w)) == ([], ["a"])
