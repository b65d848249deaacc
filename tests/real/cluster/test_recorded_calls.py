"""Kafka's own tools change topics on real brokers; operators see which client did what, also after a failover."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from testing.embedded.tools import Tools
from tests.kit.polling import eventually
from tests.real.cluster.endpoint import endpoint
from tests.real.cluster.scene import Scene, succeeds
from tests.real.cluster.test_admin_topics import fresh

pytestmark = pytest.mark.asyncio(loop_scope="package")


async def procedures(stage: Scene, *options: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads(await succeeds(stage.daemon, "procedures", *options, "-o", "json"))[
        "items"
    ]
    return found


async def test_operators_see_which_client_changed_what(stage: Scene, tmp_path: Path) -> None:
    name = fresh("recorded")
    async with endpoint(stage.daemon) as at:
        tools = Tools(at.address, tmp_path)
        made = await tools.run("kafka-topics", "--create", "--topic", name, "--replica-assignment", "1:2,2:3")
        assert made.out == f"Created topic {name}.\n", made
        wanted = {"version": 1, "partitions": [{"topic": name, "partition": 0, "replicas": [3, 2]}]}
        (tmp_path / "moves.json").write_text(json.dumps(wanted))
        moves = "--reassignment-json-file", str(tmp_path / "moves.json"), "--execute"
        moved = await tools.run("kafka-reassign-partitions", *moves)
        assert moved.code == 0, moved
        again = await tools.run("kafka-topics", "--create", "--topic", name, "--if-not-exists")
        assert again.code == 0, again
        deleted = await tools.run("kafka-topics", "--delete", "--topic", name)
        assert deleted.code == 0, deleted
    mine = [item for item in await procedures(stage, "list") if name in item["result"]]
    assert [(item["kind"], item["state"], item["result"]) for item in mine] == [
        ("create-topics", "success", f"created 1 topic: {name}"),
        ("alter-partition-reassignments", "success", f"begun 1 partition: {name}-0 to [3, 2]"),
        ("delete-topics", "success", f"marked for deletion 1 topic: {name}"),
    ]
    for item in mine:
        assert (item["principal"], item["client"].partition(" at ")[2]) == ("User:ANONYMOUS", "127.0.0.1")
        assert item["client"].startswith("adminclient-") or item["client"].startswith("reassign-partitions-tool")
        assert item["submitted"]
    assert not [item for item in await procedures(stage, "list", "--live") if name in item["result"]]
    await stage.daemon.kill()
    await stage.daemon.boot()
    await stage.active()
    for item in mine:
        [shown] = await procedures(stage, "show", str(item["pid"]))
        assert (shown["kind"], shown["result"]) == (item["kind"], item["result"])
    await eventually(lambda: stage.gone(name), 60.0)
    await stage.proven()
