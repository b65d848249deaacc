"""Stores procedure records in ZooKeeper, one znode each, for a domain whose daemons stand by for each other.

A record often belongs to a change of other znodes: :meth:`ZooKeeperRecords.ops` are then operations of that change's
multi, and :meth:`ZooKeeperRecords.written` is called once it was applied. All other writes wait for those before them,
and go together in fenced multis. A record has one writer, which has one write of it under way; so a write whose reply
was lost is repeated, after a read of the records that exist by then.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import Final, TypeVar

from metadata_store.errors import Code, NotConnected, OutcomeUnknown, ZkError
from metadata_store.fencing.bounds import OP_OVERHEAD, acl_bytes, write_bytes
from metadata_store.fencing.fenced import HEAD_BYTES, WRITES_MAX, submit
from metadata_store.fencing.outcome import Fence
from metadata_store.fencing.outcome import Fenced as FencedWrite
from metadata_store.own import acls_below
from metadata_store.port import ANY_VERSION, Create, Delete, Node, Op, SetData, ZooKeeper
from metadata_store.records import codec, znodes
from metadata_store.records.port import Fenced, Stored, StoreFailed, Unstorable, damaged
from metadata_store.records.znodes import Pending, Rows, settle
from state_machines.procedures.record import Record

T = TypeVar("T")
REFUSES_CONTENT: Final = frozenset({Code.TOO_BIG, Code.BAD_ARGUMENTS})
"""Refusals of one request, while ZooKeeper takes others."""
RESERVE: Final = 20
"""Part of a write that is left for what is not weighed: a chroot, the usual ACLs of new znodes."""
SHOWN_BYTES_MAX: Final = 60
"""Bytes of what another client wrote that are shown: its begin."""
ENCODED_MAX: Final = 1_000
"""Encoded records that are kept from their weighing to their write."""
ENCODED_BYTES_MAX: Final = 8_192
"""Bytes of such a record; larger ones are encoded again."""


class ZooKeeperRecords:
    """Implements :class:`metadata_store.records.port.RecordStore` below ``root``, for one term.

    ``connected`` waits until the term may write, and raises where it has ended. ``rows``: translates the rows of the
    domain.
    """

    def __init__(
        self,
        zk: ZooKeeper,
        fence: Fence,
        root: str,
        connected: Callable[[], Awaitable[None]],
        rows: Rows | None = None,
    ) -> None:
        self._zk = zk
        self._rows = rows
        self._fence = fence
        self._root = root
        self._acl = acls_below(root, zk.own_acls, secured=zk.set_acl)
        self._op_bytes = len(root.encode()) + 1 + znodes.NAME_DIGITS + OP_OVERHEAD + acl_bytes(self._acl)
        self._connected = connected
        self._there: set[int] = set()
        self._encoded: dict[int, tuple[Record, bytes]] = {}
        """Records that were weighed and not written yet, by pid, as they are written."""
        self._has_root = False
        self._last_pid = 0
        self._pending: deque[Pending] = deque()
        self._writer: asyncio.Task[None] | None = None

    @property
    def bytes_max(self) -> int:
        """Returns the most bytes of one write; a server with a small ``jute.maxbuffer`` takes less than usual."""
        usual = self._zk.write_bytes_max
        return usual - usual // RESERVE - HEAD_BYTES

    def weigh(self, puts: Iterable[Record], deletes: Iterable[int] = (), rows: Iterable[object] = ()) -> int:
        """Returns the bytes of a multi: each record as it is encoded, and at most the bytes of the rows."""
        each, listed = self._op_bytes, tuple(rows)
        size = sum([each + len(self._sealed(record)) for record in puts]) + sum([each for _ in deletes])
        return size + self._rows.weigh(listed) if listed and self._rows is not None else size

    def _sealed(self, record: Record) -> bytes:
        """Encodes a record once, although it is weighed and then written."""
        known = self._encoded.get(record.pid)
        if known is not None and known[0] is record:
            return known[1]
        body = codec.sealed(record)
        if len(self._encoded) >= ENCODED_MAX:
            self._encoded.clear()
        if len(body) <= ENCODED_BYTES_MAX:
            self._encoded[record.pid] = record, body
        return body

    async def load(self) -> Stored:
        """Reads everything, ordered by pid; a store without a root is new."""
        found: list[Stored] = []

        async def read() -> None:
            found.append(await self._read())

        await self.until_sent(read)
        return found[-1]

    async def count(self) -> int:
        """Counts the records, without reading them."""
        found: list[int] = []

        async def look() -> None:
            stat = await self._zk.exists(self._root)
            found.append(0 if stat is None else stat.num_children)

        await self.until_sent(look)
        return found[-1]

    async def load_once(self) -> Stored:
        """Reads as :meth:`load`, for a look: raises ``NotConnected`` and ``ZkError`` instead of waiting."""
        return await self._read()

    async def write(self, puts: Iterable[Record], deletes: Iterable[int] = (), rows: Iterable[object] = ()) -> None:
        """Writes all or nothing; returns once it is durable."""
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._pending.append(Pending(tuple(puts), tuple(deletes), tuple(rows), future))
        if self._writer is None:
            self._writer = asyncio.ensure_future(self._write_pending())
        await future

    async def reserve(self, count: int) -> int:
        """Reserves pids that were never given before; returns the first of them, durably."""
        first = self._last_pid + 1
        self._last_pid += count
        await self._root_made()

        async def send() -> None:  # the highest of all: a repeated write must not undo that of a later call
            await self._submit([SetData(self._root, str(self._last_pid).encode(), ANY_VERSION)])

        await self.until_sent(send)
        return first

    async def close(self) -> None:
        """Waits for the writes that were begun."""
        if self._writer is not None:
            await asyncio.wait([self._writer])

    # -- with the writes of others

    def ops(self, puts: Iterable[Record], deletes: Iterable[int] = ()) -> list[Op]:
        """Returns the operations of a write, for a multi of the caller's with other znodes in it.

        The pids were reserved in this term, or loaded.
        """
        ops: list[Op] = []
        for record in puts:
            path, body = self.path(record.pid), self._sealed(record)
            there = record.pid in self._there
            ops.append(SetData(path, body, ANY_VERSION) if there else Create(path, body, acl=self._acl))
        ops += [Delete(self.path(pid), ANY_VERSION) for pid in deletes if pid in self._there]
        return ops

    def written(self, puts: Iterable[Record], deletes: Iterable[int] = ()) -> None:
        """Notes that :meth:`ops` were applied."""
        for record in puts:
            self._there.add(record.pid)
            self._encoded.pop(record.pid, None)
        self._there.difference_update(deletes)

    async def find_out(self, pids: Iterable[int]) -> None:
        """Reads which records are there, after a write whose outcome is unknown."""
        wanted = sorted(set(pids))
        if not wanted:
            return
        await self._zk.sync(self._root)
        found = await self._zk.read_many([self.path(pid) for pid in wanted])
        for pid, node in zip(wanted, found, strict=True):
            if isinstance(node, Node):
                self._there.add(pid)
            elif node is Code.NO_NODE:
                self._there.discard(pid)

    async def stands(self, puts: Sequence[Record]) -> bool:
        """Checks, after a write whose outcome is unknown, whether these records are stored as they are here."""
        await self.find_out(record.pid for record in puts)
        found = await self._zk.read_many([self.path(record.pid) for record in puts])
        bodies = [node.data if isinstance(node, Node) else None for node in found]
        return bodies == [codec.sealed(record) for record in puts]

    def path(self, pid: int) -> str:
        """Returns the znode of a record."""
        return f"{self._root}/{pid:0{znodes.NAME_DIGITS}}"

    # -- how it works

    async def _root_made(self) -> None:
        """Creates the root of a new store before its first write."""
        if not self._has_root:
            await self.until_sent(self._make_root)

    async def _make_root(self) -> None:
        names = self._root.split("/")
        for path in ("/".join(names[:end]) for end in range(2, len(names) + 1)):
            if await self._zk.exists(path) is None:
                try:
                    await self._submit([self._part_of_root(path)])
                except StoreFailed as failed:
                    if not isinstance(failed.__cause__, ZkError) or failed.__cause__.code is not Code.NODE_EXISTS:
                        raise
        self._has_root = True

    def _part_of_root(self, path: str) -> Create:
        """Returns the creation of the root, or of a znode above it, which other parts of regent use, too."""
        return Create(path, b"0") if path == self._root else Create(path, None)

    async def _read(self) -> Stored:
        self._there.clear()
        found = await znodes.children(self._zk, self._root)
        self._has_root = found is not None
        if found is None:
            return Stored((), (), self._last_pid)
        self._there.update(one.pid for one in found.entries)
        if found.last_pid is None:
            data = found.data[:SHOWN_BYTES_MAX].decode("ascii", "replace")
            raise StoreFailed(f"{self._root} holds {data!r} and no number: write the highest pid that was ever used")
        self._last_pid = found.last_pid
        records = [one.record for one in found.entries if one.record is not None]
        return Stored(records, damaged(found.entries), found.last_pid)

    async def _write_pending(self) -> None:
        try:
            while self._pending:
                group = self._group()
                await self._write_group(group)
                for one in group:
                    settle(one, None)
        finally:
            self._writer = None

    def _group(self) -> list[Pending]:
        """Takes the writes that fit into one multi, which has one operation for each record."""
        group: list[Pending] = []
        pids: set[int] = set()
        size, rows = HEAD_BYTES, 0
        while self._pending and len(group) < WRITES_MAX:
            one = self._pending[0]
            mine = {*(record.pid for record in one.puts), *one.deletes}
            cost = write_bytes(self.ops(one.puts, one.deletes))
            if self._rows is not None and one.rows:
                cost += self._rows.weigh(one.rows)
            count = len(pids | mine) + rows + len(one.rows)
            if group and (mine & pids or count > WRITES_MAX or size + cost > self._zk.request_bytes_max):
                break
            group.append(self._pending.popleft())
            pids |= mine
            size += cost
            rows += len(one.rows)
        return group

    async def _write_group(self, group: Sequence[Pending]) -> None:
        puts = [record for one in group for record in one.puts]
        deletes = [pid for one in group for pid in one.deletes]
        rows = [row for one in group for row in one.rows]

        async def send() -> None:
            ops = [*self.ops(puts, deletes), *await self._ops_of(rows)]
            if write_bytes(ops) + HEAD_BYTES > (bytes_max := self._zk.write_bytes_max):
                what = f"pid {[*(record.pid for record in puts), *deletes][0]}" if puts or deletes else "rows alone"
                raise Unstorable(f"the write of {what} has more than {bytes_max} bytes: split the procedure")
            try:
                await self._submit(ops)
            except OutcomeUnknown:
                await self.until_sent(lambda: self._found_out([*(record.pid for record in puts), *deletes], rows))
                raise

        try:
            await self._root_made()
            await self.until_sent(send)
        except BaseException as error:
            for one in (*group, *self._pending):
                settle(one, error)
            self._pending.clear()
            if not isinstance(error, Exception):
                raise
            return
        self.written(puts, deletes)
        if self._rows is not None and rows:
            self._rows.written(rows)

    async def _ops_of(self, rows: Sequence[object]) -> Sequence[Op]:
        if not rows:
            return ()
        if self._rows is None:
            raise TypeError("this store has no rows")
        await self._rows.prepare()
        return self._rows.ops(rows)

    async def _found_out(self, pids: Sequence[int], rows: Sequence[object]) -> None:
        await self.find_out(pids)
        if self._rows is not None and rows:
            await self._rows.find_out(rows)

    async def until_sent(self, send: Callable[[], Awaitable[T]]) -> T:
        """Returns what ``send`` returns; repeats it until the connection holds. Raises ``StoreFailed``."""
        while True:
            await self._connected()
            try:
                return await send()
            except (NotConnected, OutcomeUnknown):
                continue
            except ZkError as error:
                if error.code in REFUSES_CONTENT:
                    raise Unstorable(f"ZooKeeper refuses what was to be written: {error}") from error
                raise StoreFailed(f"{error}: check the ACLs below {self._root}") from error

    async def _submit(self, ops: Sequence[Op]) -> None:
        try:
            failed = await submit(self._zk, self._fence, ops)
        except FencedWrite as error:
            raise Fenced(str(error)) from error
        if failed is not None:
            raise Unstorable(f"{failed}: another client writes below {self._root}, or check its ACLs") from failed
