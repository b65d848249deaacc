"""Decides which side moves the znode of a region in transition, and to which state: the rules of HBase 0.90 to 1.x.

A region in transition has one znode. The daemon makes it OFFLINE; the server moves it on to OPENING and OPENED. For a
close the server creates it as CLOSING, and moves it to CLOSED. Each move is a compare-and-set on the version that was
read, so of several writers one wins. A znode is a message: the row of the region in the catalog stays the truth.

Where the page contradicts itself, the settlement has a number (C1 to C12), see the decision records.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import Final, NamedTuple


class NodeState(StrEnum):
    """State of the znode of a region in transition."""

    OFFLINE = "offline"
    """The daemon has chosen a server, and sends it the open."""
    OPENING = "opening"
    OPENED = "opened"
    CLOSING = "closing"
    CLOSED = "closed"


class Node(NamedTuple):
    """The znode of a region. ``pid``: of the operation; ``token``: of its open, or of what is closed.

    ``server``, ``incarnation``: the process that is to open it, or closes it. ``sequence``: of the open that succeeded.
    """

    state: NodeState
    region: int
    pid: int
    token: int
    server: str
    incarnation: int
    sequence: int = 0

    def is_of(self, server: str, incarnation: int, token: int) -> bool:
        """Checks whether it is about an operation of a process: its own server and token."""
        return (self.server, self.incarnation, self.token) == (server, incarnation, token)


# -- the server's side


class Seen(StrEnum):
    """What a server finds: the state of the znode, and whether that is about its own operation."""

    ABSENT = "absent"
    OFFLINE = "offline, mine"
    OFFLINE_OTHER = "offline, of another"
    CLOSING = "closing, mine"
    CLOSING_OTHER = "closing, of another"
    CLOSED = "closed, mine"
    CLOSED_OTHER = "closed, of another"
    OPENING = "opening, mine"
    OPENING_OTHER = "opening, of another"
    OPENED = "opened, mine"
    OPENED_OTHER = "opened, of another"


class Asked(StrEnum):
    """What happens at a server."""

    CLOSE = "close asked"
    CLOSE_DONE = "close done"
    OPEN = "open asked"
    OPEN_DONE = "open done"


class ServerAct(StrEnum):
    """What the server does."""

    CREATE_CLOSING = "creates CLOSING"
    TO_CLOSED = "moves it to CLOSED"
    TO_OPENING = "moves it to OPENING"
    TO_OPENED = "moves it to OPENED, and serves"
    GOES_ON = "goes on: it is so already"
    WAITS = "waits for the end of its open"
    REFUSES = "refuses"
    """It writes nothing, and closes what it has opened."""


A = ServerAct
SERVER: Final[Mapping[tuple[Seen, Asked], ServerAct]] = {
    (Seen.ABSENT, Asked.CLOSE): A.CREATE_CLOSING,
    (Seen.CLOSING, Asked.CLOSE): A.GOES_ON,
    (Seen.OPENING, Asked.CLOSE): A.WAITS,
    (Seen.CLOSING, Asked.CLOSE_DONE): A.TO_CLOSED,
    (Seen.CLOSED, Asked.CLOSE_DONE): A.GOES_ON,
    (Seen.OFFLINE, Asked.OPEN): A.TO_OPENING,
    (Seen.OPENING, Asked.OPEN): A.GOES_ON,
    (Seen.OPENED, Asked.OPEN): A.GOES_ON,
    (Seen.OPENING, Asked.OPEN_DONE): A.TO_OPENED,
    (Seen.OPENED, Asked.OPEN_DONE): A.GOES_ON,
}
"""What a server does; it refuses in each case that is not here (S0-86)."""


def seen_by(node: Node | None, server: str, incarnation: int, token: int) -> Seen:
    """Returns what a server finds. ``token``: of its operation."""
    if node is None:
        return Seen.ABSENT
    mine = node.is_of(server, incarnation, token)
    return Seen[node.state.name if mine else f"{node.state.name}_OTHER"]


def server_act(seen: Seen, asked: Asked) -> ServerAct:
    """Returns what a server does with the znode; it refuses where no rule allows anything."""
    return SERVER.get((seen, asked), ServerAct.REFUSES)


# -- the daemon's side


class Cause(StrEnum):
    """Why the daemon looks at a znode."""

    WATCH = "seen by watch"
    SOURCE = "the source is dead"
    """The process that had the region, or closes it, is fenced, and its log is split (C8)."""
    DESTINATION = "the destination is dead"
    """The process that is to open the region is fenced."""
    TAKEOVER = "a new daemon finds it"
    TIMEOUT = "no progress in time"
    UNWANTED = "the region is to stay closed"
    STARTUP = "startup"


class MasterAct(StrEnum):
    """What the daemon does. OFFLINE is written on the version that was read, for another server and token."""

    NOTHING = "nothing"
    CREATE = "creates OFFLINE, and sends the open"
    AGAIN = "chooses another server, writes OFFLINE for it, and sends the open"
    FORCE = "forces OFFLINE, chooses another server, and sends the open"
    """From any state: the process behind it is fenced."""
    SWAP = "moves it to OFFLINE for the destination of its plan, and sends the open"
    REDIRECT = "gives the plan another destination, and leaves it"
    CLOSE = "asks for the close again"
    STORE = "stores the owner, then deletes it"
    DELETE = "deletes it"
    AWAITS = "waits until it is OPENED, then asks for the close"
    STORE_AND_CLOSE = "stores the owner, deletes it, then asks for the close"
    IMPOSSIBLE = "cannot be: the lock of the table keeps it out"


M = MasterAct
N = NodeState
C = Cause
MASTER: Final[Mapping[NodeState | None, Mapping[Cause, MasterAct]]] = {
    None: {
        C.WATCH: M.NOTHING,
        C.SOURCE: M.CREATE,  # C1: rule 1 of the page has no such cause
        C.DESTINATION: M.NOTHING,
        C.TAKEOVER: M.NOTHING,
        C.TIMEOUT: M.NOTHING,
        C.UNWANTED: M.NOTHING,
        C.STARTUP: M.CREATE,
    },
    N.OFFLINE: {
        C.WATCH: M.NOTHING,
        C.SOURCE: M.AGAIN,
        C.DESTINATION: M.AGAIN,
        C.TAKEOVER: M.AGAIN,
        C.TIMEOUT: M.AGAIN,
        C.UNWANTED: M.IMPOSSIBLE,
        C.STARTUP: M.DELETE,
    },
    N.CLOSING: {
        C.WATCH: M.NOTHING,
        C.SOURCE: M.FORCE,
        C.DESTINATION: M.REDIRECT,  # C4: its source may serve still
        C.TAKEOVER: M.NOTHING,
        C.TIMEOUT: M.CLOSE,
        C.UNWANTED: M.NOTHING,
        C.STARTUP: M.DELETE,
    },
    N.CLOSED: {
        C.WATCH: M.SWAP,  # C2: a server opens from OFFLINE alone
        C.SOURCE: M.NOTHING,
        C.DESTINATION: M.SWAP,
        C.TAKEOVER: M.SWAP,
        C.TIMEOUT: M.SWAP,
        C.UNWANTED: M.DELETE,  # C6, C3
        C.STARTUP: M.DELETE,
    },
    N.OPENING: {
        C.WATCH: M.NOTHING,
        C.SOURCE: M.NOTHING,
        C.DESTINATION: M.FORCE,
        C.TAKEOVER: M.NOTHING,
        C.TIMEOUT: M.AGAIN,  # C7: the version decides, not the time
        C.UNWANTED: M.AWAITS,
        C.STARTUP: M.DELETE,
    },
    N.OPENED: {
        C.WATCH: M.STORE,
        C.SOURCE: M.NOTHING,
        C.DESTINATION: M.FORCE,
        C.TAKEOVER: M.STORE,  # C9: processes that are fenced come before
        C.TIMEOUT: M.DELETE,
        C.UNWANTED: M.STORE_AND_CLOSE,
        C.STARTUP: M.STORE,  # C10: a process may serve whose session has ended
    },
}
"""What the daemon does, by the state of the znode (None: there is none) and the cause."""
WRITES_OFFLINE: Final = frozenset({M.CREATE, M.AGAIN, M.FORCE, M.SWAP})
DELETES: Final = frozenset({M.STORE, M.DELETE, M.STORE_AND_CLOSE})


def master_act(state: NodeState | None, cause: Cause) -> MasterAct:
    """Returns what the daemon does with a znode."""
    return MASTER[state][cause]


def may_be_offline(state: NodeState | None, cause: Cause) -> bool:
    """Checks whether the daemon may make a znode OFFLINE. None: it creates one."""
    return MASTER[state][cause] in WRITES_OFFLINE
