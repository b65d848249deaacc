"""Declares the ZooKeeper port: what the daemon needs of a ZooKeeper session, as a Protocol.

Two adapters implement it, :class:`metadata_store.kazoo_adapter.KazooZooKeeper` and
:class:`testing.memory.MemoryZooKeeper`; both pass the suite in ``tests/real/zookeeper/``. Paths are absolute and
relative to the chroot of the connect string. While the connection is not CONNECTED every call raises
:class:`NotConnected` at once: nothing is ever queued for a later connection (patroni#1981).
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from enum import StrEnum
from typing import Final, NamedTuple, Protocol, TypeVar

from msgspec import Struct

from metadata_store.acl import Acl
from metadata_store.errors import Code
from metadata_store.own import Identities, OwnAcls

T = TypeVar("T")

ANY_VERSION: Final = -1
"""Expected version that every znode has; never used for znodes that have other writers too."""

READ_PATHS_MAX: Final = 1_000
"""Paths of one MultiRead."""

REQUEST_BYTES_MAX: Final = 512 * 1024
"""Bytes of one batched request: half of ZooKeeper's default ``jute.maxbuffer``."""

WRITE_BYTES_MAX: Final = 1_000_000
"""Bytes of one write: a bit below ZooKeeper's default ``jute.maxbuffer`` of 1,048,575, beyond which it hangs up."""

IN_FLIGHT_MAX: Final = 4
"""Batched requests (multis, MultiReads) under way at once."""


class ConnectionState(StrEnum):
    """State of the connection. SUSPENDED: the session may still live. LOST: it is over; ``connect`` makes a new one."""

    CONNECTED = "connected"
    SUSPENDED = "suspended"
    LOST = "lost"


class WatchKind(StrEnum):
    """The event of a watched path. CHILD: a child was created or deleted."""

    CREATED = "created"
    DELETED = "deleted"
    CHANGED = "changed"
    CHILD = "child"


class WatchEvent(NamedTuple):
    """A watch fired. It carries no data: its handler reads the truth."""

    path: str
    kind: WatchKind


class Stat(Struct, frozen=True, gc=False):
    """Versions of a znode. ``ephemeral_owner`` is a session id, 0 for a persistent znode.

    ``ctime_ms``: the creation by the clock of ZooKeeper's leader, 0 where it is not known.
    """

    czxid: int
    mzxid: int
    version: int
    ephemeral_owner: int
    num_children: int
    pzxid: int
    acl_version: int = 0
    ctime_ms: int = 0


class Node(Struct, frozen=True, gc=False):
    """A znode as read. ``data`` is None where the znode holds NULL, which is not the same as ``b""``."""

    data: bytes | None
    stat: Stat


class Created(NamedTuple):
    """A created znode: its path (with the number of a sequential one) and stat."""

    path: str
    stat: Stat


class Create(Struct, frozen=True, gc=False):
    """Creates a znode; ``acl`` None is the list of its path (:attr:`ZooKeeper.set_acl`, ``own_acls``)."""

    path: str
    data: bytes | None
    ephemeral: bool = False
    sequential: bool = False
    acl: tuple[Acl, ...] | None = None


class SetData(Struct, frozen=True, gc=False):
    """Replaces the data of a znode that has ``version``."""

    path: str
    data: bytes | None
    version: int


class Delete(Struct, frozen=True, gc=False):
    """Deletes a childless znode that has ``version``."""

    path: str
    version: int


class Check(Struct, frozen=True, gc=False):
    """Holds where the znode exists with ``version``."""

    path: str
    version: int


class SetAcls(Struct, frozen=True, gc=False):
    """Replaces the ACL list where the ACL version is ``version``. Hooks see it; a multi cannot hold it."""

    path: str
    acls: tuple[Acl, ...]
    version: int


Op = Create | SetData | Delete | Check
"""An operation of a multi."""

Write = Op | SetAcls
"""A write as hooks see it."""

OpResult = Created | Stat | None
"""Result of a create, of a set, of a delete or check."""


class WriteHooks(Protocol):
    """Hooks around every write of a port. Tests raise ``Kill``, lose the reply, delay or expire here."""

    async def before(self, ops: Sequence[Write]) -> None:
        """Runs before the write is submitted: an exception raised here means that nothing was written."""

    async def after(self, ops: Sequence[Write]) -> None:
        """Runs after the write was applied and before the caller knows: raise ``OutcomeUnknown`` to lose the reply."""


