"""Declares the protocol between regent and the servers of a service: frames of msgpack, one response for each request.

A frame is a big-endian signed 32-bit length and as many bytes: one message, a msgpack array of its tag and its fields
in the order below. A reader ignores fields behind those that it knows, and a missing field has its default, so fields
are only ever added at the end. A connection carries one request at a time; only the side that connected sends requests.

A connection begins with :class:`Hello`. A server then sends :class:`Register`, and after that :class:`Poll` again and
again: the response comes once the daemon has operations, and after ``hold_ms`` at the latest. A poll renews the
server's lease, from its sending at the server and from its arrival at the daemon, so that the server's ends first.
Results go over another connection in :class:`Report`, and are repeated until they are accepted.

Lists, maps and names have bounds, which a reader checks before it makes values: a frame of tiny ones would become
hundreds of megabytes of objects.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Annotated, Final, TypeAlias

import msgspec
from msgspec import Meta

VERSION: Final = 1
"""Version of the protocol that this module speaks."""
LIST_BYTES_MAX: Final = 8 * 1024 * 1024
"""Bytes of a Register, Regions or Report: more than agents send of as many values as its lists may have."""
NAMES_BYTES_MAX: Final = 256 * 1024
"""Bytes of a Poll or Follow: more than a thousand names take that the daemon accepts."""
SMALL_BYTES_MAX: Final = 32_768
"""Bytes of any other request."""
OWNED_MAX: Final = 250_000
"""Regions of one server."""
RESULTS_MAX: Final = 1_000
"""Results of one report."""
PARTS_MAX: Final = 250_000
"""Parts of the logs that the results of one report list: as many objects as the regions of one server."""
FIGURES_MAX: Final = 1_000
"""Figures of one server's load."""
TABLES_MAX: Final = 1_000
"""Tables of one :class:`Follow`: a client with more of them follows all."""
OPERATIONS_MAX: Final = 1_000
"""Operations of one batch."""
ROUTES_MAX: Final = 5_000
"""Routes of one response."""
OPTIONS_MAX: Final = 1_000
"""Options of one table."""
SEQUENCE_MAX: Final = (1 << 63) - 1
"""Highest sequence number of an open; the lowest one is 0."""
PROOF_BYTES_MAX: Final = 64
"""Bytes of a process's proof; 16 random ones are enough."""
SOURCES_MAX: Final = 10
"""Regions in whose data that of another one begins."""
DATA_BYTES_MAX: Final = 64 * 1024
"""Bytes of the data of a piece of work, and of its result."""
VALUE_BYTES_MAX: Final = 32 * 1024
"""Bytes of a value that is published."""
FEATURES_MAX: Final = 100
"""Features of one process."""
LOADS_MAX: Final = 5_000
"""Loads of regions in one message."""
PUBLISHED_MAX: Final = 100
"""Values that are published."""
FIGURES_KEPT_MAX: Final = 50
"""Figures of a load that the daemon keeps: the first ones."""
NAME_CHARS_MAX: Final = 200
"""Characters of the name, the address and the software of a server, and of the name of a figure."""
READ_CHARS_MAX: Final = 1_000
"""Characters of any other name that is read."""

Name: TypeAlias = Annotated[str, Meta(max_length=READ_CHARS_MAX)]
Registrable: TypeAlias = Annotated[str, Meta(max_length=NAME_CHARS_MAX)]


class Message(msgspec.Struct, array_like=True, frozen=True, gc=False):
    """Base of everything that is sent."""


# -- values inside of messages


class Owned(Message, frozen=True):
    """A region that a server has, opening and closing ones included. ``token``: of its open."""

    region: int
    token: int


class Source(Message, frozen=True):
    """A region in whose data that of another one begins. ``start``, ``end``: its own keys.

    ``token``, ``sequence``: of its last open; the copy of a snapshot may be older than that, and has 0 then. It is the
    latest one by an owner up to the token. ``snapshot``: identity of the snapshot whose data it is, empty for the
    region's own.
    """

    region: int
    start: bytes
    end: bytes
    token: int
    sequence: int = 0
    snapshot: Name = ""


class Open(Message, frozen=True, tag="open"):
    """Has the server open a region. Keys are bytes; an empty ``end`` has no end.

    ``pid``: names the operation in the result. ``token``: the fence token, higher than that of any owner before: the
    service stores it beside its data, and refuses writes with a lower one. ``sequence``: of the region's last open.
    ``options``: of the table. ``sources``: the region's data begins as what these have in its range, until its server
    sends :class:`Independent`. Only servers with the feature "inherit" get such a region.
    """

    pid: int
    region: int
    token: int
    table: Name
    start: bytes
    end: bytes
    sequence: int = 0
    options: Annotated[dict[str, str], Meta(max_length=OPTIONS_MAX)] = {}
    sources: Annotated[list[Source], Meta(max_length=SOURCES_MAX)] = []


