"""Makes steps that send one message to many servers: one result for each server, resent until it has come.

Results are stored before the next step begins; responses that come while a daemon dies are lost, and the message is
sent again: servers store nothing and see a message perhaps twice. One failure fails the step, and its undo sends the
opposite to every server. Two of these steps, the second behind the point of no return, are a two-phase commit.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from functools import partial
from typing import Any, Final, Generic, NamedTuple, TypeAlias, TypeVar

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from brokers.rate_limited_log import RateLimitedLog
from controller.procedures.kinds import Execute
from state_machines.procedures.outcome import Done, Failed, Next, Outcome, Wait
from state_machines.procedures.record import Record

log = logging.getLogger("regent.procedures")

SERVERS_MAX: Final = 10_000
UNDER_WAY_MAX: Final = 128
"""Messages of one procedure that are under way at the same time."""
CAUSE_CHARS_MAX: Final = 300
"""Longest cause that is kept of a server that did not respond."""

NONE: Final = -1
"""Stands for no step."""
Server: TypeAlias = int | str
"""The id of a broker, or the name of a process."""


class Unreachable(Exception):
    """A server did not respond: the message is sent again."""


class Rejected(Exception):
    """A server rejects the message; the text is its reason."""


class Result(Struct, frozen=True, array_like=True):
    """The result of one server."""

    server: Server
    ok: bool
    text: str = ""


class Broadcast(Struct, frozen=True, omit_defaults=True):
    """The stored message of such a procedure. ``results``: of the present step, or of the undo of step ``undoing``."""

    servers: tuple[Server, ...]
    message: bytes = b""
    results: tuple[Result, ...] = ()
    undoing: int = NONE


Send = Callable[[Any, bytes], Awaitable[str]]
"""Sends a message to a server, returns its response; raises :class:`Unreachable` or :class:`Rejected`."""


class Resending(NamedTuple):
    """How often and how long a message is sent to a server; the step fails after ``tries_max`` (0: never).

    ``timeout_s``: None where it is awaited until the server responds, or is gone.
    """

    timeout_s: float | None = 10.0
    pause_ms: int = 1_000
    tries_max: int = 0


Phased = tuple[int, bool]
"""A step, and whether it is undone."""


class _Silence(NamedTuple):
    """How often a server was sent a message in vain, and the cause of the latest failure."""

    tries: int = 0
    cause: str = ""


class _Messages:
    """The messages of one procedure: servers of those under way, servers without a result, results that came."""

    def __init__(self) -> None:
        self.under_way: set[Server] = set()
        self.silent: dict[Server, _Silence] = {}
        self.came: list[tuple[Phased, Result]] = []

    def tries(self, server: Server) -> int:
        """Returns how often a server was sent the message in vain."""
        return self.silent.get(server, _Silence()).tries


class Responses:
    """Holds the messages under way and the responses that came, of all procedures of a daemon.

    One message of a procedure to a server is under way at a time, so an undo never overtakes what it undoes.
    ``wake``: :meth:`controller.procedures.engine.Engine.wake`.
    """

    def __init__(self, spawn: Callable[[Coroutine[None, None, None]], object]) -> None:
        self.wake: Callable[[int], None] = lambda _: None
        self._spawn = spawn
        self._limited_log = RateLimitedLog()
        self._messages: dict[int, _Messages] = {}

    def take(self, pid: int, phase: Phased) -> list[Result]:
        """Removes and returns the results of a phase that came; results of an earlier phase are dropped."""
        if (messages := self._messages.get(pid)) is None:
            return []
        came, messages.came = messages.came, []
        return [result for of, result in came if of == phase]

    def next(self, pid: int, missing: Sequence[Server]) -> list[Server]:
        """Returns the servers that are sent to now, those with the fewest tries first: none waits for silent ones."""
        messages = self._messages.get(pid) or _Messages()
        free = [server for server in missing if server not in messages.under_way]
        under_way = len(missing) - len(free)
        return sorted(free, key=messages.tries)[: max(0, UNDER_WAY_MAX - under_way)]

    def send(self, pid: int, server: Server, phase: Phased, message: bytes, send: Send, how: Resending) -> None:
        """Sends to a server, unless a message to it is under way."""
        messages = self._messages.setdefault(pid, _Messages())
        if server not in messages.under_way:
            messages.under_way.add(server)
            self._spawn(self._sent(pid, messages, server, phase, partial(send, server, message), how))

    def causes(self, pid: int) -> dict[Any, str]:
        """Returns, by server without a result, why the latest message to it had none."""
        messages = self._messages.get(pid)
        return {} if messages is None else {server: one.cause for server, one in messages.silent.items()}

    def forget(self, pid: int) -> None:
        """Forgets the messages of a procedure that has ended, those under way too."""
        self._messages.pop(pid, None)

    async def _sent(
        self,
        pid: int,
        messages: _Messages,
        server: Server,
        phase: Phased,
        send: Callable[[], Awaitable[str]],
        how: Resending,
    ) -> None:
        try:
            async with asyncio.timeout(how.timeout_s):
                result = Result(server, ok=True, text=await send())
        except Rejected as error:
            result = Result(server, ok=False, text=str(error))
        except Exception as error:
            if not isinstance(error, Unreachable | TimeoutError):
                sentence = f"pid={pid}: the message to server {server} raised; it is sent again"
                self._limited_log.error(log, "message", sentence, error)
            tries = messages.tries(server) + 1
            cause = str(error)[:CAUSE_CHARS_MAX] or f"no response within {how.timeout_s or 0:g} s"
            messages.silent[server] = _Silence(tries, cause)
            if not how.tries_max or tries < how.tries_max:
                return
            result = Result(server, ok=False, text=str(error) or f"no response after {tries} tries")
        finally:
            messages.under_way.discard(server)
        messages.silent.pop(server, None)
        messages.came.append((phase, result))
        self.wake(pid)


class BroadcastEnv(NamedTuple):
    """What the steps of a broadcast need of a domain."""

    responses: Responses
    now_ms: Callable[[], int]


Env = TypeVar("Env")


class Place(NamedTuple):
    """Where a kind's message has the broadcast: reads it, and returns the message with another one."""

    read: Callable[[bytes], Broadcast]
    written: Callable[[bytes, Broadcast], bytes]


