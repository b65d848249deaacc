"""Answers by znodes of a server whose session ends."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from metadata_store.catalog import answers
from metadata_store.catalog.answers import NodeAnswers
from metadata_store.catalog.unassigned import encode, folder_of, marks_of, path_of
from metadata_store.errors import SessionLost
from regent_agent.protocol import Open
from state_machines.regions.unassigned import Asked, Node, NodeState
from tests.contracts.memory import MemoryBackend
from tests.contracts.support import CONNECT_S, session
from tests.kit.deadlines import eventually

ROOT = "/regions"
OPENING = Node(NodeState.OPENING, 17, 40, 41, "kv-1", 5)


async def test_an_answer_that_was_begun_in_the_session_before_has_no_certain_outcome(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The mark of a response that was lost went with that session: without it the znode alone would say no."""
    monkeypatch.setattr(answers, "AGAIN_S", 0.5)
    once, tried = NodeAnswers._once, list[Asked]()

    async def noted(self: NodeAnswers, asked: Asked, *rest: Any) -> bool | None:
        tried.append(asked)
        return await once(self, asked, *rest)

    monkeypatch.setattr(NodeAnswers, "_once", noted)
    backend = MemoryBackend()
    async with session(backend) as other, session(backend) as mine:
        for path in (ROOT, folder_of(ROOT), marks_of(ROOT)):
            await other.zk.create(path, b"")
        await other.zk.create(path_of(ROOT, 17), encode(OPENING))
        found, before = NodeAnswers(mine.zk, ROOT, lambda: ("kv-1", 5)), mine.zk.session_id
        backend.suspend(mine.zk)
        answering = asyncio.ensure_future(found.opened(Open(40, 17, 41, "t", b"", b"", 0), 3))
        await eventually(lambda: tried)
        await backend.expire(mine.zk)
        await mine.zk.connect(CONNECT_S)
        assert mine.zk.session_id != before
        with pytest.raises(SessionLost, match="region 17's answer is over"):
            await answering
        assert await found.opened(Open(40, 17, 41, "t", b"", b"", 0), 3), "the next one is certain"