class Close(Message, frozen=True, tag="close"):
    """Has the server close a region that it opened with ``token``.

    ``reported``: its result comes in a report from each server. The region is another's, and so is its znode.
    """

    pid: int
    region: int
    token: int
    reported: bool = False


class Task(Message, frozen=True, tag="task"):
    """Has the server work on the log of a server that crashed.

    ``what``: "fence" keeps the dead server from writing any more, and its result lists the parts of its log;
    "split" makes the edits of one part available to the regions that the dead server had.
    """

    pid: int
    what: Name
    server: Name
    incarnation: int
    part: str = ""


class Work(Message, frozen=True, tag="work"):
    """Has the server do a piece of work: on a region that it opened with ``token``, or as a process (``region`` 0).

    ``what``: a feature of the process, see :data:`WORKS`; names that begin with ``x-`` are the service's own. Doing it
    twice gives the same. Its result has ``data``.
    """

    pid: int
    what: Name
    region: int = 0
    token: int = 0
    table: Name = ""
    data: Annotated[bytes, Meta(max_length=DATA_BYTES_MAX)] = b""


INHERIT: Final = "inherit"
"""Feature: the process opens regions whose data begins in that of others."""
NODES: Final = "nodes"
"""A server with it answers by znodes of regions in transition, see :class:`regent_agent.answers.Answers`."""
PUBLISH: Final = "publish"
"""Feature: the process has values that are published; it stages, unstages and commits them."""
FLUSH: Final = "flush"
"""Work on a region: what is in memory becomes durable."""
SPLIT_KEY: Final = "split_key"
"""Work on a region: its result is the key that halves it; empty where it has none."""
DISCARD: Final = "discard"
"""Work of a process: the data of the region that ``data`` names, as decimal digits, is of no use.

Behind :data:`SNAPSHOT_PREFIX` it has the identity of a snapshot: what all regions have staged for that is of no use.
"""
SNAPSHOT_PREFIX: Final = b"snapshot "
"""Begin of the data of a :data:`DISCARD` that names a snapshot."""
STAGE: Final = "stage"
"""Work: the first phase of a snapshot of a region (``data``: its identity), or of a value that is published.

The identity is the snapshot's name, a blank and an id: the whole of it tells it from a later one of the same name. A
snapshot of a daemon before ids has its name alone.
"""
UNSTAGE: Final = "unstage"
"""Work: what was staged is of no use."""
COMMIT: Final = "commit"
"""Work: what was staged counts from now on."""
WORKS: Final = frozenset({FLUSH, SPLIT_KEY, DISCARD, STAGE, UNSTAGE, COMMIT})

Operation: TypeAlias = Open | Close | Task | Work


class Result(Message, frozen=True):
    """The outcome of an operation. ``outcome``: a member of :data:`OUTCOMES`.

    ``sequence``: of the open, chosen by the service. ``text``: cause of a failure. ``parts``: of a fenced log.
    ``data``: of a piece of work.
    """

    pid: int
    outcome: Name
    sequence: int = 0
    text: str = ""
    parts: Annotated[list[str], Meta(max_length=PARTS_MAX)] = []
    data: Annotated[bytes, Meta(max_length=DATA_BYTES_MAX)] = b""


OPENED: Final = "opened"
FAILED_OPEN: Final = "failed_open"
CLOSED: Final = "closed"
"""The region is closed; also where the server did not have it."""
DONE: Final = "done"
FAILED: Final = "failed"
"""A task, or a close, raised: it is sent again."""
NOT_RUNNING: Final = "not_running"
"""The service has not started yet; nothing was done."""
BUSY: Final = "busy"
"""Too many operations wait at the server; nothing was done."""
OUTCOMES: Final = frozenset({OPENED, FAILED_OPEN, CLOSED, DONE, FAILED, NOT_RUNNING, BUSY})


class Route(Message, frozen=True):
    """The owner of a region. ``server`` and ``address`` are empty and ``token`` is 0 while it has none.

    ``gone``: the region was split or merged, and others have its keys.
    """

    region: int
    table: Name
    start: bytes
    end: bytes
    token: int = 0
    server: Name = ""
    address: Name = ""
    gone: bool = False


