"""A session that is closed while kazoo's thread still looks a host up."""

from __future__ import annotations

import logging
from unittest import mock

import pytest

from metadata_store.kazoo_adapter.limits import Limits
from metadata_store.kazoo_adapter.transport import Transport
from metadata_store.port import ConnectionState


def transport() -> Transport:
    def ignore(*_: object) -> None: ...

    return Transport("zk.invalid:2181", 6_000, None, ignore, ignore, ignore, Limits(lambda: 0.0))


@pytest.mark.parametrize(("connections", "level"), [(0, logging.DEBUG), (1, logging.WARNING)])
async def test_a_thread_that_does_not_end_is_a_warning_only_where_it_was_ever_connected(
    connections: int, level: int, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Before, the failed connect is an error of its own, which names the host and not a thread."""
    caplog.set_level(logging.DEBUG)
    monkeypatch.setattr("metadata_store.kazoo_adapter.transport.CLOSE_S_MAX", 0.01)
    session = transport()
    monkeypatch.setattr(session, "_client", mock.Mock())
    session.connection = connections
    await session.close()
    assert session.state is ConnectionState.LOST
    assert [r.levelno for r in caplog.records if "is stuck in a connect" in r.getMessage()] == [level]
