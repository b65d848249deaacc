"""The history of the role flag: written with the flag, bounded, and never in its way."""

from __future__ import annotations

from typing import Final

import msgspec
import pytest

from controller.role import own_znodes as own
from controller.role.history import BYTES_MAX, CHANGES_MAX, CHARS_MAX, RoleChange, read_history
from metadata_store.acl import READ, Acl
from metadata_store.errors import MultiFailed
from tests.kit.controller_world import World, in_world

UNUSABLE: Final = {
    "bytes that are no JSON": b"{",
    "a newer format": b'{"changes":[],"version":2}',
    "another form": b'{"changes":5}',
}


def in_short(found: tuple[RoleChange, ...] | None) -> list[tuple[str, str, str]]:
    return [(one.holder, one.by, one.reason) for one in found or ()]


@in_world()
async def test_a_change_is_one_multi_with_the_flag_and_our_lock_node(w: World) -> None:
    seat = await w.seat()
    seat.script.writes.clear()
    await seat.role.set_flag("brokers", "upgrade", "uid 1000")
    await seat.role.set_flag("brokers", "again", "uid 0")
    await seat.role.set_flag("regent", "done", "uid 0")
    assert seat.script.writes == [[own.ROLE, own.HISTORY], [seat.role.position_path, own.ROLE, own.HISTORY]]
    found = await read_history(w.operator)
    assert in_short(found)[-2:] == [("brokers", "uid 1000", "upgrade"), ("regent", "uid 0", "done")]
    assert found is not None
    assert [one.at_ms for one in found] == sorted(one.at_ms for one in found)


@in_world()
async def test_a_daemon_that_lost_its_position_takes_nothing_and_can_give_back(w: World) -> None:
    seat = await w.seat()
    assert seat.role.position_path is not None
    await w.operator.delete(seat.role.position_path, -1)
    await seat.role.set_flag("brokers", "enough", "uid 0")
    before = w.node(own.ROLE)
    with pytest.raises(MultiFailed, match="NO_NODE at /regent/locks/lock-"):
        await seat.role.set_flag("regent", "too late", "uid 0")
    assert w.node(own.ROLE) == before


@pytest.mark.parametrize("data", UNUSABLE.values(), ids=UNUSABLE)
@in_world()
async def test_what_is_not_understood_stays_and_holds_nothing_up(
    w: World, data: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    seat = await w.seat()
    await w.operator.set(own.HISTORY, data, -1)
    await seat.role.set_flag("brokers", "upgrade", "uid 0")
    assert (await seat.role.flag())[0].holder == "brokers"
    assert await read_history(w.operator) is None
    node = w.node(own.HISTORY)
    assert node is not None
    assert node.data == data
    assert "this change of the role has no entry in /regent/history: this release does not understand it" in caplog.text


@in_world()
async def test_a_history_that_cannot_be_written_holds_nothing_up(w: World, caplog: pytest.LogCaptureFixture) -> None:
    seat = await w.seat()
    await w.operator.set_acls(own.HISTORY, (Acl(READ, "world", "anyone"),), -1)
    await seat.role.set_flag("brokers", "upgrade", "uid 0")
    assert (await seat.role.flag())[0].holder == "brokers"
    assert "has no entry in /regent/history: NO_AUTH at /regent/history: check its ACL" in caplog.text


@in_world()
async def test_another_writer_of_the_history_loses_nothing(w: World) -> None:
    seat = await w.seat()
    other = RoleChange("regent", 1, "uid 7", "by another hand")

    async def foreign() -> None:
        await w.operator.set(own.HISTORY, msgspec.json.encode({"changes": [other]}), -1)

    seat.script.at(own.HISTORY, foreign)
    await seat.role.set_flag("brokers", "upgrade", "uid 0")
    found = in_short(await read_history(w.operator))
    assert found == [("regent", "uid 7", "by another hand"), ("brokers", "uid 0", "upgrade")]


@in_world()
async def test_the_latest_changes_are_kept_and_long_reasons_cut(w: World) -> None:
    seat = await w.seat()
    for number in range(CHANGES_MAX + 5):
        await seat.role.set_flag("regent" if number % 2 else "brokers", "w" * 5_000 + str(number), "uid 0")
    found = await read_history(w.operator)
    assert found is not None
    assert (len(found), {len(one.reason) for one in found}) == (CHANGES_MAX, {CHARS_MAX})
    node = w.node(own.HISTORY)
    assert node is not None
    assert len(node.data or b"") < 100_000


@in_world()
async def test_a_large_history_of_another_client_is_cut(w: World) -> None:
    seat = await w.seat()
    large = [RoleChange("regent", at, "é" * 500, "é" * (20_000 if at < 20 else 500)) for at in range(CHANGES_MAX)]
    await w.operator.set(own.HISTORY, msgspec.json.encode({"changes": large}), -1)
    await seat.role.set_flag("brokers", "upgrade", "uid 0")
    node = w.node(own.HISTORY)
    assert node is not None
    assert len(node.data or b"") <= BYTES_MAX
    found = in_short(await read_history(w.operator))
    assert found[-1] == ("brokers", "uid 0", "upgrade")
    assert CHANGES_MAX // 2 < len(found) < CHANGES_MAX, "the oldest go"
    assert max(len(reason) for _, _, reason in found) == CHARS_MAX


@in_world()
async def test_an_operator_without_a_position_changes_the_flag_too(w: World) -> None:
    seat = await w.seat()
    await w.give_role_to("brokers")
    assert in_short(await read_history(seat.zk))[-1] == ("brokers", "uid 0", "a test")
