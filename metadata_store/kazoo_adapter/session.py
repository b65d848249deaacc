"""Holds the session of :class:`metadata_store.kazoo_adapter.KazooZooKeeper`: connecting, ending, and its state."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from contextlib import suppress
from itertools import repeat
from typing import Final

from metadata_store.acl import Acl
from metadata_store.errors import Code, ConnectFailed, NotConnected, SessionLost, ZkError, ZxidWentBack
from metadata_store.kazoo_adapter import jute
from metadata_store.kazoo_adapter.jute import Reply
from metadata_store.kazoo_adapter.library_log import last_line
from metadata_store.kazoo_adapter.limits import LearnedLimits
from metadata_store.kazoo_adapter.servers import server_version
from metadata_store.kazoo_adapter.tls import ZooKeeperTls, why_not
from metadata_store.kazoo_adapter.transport import Transport
from metadata_store.own import NONE, OwnAcls, given_acls, identities_of
from metadata_store.port import ConnectionState, Create, WatchEvent, WatchKind, WriteHooks

OLDEST_SERVER: Final = (3, 5)
MULTI_READ_SINCE: Final = (3, 6)
_KINDS: Final = {1: WatchKind.CREATED, 2: WatchKind.DELETED, 3: WatchKind.CHANGED, 4: WatchKind.CHILD}
REFUSED: Final = "it refused the credentials"
REFUSED_S_MAX: Final = 1.0
_SESSION_ERRORS: Final = (Code.SESSION_EXPIRED, Code.SESSION_MOVED)
_log = logging.getLogger("regent.metadata_store")


class _NeverBegan(Exception):
    """A session that ended before it began."""


def split_chroot(connect_string: str) -> tuple[str, str]:
    """Splits ``host:port,host:port/chroot`` into hosts and chroot (``""`` for none, else ``/a/b``)."""
    hosts, slash, chroot = connect_string.partition("/")
    chroot = chroot.strip("/")
    if not hosts.strip() or "//" in chroot:
        raise ValueError(
            f"ZooKeeper connect string {connect_string!r} is not of the form host:port[,host:port...][/chroot]"
        )
    return hosts, slash + chroot if chroot else ""


class Session:
    """A session with a real ensemble, without the operations on znodes.

    ``connect_string`` is ``host:port,host:port/chroot``; names are resolved again at each attempt (kazoo#794).
    ``credentials`` is ``user:password`` for the ``digest`` scheme, ``sasl`` for a login by SASL (DIGEST-MD5).
    ``create_chroot`` creates a missing chroot as Kafka does. ``tls`` holds for every server. ``multi_read`` None
    queries the server whether it has MultiRead; False reads singly. ``set_acl`` and
    ``own_acls``: see :class:`ZooKeeper`.
    """

    def __init__(
        self,
        connect_string: str,
        *,
        session_timeout_ms: int,
        credentials: str | None = None,
        create_chroot: bool = False,
        multi_read: bool | None = None,
        hooks: WriteHooks | None = None,
        zxid_seen: int = 0,
        tls: ZooKeeperTls | None = None,
        sasl: str | None = None,
        set_acl: bool = False,
        own_acls: OwnAcls = NONE,
    ) -> None:
        self.on_watch: Callable[[WatchEvent], None] | None = None
        self.on_state: Callable[[ConnectionState], None] | None = None
        self.on_state_thread: Callable[[ConnectionState], None] | None = None
        self.hooks = hooks
        self.hosts, self.chroot = split_chroot(connect_string)
        if any(given is not None and ":" not in given for given in (credentials, sasl)):
            raise ValueError("the ZooKeeper credentials are not of the form user:password")
        self._session_timeout_ms = session_timeout_ms
        self._credentials = credentials
        self._create_chroot = create_chroot
        self._tls = tls
        self._sasl = sasl
        self.set_acl = set_acl
        self.own_acls = own_acls
        self.identities = identities_of(credentials, sasl, tls.subject() if tls is not None else None)
        self._multi_read = multi_read
        self._multi_read_of: tuple[Transport, int, bool] | None = None
        self._transport: Transport | None = None
        self._first_state: asyncio.Future[ConnectionState] | None = None
        self._zxid_seen = zxid_seen
        self._peer = ""
        self.limits = LearnedLimits()

    def given_acls(self, path: str) -> tuple[Acl, ...]:
        """Returns the ACL of a new znode for which the operation names none."""
        return given_acls(path, self.own_acls, secured=self.set_acl)

    @property
    def request_bytes_max(self) -> int:
        """Less than usual for some minutes after the server hung up at larger requests."""
        return self.limits.batch_bytes

    @property
    def write_bytes_max(self) -> int:
        """Less than usual for some minutes after the server hung up at larger writes."""
        return self.limits.write_bytes

    @property
    def zxid_seen(self) -> int:
        """Highest zxid of all sessions so far; a later session object must know it (``ZxidWentBack``)."""
        return max(self._zxid_seen, self.last_zxid)

    # -- session

    async def connect(self, timeout_s: float) -> None:
        """Opens a session; raises :class:`ConnectFailed` with the remedy."""
        if self._transport is not None:
            if self._transport.state is not ConnectionState.LOST:
                return
            await self.close()
        self._first_state = asyncio.get_running_loop().create_future()
        self._transport = Transport(
            self.hosts,
            self._session_timeout_ms,
            self._credentials,
            self._event,
            self._state,
            self._state_thread,
            self.limits,
            self._tls,
            self._sasl,
        )
        try:
            self._transport.start()
            async with asyncio.timeout(timeout_s):
                await self._first_connection()
                await self._inspect(self._transport)
        except TimeoutError:
            await self.close()
            raise ConnectFailed(await self._no_session(f" within {timeout_s:g} s")) from None
        except _NeverBegan:
            await self.close()
            raise ConnectFailed(await self._no_session("")) from None
        except ZkError as error:
            await self.close()
            if error.code is Code.SESSION_CLOSED_REQUIRE_SASL_AUTH:
                why = "it requires a login by SASL: set zookeeper.sasl_file"
                raise ConnectFailed(f"ZooKeeper {self.hosts}: {why}") from error
            raise
        except NotConnected as error:
            refused = await self._was_refused(self._transport)
            await self.close()
            why = REFUSED if refused else f"it dropped the connection at once: {error}"
            raise ConnectFailed(f"ZooKeeper {self.hosts}: {why}") from error
        except BaseException:
            await self.close()
            raise

    async def _first_connection(self) -> None:
        assert self._first_state is not None
        assert self._transport is not None
        if await self._first_state is not ConnectionState.CONNECTED:
            if self._transport.auth_failed:
                raise ConnectFailed(f"ZooKeeper {self.hosts}: {REFUSED}")
            raise _NeverBegan

    async def _no_session(self, when: str) -> str:
        """Returns why there is no session: a fault of TLS, or what kazoo reported last."""
        if self._tls is not None and (why := await why_not(self.hosts, self._tls)) is not None:
            return f"no session with ZooKeeper: {why}"
        why = when + (f" ({last})" if (last := last_line()) else "")
        return f"no ZooKeeper of {self.hosts} gave a session{why}: is it running, and reachable?"

    async def _was_refused(self, transport: Transport) -> bool:
        """Checks whether the server refused a SASL login, which fails after the session began and shows at its end."""
        if self._sasl is not None:
            with suppress(TimeoutError):
                async with asyncio.timeout(REFUSED_S_MAX):
                    await transport.ended.wait()
        return transport.auth_failed

    async def _inspect(self, transport: Transport) -> None:
        """Checks a session before it is used: release, chroot, and that no data was lost."""
        await self._supports_multi_read(transport)
        if self.chroot:
            await self._find_chroot()
        await self._send(jute.SYNC, jute.text(self._path("/")), "/")
        if transport.last_zxid < self._zxid_seen:
            raise ZxidWentBack(self._zxid_seen, transport.last_zxid)

    async def _find_chroot(self) -> None:
        """Finds the chroot; raises an error with the remedy where it does not exist."""
        reply = await self._open().send(jute.EXISTS, jute.read(self.chroot), writes=False)
        if reply.err != Code.NO_NODE:
            checked(reply, self.chroot)
        elif not self._create_chroot:
            raise ConnectFailed(
                f"the chroot {self.chroot} does not exist in ZooKeeper {self.hosts}: correct the connect string, "
                "create it in ZooKeeper's shell, or start a broker with it once"
            )
        else:
            await self._make_chroot()

    async def _make_chroot(self) -> None:
        parts = self.chroot.strip("/").split("/")
        for depth in range(len(parts)):
            path = "/" + "/".join(parts[: depth + 1])
            body = jute.create(Create(path, None), path, self.given_acls)
            reply = await self._open().send(jute.CREATE2, body, writes=True)
            if reply.err not in (Code.OK, Code.NODE_EXISTS):
                raise ConnectFailed(f"the chroot {path} cannot be created: {Code(reply.err).name}")

    async def close(self) -> None:
        """Ends the session; a few seconds at most, also where ZooKeeper does not respond."""
        transport, self._transport = self._transport, None
        if transport is not None:
            self._zxid_seen = max(self._zxid_seen, transport.last_zxid)
            await transport.close()

    @property
    def state(self) -> ConnectionState:
        """CONNECTED only while a call would be sent."""
        transport = self._transport
        if transport is None:
            return ConnectionState.LOST
        if transport.state is ConnectionState.CONNECTED and not transport.connected:
            return ConnectionState.SUSPENDED
        return transport.state

    @property
    def session_id(self) -> int:
        """Id of the session, 0 without one."""
        return self._transport.session_id if self._transport is not None else 0

    @property
    def session_timeout_ms(self) -> int:
        """Session timeout as the server granted it; the requested one without a session."""
        return (self._transport.session_timeout_ms if self._transport else 0) or self._session_timeout_ms

    @property
    def peer(self) -> str:
        """Address of the server that the session is, or was last, connected to."""
        return self._peer

    @property
    def last_zxid(self) -> int:
        """Highest zxid of a reply of this session."""
        return self._transport.last_zxid if self._transport is not None else 0

    def _event(self, buffer: bytes, offset: int) -> None:
        kind, path = jute.event_at(buffer, offset)
        known = _KINDS.get(kind)
        if known is None:
            _log.warning("ZooKeeper sent a watch event of the unknown type %d for %s: ignored", kind, path)
        elif self.on_watch is not None:
            self.on_watch(WatchEvent(path[len(self.chroot) :] or "/", known))

    def _state(self, state: ConnectionState) -> None:
        if state is ConnectionState.CONNECTED and self._transport is not None and (peer := self._transport.peer):
            self._peer = ":".join(map(str, peer))
        first = self._first_state
        if first is not None and not first.done():
            first.set_result(state)
            if state is ConnectionState.LOST:
                return  # no session began: connect raises
        if self.on_state is not None:
            self.on_state(state)

    def _state_thread(self, state: ConnectionState) -> None:
        if self.on_state_thread is not None:
            self.on_state_thread(state)

    # -- requests

    def _open(self) -> Transport:
        if self._transport is None:
            raise SessionLost("no ZooKeeper session: connect first")
        return self._transport

    def _path(self, path: str) -> str:
        if not path.startswith("/"):
            raise ValueError(f"the path {path!r} does not begin with a slash")
        return (self.chroot + path if path != "/" else self.chroot) or "/"

    def _raw(self, paths: Sequence[str]) -> list[bytes]:
        """Encodes many paths as the server knows them."""
        if self.chroot or not all(map(str.startswith, paths, repeat("/"))):
            return [self._path(path).encode() for path in paths]
        return [path.encode() for path in paths]

    async def _send(self, opcode: int, body: bytes, path: str, *, writes: bool = False) -> Reply:
        """Sends one request and returns its reply; raises :class:`ZkError` where it is an error."""
        return checked(await self._open().send(opcode, body, writes=writes), path)

    async def _supports_multi_read(self, transport: Transport) -> bool:
        """Checks whether the connected server has MultiRead; queried once per connection."""
        if self._multi_read is not None:
            return self._multi_read
        known = self._multi_read_of
        if known is not None and known[0] is transport and known[1] == transport.connection:
            return known[2]
        connection = transport.connection
        context = self._tls.context(check_host=False) if self._tls is not None else None
        supported = _has_multi_read(await server_version(*transport.peer, context) if transport.peer else None)
        self._multi_read_of = transport, connection, supported
        return supported


def of_session(reply: Reply) -> Reply:
    """Returns the reply unless it is an error of the session: raises :class:`NotConnected`."""
    if reply.err in _SESSION_ERRORS:
        raise NotConnected(f"ZooKeeper refused the session ({Code(reply.err).name}): nothing was changed")
    return reply


def checked(reply: Reply, path: str) -> Reply:
    """Returns the reply unless it is an error: raises :class:`ZkError`, or NotConnected for an error of the session."""
    if of_session(reply).err:
        raise ZkError(Code(reply.err), path)
    return reply


def _has_multi_read(version: tuple[int, int] | None) -> bool:
    if version is None:
        _log.warning(
            "ZooKeeper does not report its version, so znodes are read one by one, which is slow: "
            "allow the command with 4lw.commands.whitelist=srvr in its configuration"
        )
        return False
    if version < OLDEST_SERVER:
        raise ConnectFailed("ZooKeeper {}.{} is too old: {}.{} or newer is needed".format(*version, *OLDEST_SERVER))
    return version >= MULTI_READ_SINCE