class ZooKeeper(Protocol):
    """One ZooKeeper session. Every method raises :class:`NotConnected` while not CONNECTED.

    ``on_watch`` and ``on_state`` are called on the event loop, in the order of the wire together with the replies,
    and must only enqueue. ``on_state_thread`` is called at once on the adapter's own thread: it may set flags and
    call ``loop.call_soon_threadsafe``, nothing else. A blip drops all watches: arm them again, then read again.
    """

    on_watch: Callable[[WatchEvent], None] | None
    on_state: Callable[[ConnectionState], None] | None
    on_state_thread: Callable[[ConnectionState], None] | None
    hooks: WriteHooks | None

    async def connect(self, timeout_s: float) -> None:
        """Opens a session; raises ``ConnectFailed``. Also used again after LOST. Does nothing while a session lives."""

    async def close(self) -> None:
        """Ends the session and its ephemeral znodes; bounded in time even where ZooKeeper does not respond."""

    @property
    def set_acl(self) -> bool:
        """Checks whether its znodes are closed to others, as those of brokers with ``zookeeper.set.acl=true``.

        Where they are, the session must have proven an identity. See :func:`metadata_store.acl.default_acls`.
        """

    @property
    def own_acls(self) -> OwnAcls:
        """Returns the lists of regent's own znodes where they differ from those of brokers' znodes."""

    @property
    def identities(self) -> Identities:
        """Returns the identities that the session proves."""

    @property
    def state(self) -> ConnectionState:
        """CONNECTED only once ``on_state`` was called with it: no blip is overlooked."""

    @property
    def request_bytes_max(self) -> int:
        """Bytes of one batched request: ``REQUEST_BYTES_MAX``, less where the server hung up at larger ones."""

    @property
    def write_bytes_max(self) -> int:
        """Bytes of one write: ``WRITE_BYTES_MAX``, less where the server hung up at larger ones."""

    @property
    def session_id(self) -> int:
        """Id of the session, 0 before the first."""

    @property
    def session_timeout_ms(self) -> int:
        """Session timeout as the server granted it."""

    @property
    def peer(self) -> str:
        """Address, host:port, of the server that the session is, or was last, connected to; empty before the first."""

    @property
    def last_zxid(self) -> int:
        """Highest zxid of a reply of this session. Taken before a read it is the ``since_zxid`` of a watch."""

    async def get(self, path: str) -> Node | None:
        """Returns data and stat, or None where the znode does not exist."""

    async def exists(self, path: str) -> Stat | None:
        """Returns the stat, or None where the znode does not exist."""

    async def children(self, path: str) -> tuple[list[str], Stat] | None:
        """Returns the names of the children in no order, and the parent's stat; None where the parent is absent."""

    async def read_many(self, paths: Sequence[str], *, paths_max: int = READ_PATHS_MAX) -> list[Node | Code]:
        """Reads many znodes in order, ``paths_max`` per request; an unreadable one is its code (NO_NODE, NO_AUTH)."""

    async def read_decoded(
        self, paths: Sequence[str], decode: Callable[[bytes | None, int], T], *, paths_max: int = READ_PATHS_MAX
    ) -> list[T | Code]:
        """Reads as ``read_many``, but each found znode is only ``decode(data, version)``: no Node, no Stat.

        The fast way.
        """

    async def watch(
        self, data: Sequence[str] = (), exists: Sequence[str] = (), children: Sequence[str] = (), *, since_zxid: int
    ) -> None:
        """Arms one-shot watches in bulk; what changed after ``since_zxid`` fires at once.

        ``data`` fires CHANGED or DELETED (at once DELETED where absent), ``exists`` waits for CREATED of an absent
        path (at once where it is there), ``children`` fires CHILD or DELETED.
        """

    async def multi(self, ops: Sequence[Op]) -> list[OpResult]:
        """Writes all operations or none; raises ``MultiFailed`` with the first failing index, ``OutcomeUnknown``."""

    async def apply(self, ops: Sequence[Op]) -> int:
        """Writes as ``multi``, but returns only the zxid, without a result per operation. The fast way."""

    async def create(
        self,
        path: str,
        data: bytes | None,
        *,
        acl: Sequence[Acl] | None = None,
        ephemeral: bool = False,
        sequential: bool = False,
    ) -> Created:
        """Creates a znode; raises ``ZkError`` (NODE_EXISTS, NO_NODE for the parent, NO_AUTH)."""

    async def set(self, path: str, data: bytes | None, version: int) -> Stat:
        """Replaces the data; raises ``ZkError`` (BAD_VERSION, NO_NODE, NO_AUTH)."""

    async def delete(self, path: str, version: int) -> None:
        """Deletes a znode; raises ``ZkError`` (BAD_VERSION, NO_NODE, NOT_EMPTY, NO_AUTH)."""

    async def sync(self, path: str = "/") -> None:
        """Waits until this server has applied everything that the ensemble's leader had when the call was made."""

    async def get_acls(self, path: str) -> tuple[list[Acl], Stat]:
        """Returns the ACL list and stat (``stat.acl_version`` is what ``set_acls`` expects).

        A session that may not administer the znode sees ``user:x`` instead of the password hashes of the ``digest``
        scheme.
        """

    async def set_acls(self, path: str, acls: Sequence[Acl], version: int) -> Stat:
        """Replaces the ACL list; ``version`` is the ACL version."""

    async def heartbeat(self) -> None:
        """Makes a cheap round trip through the ensemble's leader: its reply proves a session at the request's time."""


Result = TypeVar("Result")


class Kill(BaseException):
    """The process dies here, as far as a test is concerned: not an Exception, so that nothing cleans up after it."""


async def surrounded(hooks: WriteHooks | None, ops: Sequence[Write], write: Callable[[], Awaitable[Result]]) -> Result:
    """Runs a write between the hooks."""
    if hooks is None:
        return await write()
    await hooks.before(ops)
    result = await write()
    await hooks.after(ops)
    return result