class Phase(Generic[Env]):
    """Makes the step that sends to each server, and its undo. ``of``: finds the environment's part for broadcasts.

    ``send`` and ``undo`` get the environment; without ``undo`` nothing is sent when the step is undone. ``last``: the
    procedure ends with this step, and its result lists the responses. ``lenient``: the step is done once each server
    has a result, whatever it is, and the message keeps the results. ``place``: the whole message, unless given.
    """

    def __init__(
        self,
        of: Callable[[Env], BroadcastEnv],
        send: Callable[[Env], Send],
        undo: Callable[[Env], Send] | None = None,
        *,
        last: bool = True,
        lenient: bool = False,
        how: Resending | None = None,
        place: Place | None = None,
    ) -> None:
        self._of = of
        self._send = send
        self._undo = undo
        self._last = last
        self._lenient = lenient
        self._place = place or WHOLE
        self._how = how or Resending()

    @property
    def execute(self) -> Execute[Env]:
        """Returns the coroutine of the step."""
        return self._executed

    @property
    def undo(self) -> Execute[Env] | None:
        """Returns the coroutine of its undo."""
        return None if self._undo is None else self._undone

    async def _executed(self, env: Env, record: Record) -> Outcome:
        found = self._sent_to_all(env, record, self._place.read(record.data), self._send(env), self._how)
        if isinstance(found, Wait):
            return found
        if self._lenient:
            return Next(record.step + 1, record.data)
        rejected = [result for result in found.results if not result.ok]
        if rejected and record.attempts:  # behind the point of no return: these servers are sent the message again
            kept = tuple(result for result in found.results if result.ok)
            again = self._place.written(record.data, replace(found, results=kept))
            return Wait(self._of(env).now_ms() + self._how.pause_ms, again)
        if rejected:
            return Failed("; ".join(f"server {result.server}: {result.text}" for result in rejected[:5]))
        after = self._place.written(record.data, replace(found, results=()))
        return Done(_encoder.encode(found.results)) if self._last else Next(record.step + 1, after)

    async def _undone(self, env: Env, record: Record) -> Outcome:
        assert self._undo is not None
        state = self._place.read(record.data)
        step = record.done[-1]
        begun = state if state.undoing == step else replace(state, results=(), undoing=step)
        how = self._how._replace(tries_max=0)
        found = self._sent_to_all(env, record, begun, self._undo(env), how)
        return found if isinstance(found, Wait) else Done()

    def _sent_to_all(self, env: Env, record: Record, state: Broadcast, send: Send, how: Resending) -> Wait | Broadcast:
        """Returns the state once each server has a result; until then what to store, or how long to wait."""
        responses, now_ms = self._of(env)
        undoes = state.undoing != NONE
        phase = state.undoing if undoes else record.step, undoes
        if state != self._place.read(record.data):
            return Wait(now_ms(), self._place.written(record.data, state))
        known = {result.server for result in state.results}
        came = [result for result in responses.take(record.pid, phase) if result.server not in known]
        if came:
            return Wait(now_ms(), self._place.written(record.data, replace(state, results=(*state.results, *came))))
        missing = [server for server in state.servers if server not in known]
        if not missing:
            return state
        for server in responses.next(record.pid, missing):
            responses.send(record.pid, server, phase, state.message, send, how)
        return Wait(now_ms() + how.pause_ms, record.data, durable=False)


_encoder = msgspec.json.Encoder()
_decoder = msgspec.json.Decoder(Broadcast)
_results = msgspec.json.Decoder(tuple[Result, ...])


def encode(state: Broadcast) -> bytes:
    """Encodes the message of a procedure; raises ValueError for too many servers."""
    if len(state.servers) > SERVERS_MAX:
        raise ValueError(f"{len(state.servers)} servers, at most {SERVERS_MAX} are addressed together")
    return _encoder.encode(state)


def decode(data: bytes) -> Broadcast:
    """Decodes the message of a procedure."""
    return _decoder.decode(data)


WHOLE: Final = Place(decode, lambda _, state: encode(state))
"""The message is the broadcast."""


def results(data: bytes) -> tuple[Result, ...]:
    """Decodes the result of a procedure that has ended."""
    return _results.decode(data)
