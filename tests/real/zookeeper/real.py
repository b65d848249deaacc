"""kazoo on a real server as a backend of the contract: every client behind a proxy of its own."""

from __future__ import annotations

import asyncio
from typing import Any

from kazoo.client import KazooClient

from metadata_store.errors import Code
from metadata_store.kazoo_adapter import KazooZooKeeper
from metadata_store.port import ZooKeeper
from tests.real.zookeeper.proxy import Proxy

SESSION_MS = 6_000
NOBODY = "127.0.0.1:1"


class ProxiedZooKeeper(KazooZooKeeper):
    """The adapter, unchanged, with the proxy that its connect string names."""

    def __init__(self, connect_string: str, proxy: Proxy, **options: Any) -> None:
        super().__init__(connect_string, **{"session_timeout_ms": SESSION_MS, **options})
        self.proxy = proxy

    async def connect(self, timeout_s: float) -> None:
        await self.proxy.start()
        await super().connect(timeout_s)


class RealBackend:
    """One chroot of the real server, which is the root of what a test sees."""

    def __init__(self, address: str, base: str, **options: Any) -> None:
        self._address, self._base, self._options = address, base, options
        self._proxies: list[Proxy] = []

    async def open(self) -> None:
        zk = KazooZooKeeper(self._address + self._base, session_timeout_ms=SESSION_MS, create_chroot=True)
        await zk.connect(30)
        await zk.close()

    def client(self, down: bool = False, chroot: str = "", **options: Any) -> ProxiedZooKeeper:
        host, port = self._address.split(":")
        proxy = Proxy(host, int(port))
        self._proxies.append(proxy)
        hosts = NOBODY if down else f"127.0.0.1:{proxy.port}"
        return ProxiedZooKeeper(hosts + self._base + chroot, proxy, **{**self._options, **options})

    def suspend(self, zk: ZooKeeper) -> None:
        _proxy(zk).suspend()

    def cut_off(self, zk: ZooKeeper) -> None:
        _proxy(zk).suspend()

    def resume(self, zk: ZooKeeper) -> None:
        _proxy(zk).resume()

    def mute(self, zk: ZooKeeper) -> int:
        """Leaves its next handshake without a reply; returns how many connections it has made before."""
        _proxy(zk).mute()
        return self.connections(zk)

    def connections(self, zk: ZooKeeper) -> int:
        return _proxy(zk).connections

    def lose_reply(self, zk: ZooKeeper) -> None:
        _proxy(zk).lose_reply()

    def reply_with(self, zk: ZooKeeper, code: Code) -> None:
        _proxy(zk).reply_with(code)

    async def expire(self, zk: ZooKeeper) -> None:
        """Ends a session from another client, which resumes it first."""
        client = zk._transport._client  # type: ignore[attr-defined]
        await asyncio.to_thread(_end, self._address, client._session_id, client._session_passwd)

    async def close(self) -> None:
        for proxy in self._proxies:
            await proxy.stop()


def _proxy(zk: ZooKeeper) -> Proxy:
    assert isinstance(zk, ProxiedZooKeeper)
    return zk.proxy


def _end(address: str, session_id: int, password: bytes) -> None:
    thief = KazooClient(address, client_id=(session_id, password))
    thief.start()
    thief.stop()
    thief.close()


def cut(zk: ZooKeeper) -> None:
    """Ends the connection of kazoo's client without a word to the adapter."""
    zk._transport._client.cut()  # type: ignore[attr-defined]


def connections(zk: ZooKeeper) -> int:
    """Returns how many connections kazoo's client has had."""
    return int(zk._transport._client.connections)  # type: ignore[attr-defined]
