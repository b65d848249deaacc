"""Declares ZooKeeper's result codes, and the exceptions of the port."""

from __future__ import annotations

from collections.abc import Sequence
from enum import IntEnum
from typing import Final


class Code(IntEnum):
    """Result codes of ZooKeeper (``KeeperException.Code``). TOO_BIG is regent's own: such a write is never sent."""

    OK = 0
    SYSTEM_ERROR = -1
    RUNTIME_INCONSISTENCY = -2
    DATA_INCONSISTENCY = -3
    CONNECTION_LOSS = -4
    MARSHALLING_ERROR = -5
    UNIMPLEMENTED = -6
    OPERATION_TIMEOUT = -7
    BAD_ARGUMENTS = -8
    UNKNOWN_SESSION = -12
    NEW_CONFIG_NO_QUORUM = -13
    RECONFIG_IN_PROGRESS = -14
    API_ERROR = -100
    NO_NODE = -101
    NO_AUTH = -102
    BAD_VERSION = -103
    NO_CHILDREN_FOR_EPHEMERALS = -108
    NODE_EXISTS = -110
    NOT_EMPTY = -111
    SESSION_EXPIRED = -112
    INVALID_CALLBACK = -113
    INVALID_ACL = -114
    AUTH_FAILED = -115
    SESSION_MOVED = -118
    NOT_READONLY = -119
    EPHEMERAL_ON_LOCAL_SESSION = -120
    NO_WATCHER = -121
    REQUEST_TIMEOUT = -122
    RECONFIG_DISABLED = -123
    SESSION_CLOSED_REQUIRE_SASL_AUTH = -124
    QUOTA_EXCEEDED = -125
    THROTTLED_OP = -127
    TOO_BIG = -1001

    @classmethod
    def _missing_(cls, value: object) -> Code:
        return cls.SYSTEM_ERROR


class ZooKeeperError(Exception):
    """Base of the exceptions that the port raises."""


class ZkError(ZooKeeperError):
    """ZooKeeper refused an operation on ``path``; nothing was changed."""

    def __init__(self, code: Code, path: str) -> None:
        super().__init__(f"{code.name} at {path}")
        self.code = code
        self.path = path


class MultiFailed(ZkError):
    """A multi was refused as a whole: nothing of it was applied.

    ``index`` and ``code`` are of the first operation that failed, ``path`` is its path. ``codes`` has one code per
    operation: OK for the earlier ones (rolled back), RUNTIME_INCONSISTENCY for the later ones (not tried).
    """

    def __init__(self, index: int, codes: Sequence[Code], path: str) -> None:
        super().__init__(codes[index], path)
        self.index = index
        self.codes = list(codes)


class OutcomeUnknown(ZooKeeperError):
    """A write was sent and its reply is missing or proves nothing: it may have been applied or not."""


class NotConnected(ZooKeeperError):
    """The call was certainly not carried out: no connection, lost before a write was sent, or a throttled server."""


class SessionLost(NotConnected):
    """The session is over, with its ephemeral znodes and watches: resign, then ``connect`` anew."""


class ConnectFailed(ZooKeeperError):
    """The connection attempts led to no usable session; the message names the remedy."""


class ZxidWentBack(ConnectFailed):
    """The ensemble knows less than it did: it was emptied or restored from an older backup (kazoo#42)."""

    def __init__(self, seen: int, now: int) -> None:
        super().__init__(
            f"ZooKeeper responded with zxid 0x{now:x} after 0x{seen:x}: its data was emptied or restored. "
            "Compare it with the brokers before going on; a restarted daemon accepts it as it is"
        )
        self.seen = seen
        self.now = now


TROUBLE: Final = frozenset(
    {
        Code.SYSTEM_ERROR,
        Code.CONNECTION_LOSS,
        Code.OPERATION_TIMEOUT,
        Code.REQUEST_TIMEOUT,
        Code.THROTTLED_OP,
    }
)
"""Codes about the server, not about the request: the same request may succeed a moment later."""
TROUBLE_PAUSE_S: Final = 0.2
"""An adapter reports such a code after this pause, which paces all retries."""


def trouble(code: Code, request: object, *, writes: bool) -> NotConnected | OutcomeUnknown:
    """Returns the error for a code of :data:`TROUBLE`: the same as after a lost connection, with the code."""
    if not writes or code is Code.THROTTLED_OP:
        return NotConnected(f"ZooKeeper responded to {request} with {code.name}: nothing was changed")
    return OutcomeUnknown(f"ZooKeeper responded to {request} with {code.name}: it may have been carried out")