# -- requests and responses


class Hello(Message, frozen=True, tag="hello"):
    """Begins a connection. ``secret``: the bearer token, where the daemon wants one. Response: :class:`Welcome`.

    ``proof``: random bytes that a server's process makes when it begins, the same on all of its connections. Once it
    has registered, no connection with another proof polls, reports or leaves for it. Clients have none.
    ``seen_epoch``, ``seen_token``: the highest that a server has seen. A daemon whose store has lower ones was given a
    copy of it, and goes above both before it serves.
    """

    version: int
    secret: str = ""
    proof: Annotated[bytes, Meta(max_length=PROOF_BYTES_MAX)] = b""
    seen_epoch: int = 0
    seen_token: int = 0


class Welcome(Message, frozen=True, tag="welcome"):
    """Accepts a connection. ``version``: the lower one of both sides. ``epoch``: of the daemon."""

    version: int
    epoch: int
    daemon: str = ""


class Register(Message, frozen=True, tag="register"):
    """Enters one process of a server, or enters it anew after a failover of the daemon.

    ``server``: a name of its own in the service. ``incarnation``: higher than that of any process before it with this
    name, for instance its start in microseconds. ``address``: where clients reach it. ``software``: its version.
    ``owned``: all regions that it has. ``features``: :data:`INHERIT`, :data:`PUBLISH`, and the work that it does.
    Response: :class:`Registered`.
    """

    server: Registrable
    incarnation: int
    address: Registrable
    software: Registrable = ""
    owned: Annotated[Collection[Owned], Meta(max_length=OWNED_MAX)] = []
    features: Annotated[list[Registrable], Meta(max_length=FEATURES_MAX)] = []


class Published(Message, frozen=True):
    """A value that all servers have. ``number``: grows from one value of a name to the next.

    It is the data of the work of a process to stage, unstage or commit it, encoded as msgpack.
    """

    name: Name
    number: int
    data: Annotated[bytes, Meta(max_length=VALUE_BYTES_MAX)]


class Registered(Message, frozen=True, tag="registered"):
    """Accepts a server. ``epoch``: repeated in its polls and reports.

    ``lease_ms``: the server may be fenced that long after its last poll. ``hold_ms``: longest wait for a response to a
    poll. ``suspends``: without a valid lease the server serves nothing; otherwise it is fenced by other means.
    ``fence``: the daemon's ``regions.fence``, empty from daemons that do not name it. ``requests``: tags of requests
    that not every daemon knows, and this one does. ``published``: the values that all servers have. ``nodes``: whether
    this daemon reads answers by znodes; to others a server reports.
    """

    epoch: int
    lease_ms: int
    hold_ms: int
    suspends: bool = True
    fence: str = ""
    requests: list[str] = []
    published: list[Published] = []
    nodes: bool = False


class Poll(Message, frozen=True, tag="poll"):
    """Fetches operations and renews the lease. Response: :class:`Operations`.

    ``taken``: number of the last :class:`Operations` that arrived, 0 without. ``load``: figures of the service.
    """

    server: Name
    incarnation: int
    epoch: int
    taken: int
    load: Annotated[dict[Name, int], Meta(max_length=FIGURES_MAX)] = {}


class Operations(Message, frozen=True, tag="operations"):
    """Operations that the server carries out side by side; one with a known pid is answered again, not done again.

    ``list_regions``: the server sends :class:`Regions` soon.
    """

    epoch: int
    number: int
    operations: Annotated[list[Operation], Meta(max_length=OPERATIONS_MAX)] = []
    list_regions: bool = False


class Report(Message, frozen=True, tag="report"):
    """Reports results. Response: :class:`Accepted`, once they are durable.

    ``taken``: number of the last operations that had arrived when the report was made, as in :class:`Poll`. The daemon
    does not accept a failure of an operation that is on its way to the server: the server would do it after that.
    """

    server: Name
    incarnation: int
    epoch: int
    results: Annotated[list[Result], Meta(max_length=RESULTS_MAX)]
    taken: int = 0


class Accepted(Message, frozen=True, tag="accepted"):
    """Accepts what a server said. ``again``: pids whose result it sends again; it forgets all others.

    In response to :class:`Independent`: regions that it names again.
    """

    again: Annotated[list[int], Meta(max_length=RESULTS_MAX)] = []


class Regions(Message, frozen=True, tag="regions"):
    """Lists all regions that a server has. Response: :class:`Accepted`."""

    server: Name
    incarnation: int
    epoch: int
    owned: Annotated[Collection[Owned], Meta(max_length=OWNED_MAX)]


