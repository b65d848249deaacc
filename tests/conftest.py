"""Provides marks and their results for all tests, and one real ZooKeeper for those that request it."""

from __future__ import annotations

import asyncio
import gc
import itertools
import logging
import threading
from collections.abc import Coroutine, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest import mock

import pytest
from hypothesis import settings

from testing.embedded.process import free_port
from testing.embedded.zookeeper import EmbeddedZooKeeper
from tests.kills import tally
from tests.kit import results

SUPER_PASSWORD = "super-secret"

settings.register_profile("untimed", settings(deadline=None))
settings.load_profile("untimed")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--rewrite-stories", action="store_true", help="write the output of tests/stories/*.txt anew")


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "seed(*rows): the rows of docs/evidence/checklist.csv that the test covers")
    config.addinivalue_line(
        "markers", "kafka(*tests): the tests of docs/evidence/kafka-tests.csv whose behaviour it shows"
    )
    logging.getLogger("aiokafka").setLevel(logging.CRITICAL)  # each refused connection would be a line
    config.pluginmanager.register(results.Recorder(config.rootpath), "seed-results")


def pytest_collection_finish() -> None:
    """Hides tests and modules from the collector of garbage: they are many, and stay."""
    gc.freeze()


@pytest.fixture(scope="session", autouse=True)
def untidy_terms() -> Iterator[None]:
    """Has no term that begins in this process collect garbage: here that would look at all that tests left."""
    idle = SimpleNamespace(collect=lambda: 0, freeze=lambda: None, unfreeze=lambda: None)
    with mock.patch("controller.kafka.term.failover.gc", idle):
        yield


@pytest.fixture
def unused_tcp_port() -> int:
    """Returns a port on which nobody listens, and which the kernel gives to nobody meanwhile."""
    return free_port()


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    if lines := tally.summary(terminalreporter.getreports("passed")):
        terminalreporter.section("kill tests")
        for line in lines:
            terminalreporter.line(line)


@dataclass
class ZooKeeperProcess:
    """The session's ZooKeeper, for tests that only use it; those that stop or pause one start their own.

    ``super_password`` is that of the digest user ``super``, who passes every ACL.
    """

    server: EmbeddedZooKeeper
    super_password: str = SUPER_PASSWORD
    _numbers: Iterator[int] = field(default_factory=itertools.count)

    @property
    def address(self) -> str:
        """Returns host:port without a chroot."""
        return self.server.connect

    def new_chroot(self) -> str:
        """Returns a path that no other test uses; the first connection creates it."""
        return f"/test-{next(self._numbers)}"


@pytest.fixture(scope="session")
def zookeeper_process(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ZooKeeperProcess]:
    """Runs a real ZooKeeper for the whole run, on a loop of its own in a thread that lives as long."""
    folder = tmp_path_factory.mktemp("zookeeper")
    with LoopThread() as loop:
        server = loop.run(make_zookeeper(folder))
        try:
            yield ZooKeeperProcess(server)
        finally:
            loop.run(server.kill())


async def make_zookeeper(folder: Path) -> EmbeddedZooKeeper:
    server = EmbeddedZooKeeper(folder, tick_ms=500, super_password=SUPER_PASSWORD, session_ms_max=60_000)
    await server.boot()
    return server


@pytest.fixture
def zookeeper_chroot(zookeeper_process: ZooKeeperProcess) -> str:
    """Returns a connect string of the session's ZooKeeper with a chroot for this test, which does not exist yet."""
    return zookeeper_process.address + zookeeper_process.new_chroot()


class LoopThread:
    """Runs an event loop in a thread that outlives tests, as the parent of a child process must."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="session-loop")

    def __enter__(self) -> LoopThread:
        self._thread.start()
        return self

    def run(self, work: Coroutine[Any, Any, Any]) -> Any:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result()

    def __exit__(self, *_: object) -> None:
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()
