"""How bulk requests are cut, and what a server's answer to ``srvr`` means."""

from __future__ import annotations

import asyncio
import logging
import struct
import subprocess
import sys

import pytest

from metadata_store.errors import ConnectFailed
from metadata_store.kazoo_adapter import KazooZooKeeper, jute, session
from metadata_store.kazoo_adapter.bulk import answers, by_size, watch_chunks
from metadata_store.kazoo_adapter.jute import Reply
from metadata_store.kazoo_adapter.listings import Listings
from metadata_store.kazoo_adapter.server_version import parse_version
from metadata_store.kazoo_adapter.session import split_chroot
from metadata_store.port import REQUEST_BYTES_MAX, Create, Created, Stat, ZooKeeper


def test_cut_by_number() -> None:
    assert list(by_size(["a", "b", "c", "d", "e"], 2, 10, 0)) == [["a", "b"], ["c", "d"], ["e"]]
    assert list(by_size([b"a"], 5, 10, 0)) == [[b"a"]]
    assert list(by_size([""][:0], 5, 10, 0)) == []


def test_cut_by_bytes_and_nothing_is_lost() -> None:
    paths = ["x" * 1_000] * 1_200
    chunks = list(by_size(paths, 10_000, REQUEST_BYTES_MAX, 4))
    assert [len(chunk) for chunk in chunks] == [522, 522, 156]
    assert all(sum(len(path) + 4 for path in chunk) <= REQUEST_BYTES_MAX for chunk in chunks)


def test_a_path_beyond_every_limit_goes_alone() -> None:
    huge = "x" * (REQUEST_BYTES_MAX + 1)
    assert [len(chunk) for chunk in by_size(["a", huge, "b"], 10, REQUEST_BYTES_MAX, 0)] == [1, 1, 1]


def test_watches_are_cut_by_kind() -> None:
    assert list(watch_chunks([["a"], [], ["b", "c"]], REQUEST_BYTES_MAX)) == [(["a"], (), ()), ((), (), ["b", "c"])]


def test_a_listing_that_brokers_cannot_read_is_told_once(caplog: pytest.LogCaptureFixture) -> None:
    listings = Listings()
    listings.read("/brokers/topics", 1_048_575)
    assert not caplog.records
    for size in (1_048_576, 1_100_000):
        listings.read("/brokers/topics", size)
    [told] = caplog.messages
    assert "/brokers/topics take 1048576 bytes" in told
    assert "-Djute.maxbuffer=4194304" in told


def test_a_create_that_zookeeper_3_5_answers_without_its_stat() -> None:
    answer = struct.pack("!iBi", 1, 0, 0) + jute.text("/kafka/a") + struct.pack("!iBi", -1, 1, -1)
    [created] = jute.multi_results(Reply(0, 77, answer, 0), [Create("/a", b"", ephemeral=True)], "/kafka", 5)
    assert created == Created("/a", Stat(77, 77, 0, 5, 0, 77))


async def test_no_more_requests_under_way_than_allowed_and_answers_in_order() -> None:
    under_way: list[asyncio.Future[Reply]] = []
    most = 0

    def send(opcode: int, body: bytes) -> asyncio.Future[Reply]:
        nonlocal most
        future: asyncio.Future[Reply] = asyncio.get_running_loop().create_future()
        under_way.append(future)
        most = max(most, sum(not sent.done() for sent in under_way))
        asyncio.get_running_loop().call_soon(future.set_result, Reply(0, opcode, body, 0))
        return future

    requests = [(n, b"", n) for n in range(20)]
    found = [(reply.zxid, count) async for reply, count in answers(send, requests, 3)]
    assert found == [(n, n) for n in range(20)]
    assert most == 3


@pytest.mark.parametrize(
    ("answer", "version"),
    [
        (b"Zookeeper version: 3.8.4-9316c2a7a97e1666d8f4593f34dd6fc36ecc436c, built on 2024-02-12", (3, 8)),
        (b"Zookeeper version: 3.10.0, built on", (3, 10)),
        (b"srvr is not executed because it is not in the whitelist.\n", None),
        (b"", None),
    ],
)
def test_versions(answer: bytes, version: tuple[int, int] | None) -> None:
    assert parse_version(answer) == version


def test_a_server_without_multi_read_is_read_singly_and_an_ancient_one_refused(
    caplog: pytest.LogCaptureFixture,
) -> None:
    assert session._has_multi_read((3, 6))
    assert not session._has_multi_read((3, 5))
    with pytest.raises(ConnectFailed, match=r"ZooKeeper 3\.4 is too old: 3\.5 or newer"):
        session._has_multi_read((3, 4))
    with caplog.at_level(logging.WARNING):
        assert not session._has_multi_read(None)
    assert "4lw.commands.whitelist=srvr" in caplog.text


def test_connect_strings() -> None:
    assert split_chroot("a:1,b:2") == ("a:1,b:2", "")
    assert split_chroot("a:1,b:2/kafka/one/") == ("a:1,b:2", "/kafka/one")
    for bad in ("", "/kafka", "a:1/x//y"):
        with pytest.raises(ValueError, match="host:port"):
            split_chroot(bad)


def test_another_kazoo_is_refused_with_the_remedy() -> None:
    program = "import kazoo.version; kazoo.version.__version__ = '2.99'; import metadata_store.kazoo_adapter"
    ran = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert ran.returncode != 0
    assert "install kazoo==2.11.0" in ran.stderr


def test_it_is_a_zookeeper_port() -> None:
    zk: ZooKeeper = KazooZooKeeper("127.0.0.1:1", session_timeout_ms=1_000)
    assert zk.session_id == 0