class Independent(Message, frozen=True, tag="independent"):
    """Says that regions have data of their own: they need their sources no more. Response: :class:`Accepted`.

    The server repeats it until it is accepted, and after each registration for regions that are open still as they
    were. ``regions``: with the tokens of their opens.
    """

    server: Name
    incarnation: int
    epoch: int
    regions: Annotated[list[Owned], Meta(max_length=RESULTS_MAX)]


class RegionLoad(Message, frozen=True):
    """The load of a region. ``reads``, ``writes``: requests since it was opened; ``size_bytes``: of its data."""

    region: int
    reads: int = 0
    writes: int = 0
    size_bytes: int = 0
    files: int = 0


class Loads(Message, frozen=True, tag="loads"):
    """Lists the loads of some regions of a server. Response: :class:`Accepted`."""

    server: Name
    incarnation: int
    epoch: int
    loads: Annotated[list[RegionLoad], Meta(max_length=LOADS_MAX)]


class Leave(Message, frozen=True, tag="leave"):
    """Has the daemon move all regions away, because the server is about to stop. Response: :class:`Left`.

    The server goes on polling, and repeats this request until all have left.
    """

    server: Name
    incarnation: int
    epoch: int


class Left(Message, frozen=True, tag="left"):
    """Says how many regions the server still has; at 0 it is no member any more, and may end."""

    regions: int


class Locate(Message, frozen=True, tag="locate"):
    """Looks up the owner of a key. Response: :class:`Routes` with one route."""

    table: Name
    key: bytes


class ListRoutes(Message, frozen=True, tag="list_routes"):
    """Lists the owners of a table's regions, from the one that has the key ``start``. Response: :class:`Routes`."""

    table: Name
    start: bytes = b""
    count_max: int = 1_000


class Routes(Message, frozen=True, tag="routes"):
    """Lists routes in the order of keys. ``change``: number of the latest change that they contain."""

    epoch: int
    change: int
    routes: Annotated[list[Route], Meta(max_length=ROUTES_MAX)]


class Follow(Message, frozen=True, tag="follow"):
    """Waits for changes of routes after number ``change`` of ``epoch``. Response: :class:`Changes`."""

    epoch: int
    change: int
    tables: Annotated[list[Name], Meta(max_length=TABLES_MAX)] = []


class Changes(Message, frozen=True, tag="changes"):
    """Lists changed routes, the latest state of each. ``reset``: the client lists all routes again."""

    epoch: int
    change: int
    routes: Annotated[list[Route], Meta(max_length=ROUTES_MAX)] = []
    reset: bool = False


class Refused(Message, frozen=True, tag="refused"):
    """Refuses a request. ``code``: a member of :data:`CODES`; ``text``: the cause and what would make it succeed.

    ``above``: a process that has never registered may register with an incarnation above this one; 0 without.
    """

    code: str
    text: str
    above: int = 0


DEAD: Final = "dead"
"""The server is fenced, or about to be: this process must not serve any more, and ends."""
REGISTER: Final = "register"
"""The daemon does not know the server, or has another epoch: it registers anew."""
NOT_ACTIVE: Final = "not_active"
"""This daemon is not the active one, or not ready yet: another address, or later."""
UNAUTHENTICATED: Final = "unauthenticated"
RESTORED: Final = "restored"
"""The store is older than what this server has seen: it was restored from a copy, and the daemon goes above that."""
INVALID: Final = "invalid"
"""A field has a value that the daemon does not accept; the text names both."""
UNKNOWN_TABLE: Final = "unknown_table"
FULL: Final = "full"
"""As many processes as there may be are members: it registers once one of them has ended."""
DAMAGED: Final = "damaged"
"""What is stored of these keys cannot be used: later, once an operator has restored it."""
CODES: Final = frozenset({DEAD, REGISTER, NOT_ACTIVE, UNAUTHENTICATED, INVALID, UNKNOWN_TABLE, FULL, DAMAGED, RESTORED})

Request: TypeAlias = (
    Hello | Register | Poll | Report | Regions | Independent | Loads | Leave | Locate | ListRoutes | Follow
)
Response: TypeAlias = Welcome | Registered | Operations | Accepted | Left | Routes | Changes | Refused
OF_SERVERS: Final = (Register, Poll, Report, Regions, Independent, Loads, Leave)
"""Requests of servers: their response renews a lease, or lets a server forget something."""
