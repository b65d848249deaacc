"""Offers agent and router to programs without asyncio: their loop runs in a thread."""

from __future__ import annotations

import asyncio
import ssl
import threading
from collections.abc import Callable, Coroutine, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Protocol, TypeVar

from regent_agent.agent import Agent
from regent_agent.connection import REQUEST_MS_MAX, Address
from regent_agent.options import AgentOptions
from regent_agent.protocol import Published, RegionLoad, Route
from regent_agent.router import LOCATE_S, ROUTES_MAX, Router
from regent_agent.service import OpenedRegion

T = TypeVar("T")


class ThreadedService(Protocol):
    """The callbacks of :class:`regent_agent.service.Service` as plain functions, called in threads of a pool.

    ``suspend`` and ``resume`` are called at once in the agent's own thread: they must not block.
    """

    def open(self, region: OpenedRegion) -> int:
        """Opens a region and returns the sequence number of this open; raises to fail."""

    def close(self, region: OpenedRegion) -> None:
        """Closes a region. No request for it is answered any more; raises to be called again."""

    def fence(self, server: str, incarnation: int) -> list[str]:
        """Keeps a dead server from writing, and returns the parts of its log."""

    def split(self, server: str, incarnation: int, part: str) -> None:
        """Makes the edits in one part of a dead server's log available to the regions that it had."""

    def work(self, what: str, region: OpenedRegion | None, data: bytes) -> bytes:
        """Does a piece of work, on a region or (None) as a process; raises to fail."""

    def suspend(self) -> None:
        """Serves nothing any more, at once."""

    def resume(self) -> None:
        """Serves again."""


class LoopThread:
    """Runs an event loop in a thread that does not keep the process alive."""

    def __init__(self, name: str) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name=name, daemon=True)
        self._thread.start()

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Runs a coroutine in the loop and returns its outcome."""
        running = asyncio.run_coroutine_threadsafe(work, self._loop)
        try:
            return running.result()
        except BaseException:
            running.cancel()
            raise

    def call(self, function: Callable[[], object]) -> None:
        """Calls a function in the loop's thread, soon."""
        self._loop.call_soon_threadsafe(function)

    def stop(self) -> None:
        """Ends the loop and its thread."""
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()


class ThreadedAgent:
    """Has regions assigned to a server that works with threads.

    Any thread but the agent's own may call the methods.
    ``died`` is set once the daemon has fenced this process: it must end.
    """

    def __init__(
        self,
        service: ThreadedService,
        options: AgentOptions,
        *,
        load: Callable[[], dict[str, int]] | None = None,
        region_loads: Callable[[], Iterable[RegionLoad]] | None = None,
        fenced_by: Callable[[str], None] = lambda _: None,
        refused: Callable[[str, str], None] = lambda code, text: None,
    ) -> None:
        """``load`` returns figures for the polls, ``fenced_by`` gets :attr:`fence` at each registration.

        ``region_loads`` returns the loads of the regions that are open, and is called every few seconds.
        ``refused`` gets code and text of each refusal. All are called in the agent's own thread: they must not block.
        """
        self.died = threading.Event()
        self._pool = ThreadPoolExecutor(options.side_by_side_max, thread_name_prefix="regent_agent")
        self._agent = Agent(
            _InPool(service, self._pool),
            options,
            load=load,
            region_loads=region_loads,
            fenced_by=fenced_by,
            refused=refused,
        )
        self._thread: LoopThread | None = None
        self._watcher: asyncio.Task[None] | None = None

    @property
    def serving(self) -> bool:
        """Returns whether the service may answer now: look before each answer to a client."""
        return self._agent.serving

    @property
    def fence(self) -> str:
        """Returns the daemon's setting ``regions.fence``, empty while this server is not registered."""
        return self._agent.fence

    @property
    def incarnation(self) -> int:
        """Returns the incarnation. It stays from now on: the service may name its log by it."""
        return self._agent.incarnation

    @property
    def above(self) -> int:
        """Returns the incarnation above which the next process with this name has to be; 0 where any later one is."""
        return self._agent.above

    @property
    def owned(self) -> dict[int, OpenedRegion]:
        """Returns the regions that are open here."""
        return self._agent.owned.copy()

    def owns(self, region: int, token: int | None = None) -> bool:
        """Returns whether a region is open here, with this token if one is given, and may be served now."""
        return self._agent.owns(region, token)

    def independent(self, region: OpenedRegion) -> None:
        """Has the daemon know that a region has data of its own, as :meth:`Agent.independent` does."""
        if self._thread is not None:
            self._thread.call(lambda: self._agent.independent(region))

    @property
    def published(self) -> dict[str, Published]:
        """Returns the values that were published, by name, as this server was told."""
        return dict(self._agent.published)

    def start(self, timeout_s: float | None = None) -> None:
        """Registers, and returns once a daemon has accepted; raises :class:`regent_agent.agent.Died`.

        Raises TimeoutError after ``timeout_s``; the agent goes on trying, and this method may be called again.
        """
        if self._thread is None:
            self._thread = LoopThread("regent_agent")
        self._thread.run(self._start(timeout_s))

    def leave(self, timeout_s: float) -> bool:
        """Has all regions moved away; returns whether they are and this server is no member any more."""
        return self._thread is not None and self._thread.run(self._agent.leave(timeout_s))

    def stop(self) -> None:
        """Ends the agent and suspends the service. Callbacks in progress end by themselves."""
        if self._thread is not None:
            self._thread.run(self._stop())
            self._thread.stop()
            self._thread = None
        self._pool.shutdown(wait=False, cancel_futures=True)

    async def _start(self, timeout_s: float | None) -> None:
        if self._watcher is None:
            self._watcher = asyncio.create_task(self._watch())
        async with asyncio.timeout(timeout_s):
            await self._agent.start()

    async def _watch(self) -> None:
        await self._agent.died.wait()
        self.died.set()

    async def _stop(self) -> None:
        await self._agent.stop()
        assert self._watcher is not None
        self._watcher.cancel()
        await asyncio.gather(self._watcher, return_exceptions=True)


