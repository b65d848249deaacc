"""Take-overs and hand-backs that operators begin at a daemon."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from controller.http.documents import ViewRefused
from controller.http.models import OperationRequest
from controller.operator.view import View
from tests.kit.deadlines import eventually
from tests.kit.kafka.role import DAEMON, kafka
from tests.kit.view_kit import dies, governed


async def test_a_take_over_and_a_hand_back_are_followed_to_their_ends(tmp_path: Path) -> None:
    async with kafka(tmp_path) as cluster, cluster.daemon() as daemon:
        view = View(daemon, cluster.dial, cluster.release_of)
        planned = await view.role.takeover(OperationRequest(dry_run=True), "uid 0")
        assert (planned.state, planned.steps[0].startswith("save a roll-back file")) == ("planned", True)
        assert view.role.operation() is None
        begun = await view.role.takeover(OperationRequest(reason="now"), "uid 0")
        assert (begun.state, begun.kind, begun.reason) == ("running", "takeover", "now")
        with pytest.raises(ViewRefused, match="a takeover is running"):
            await view.role.handback(OperationRequest(), "uid 0")
        await eventually(lambda: ended(view))
        assert (state(view), message(view)) == ("done", f"daemon {DAEMON} holds the role, every broker knows")
        assert (await view.role.handback(OperationRequest(dry_run=True), "uid 0")).state == "planned"
        await view.role.handback(OperationRequest(reason="later"), "uid 0")
        await eventually(lambda: ended(view))
        assert state(view) == "done"
        assert "holds the role, every broker knows" in message(view)
        found = view.role.operation()
        assert found is not None
        assert found.steps[1].startswith("drained")
        assert found.message not in found.steps, "the end is no step"
        listed = [(one.holder, one.principal, one.reason) for one in await view.role.changes()]
        assert listed == [("regent", "uid 0", "now"), ("brokers", "uid 0", "later")]


async def test_one_of_two_simultaneous_operations_begins(tmp_path: Path) -> None:
    async with governed(tmp_path) as (_, _, view):
        both = [view.role.handback(OperationRequest(reason=reason), "uid 0") for reason in ("one", "two")]
        found = await asyncio.gather(*both, return_exceptions=True)
        assert sorted(type(each).__name__ for each in found) == ["Operation", "ViewRefused"]
        await eventually(lambda: ended(view))
        assert state(view) == "done"


async def test_a_refused_operation_names_the_reason(tmp_path: Path) -> None:
    async with kafka(tmp_path) as cluster, cluster.daemon() as daemon:
        view = View(daemon, cluster.dial, cluster.release_of)
        cluster.brokers[3].configs["inter.broker.listener.name"] = "REPLICATION"
        assert (await view.role.takeover(OperationRequest(dry_run=True), "uid 0")).state == "refused"
        await view.role.takeover(OperationRequest(), "uid 0")
        await eventually(lambda: ended(view))
        assert (state(view), "listener names" in message(view)) == ("refused", True)
        for broker in cluster.brokers:
            await dies(cluster, broker)
        await view.role.handback(OperationRequest(), "uid 0")
        await eventually(lambda: ended(view))
        assert (state(view), message(view)) == ("refused", "no broker is live that could take the role")


def ended(view: View) -> bool:
    return state(view) != "running"


def state(view: View) -> str:
    found = view.role.operation()
    assert found is not None
    return found.state


def message(view: View) -> str:
    found = view.role.operation()
    assert found is not None
    return found.message