class ThreadedRouter:
    """Looks up the owners of keys for clients that work with threads."""

    def __init__(
        self,
        daemons: Sequence[Address],
        secret: str = "",
        tls: ssl.SSLContext | None = None,
        *,
        routes_max: int = ROUTES_MAX,
        request_ms_max: int = REQUEST_MS_MAX,
    ) -> None:
        self._router = Router(daemons, secret, tls, routes_max=routes_max, request_ms_max=request_ms_max)
        self._thread = LoopThread("regent_agent routes")

    def locate(self, table: str, key: bytes, timeout_s: float = LOCATE_S) -> Route:
        """Returns the route of a key, as :meth:`Router.locate` does."""
        return self._thread.run(self._router.locate(table, key, timeout_s))

    def invalidate(self, route: Route) -> None:
        """Forgets a route: its server refused the token, or cannot be reached."""
        self._thread.call(lambda: self._router.invalidate(route))

    def routes(self, table: str) -> list[Route]:
        """Returns the routes of all regions of a table, as :meth:`Router.routes` does."""
        return self._thread.run(self._router.routes(table))

    def stop(self) -> None:
        """Ends the connections and the thread."""
        self._thread.run(self._router.stop())
        self._thread.stop()


class _InPool:
    """Calls the plain functions of a service in a pool of threads."""

    def __init__(self, service: ThreadedService, pool: ThreadPoolExecutor) -> None:
        self._service, self._pool = service, pool
        self.suspend, self.resume = service.suspend, service.resume

    async def open(self, region: OpenedRegion) -> int:
        return await self._call(self._service.open, region)

    async def close(self, region: OpenedRegion) -> None:
        await self._call(self._service.close, region)

    async def fence(self, server: str, incarnation: int) -> list[str]:
        return await self._call(self._service.fence, server, incarnation)

    async def split(self, server: str, incarnation: int, part: str) -> None:
        await self._call(self._service.split, server, incarnation, part)

    async def work(self, what: str, region: OpenedRegion | None, data: bytes) -> bytes:
        return await self._call(self._service.work, what, region, data)

    async def _call(self, function: Callable[..., T], *arguments: object) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._pool, _outcome, function, *arguments)


def _outcome(function: Callable[..., T], *arguments: object) -> T:
    """Returns what a callback does; its StopIteration, which no future takes, becomes another error."""
    try:
        return function(*arguments)
    except StopIteration as error:
        raise RuntimeError("the callback raised StopIteration") from error
