"""Declares the rows of the journal: one flat type for all that a controller does, with before and after in each row.

Most invariants are judged on one row by itself (:mod:`state_machines.journal.audit`). Absent fields are None and left
out of the JSON. Rows are ordered by (controller epoch, seq); ``seq`` counts from 1 within a term without holes, so that
a missing row is seen.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum
from typing import Final

from msgspec import Struct
from msgspec.structs import asdict

SCHEMA_VERSION: Final = 1
"""``v`` of the rows. Fields are only added within a version; a reader passes over fields that it does not know."""


class Kind(StrEnum):
    """The kind of a row."""

    CTL_ELECTED = "CTL_ELECTED"
    CTL_PHASE = "CTL_PHASE"
    CTL_RESIGNED = "CTL_RESIGNED"
    FENCED = "FENCED"
    BROKER_UP = "BROKER_UP"
    BROKER_DOWN = "BROKER_DOWN"
    BROKER_SHUTDOWN_BEGIN = "BROKER_SHUTDOWN_BEGIN"
    BROKER_SHUTDOWN_END = "BROKER_SHUTDOWN_END"
    PARTITION_STATE = "PARTITION_STATE"
    REPLICA_STATE = "REPLICA_STATE"
    LEADER = "LEADER"
    ISR = "ISR"
    TOPIC_CREATE = "TOPIC_CREATE"
    TOPIC_DELETE = "TOPIC_DELETE"
    WAIT_GIVEN_UP = "WAIT_GIVEN_UP"
    PROC_STATE = "PROC_STATE"
    RPC_BATCH = "RPC_BATCH"
    CALL = "CALL"
    SNAPSHOT = "SNAPSHOT"
    REGION_STATE = "REGION_STATE"
    REGION_DISPATCH = "REGION_DISPATCH"
    REGION_REPORT = "REGION_REPORT"
    SERVER_STATE = "SERVER_STATE"
    TABLE_STATE = "TABLE_STATE"
    UNRECORDED = "UNRECORDED"


PARTITION_KINDS: Final = frozenset({Kind.LEADER, Kind.ISR, Kind.PARTITION_STATE})
"""Rows of one partition, with its leadership before and after."""

OBSERVED: Final = "observed"
"""``reason`` of a fact that was read and not decided here: another writer's, or an own write whose reply was lost."""


INDEPENDENT: Final = "independent"
"""``outcome`` of a server's word that a region has data of its own, and needs that of others no more."""
MAYBE_INDEPENDENT: Final = "independent, maybe not stored"
"""The same, of a word whose write had no response when the term ended: the next term has it, or not."""


class Row(Struct, omit_defaults=True, gc=False):
    """One event.

    ``ts_us`` and ``mono_us``: the wall and the monotonic clock when it was entered, in microseconds. The ``t_*`` are
    on the monotonic clock, too: when the event was noticed, when it was decided on, when ZooKeeper had applied it.
    ``leader``, ``leader_epoch``, ``pepoch`` (partition epoch, the znode's version) and ``isr`` with 0 are before, with
    1 after the event. ``replicas`` includes those being added. ``states``: all states entered, where they are several.
    ``steps``: the reason of each leader epoch that the write takes. ``lost``: UNRECORDED stands for so many rows,
    itself included. ``absent``: after an election, members of the ISR whose brokers are not registered. ``why``: one
    sentence for operators.

    ``pid``, ``ppid`` and ``root``: a procedure, its parent, and the one that the caller submitted; ``step``: the next
    one; ``locked``: it keeps ``locks`` until it ends. ``topics`` and ``brokers``: what it is about, in its first and
    last row. ``partitions``: how many a request or a call names, ``elected`` and ``refused`` of them. ``t_sent``: the
    first attempt of a request; ``t_acknowledged``: its response.

    ``table``, ``region``, ``server`` and ``incarnation``: of the domain that assigns regions; ``server0`` and
    ``incarnation0``: the owner before. ``start`` and ``end``: keys of a new region, as text. ``regions``: how many a
    server or a table has. ``batch``: number of a dispatch to a process; ``pids``: its operations, each of them an
    "open", a "close" or a "task" of ``operations``. ``outcome``: of an operation, as the server reported it.
    ``pids`` without ``pid``: in bulk one row has the begins, the plain ends or the results of many procedures.

    ``session_ms``: of a broker that went, the time-out of its ZooKeeper session as it is configured: it may have
    stopped so long before. ``snapshot``: name of a file (:mod:`state_machines.journal.snapshot`) of ``file_bytes``
    with ``partitions`` and ``broker_count``; ``seq_first`` and ``seq_last`` are the numbers of its header and trailer.
    """

    v: int
    cluster: str
    ctl_id: int
    ctl_epoch: int
    seq: int
    ts_us: int
    mono_us: int
    kind: str
    topic: str | None = None
    partition: int | None = None
    topic_id: str | None = None
    from_state: str | None = None
    to_state: str | None = None
    leader0: int | None = None
    leader1: int | None = None
    leader_epoch0: int | None = None
    leader_epoch1: int | None = None
    pepoch0: int | None = None
    pepoch1: int | None = None
    isr0: Sequence[int] | None = None
    isr1: Sequence[int] | None = None
    replicas: Sequence[int] | None = None
    adding: Sequence[int] | None = None
    removing: Sequence[int] | None = None
    reason: str | None = None
    strategy: str | None = None
    unclean: bool | None = None
    steps: Sequence[str] | None = None
    states: Sequence[str] | None = None
    t_detect: int | None = None
    t_decide: int | None = None
    t_committed: int | None = None
    why: str | None = None
    broker: int | None = None
    broker_epoch: int | None = None
    rack: str | None = None
    lost: int | None = None
    err: str | None = None
    absent: Sequence[int] | None = None
    pid: int | None = None
    ppid: int | None = None
    root: int | None = None
    procedure: str | None = None
    step: str | None = None
    attempts: int | None = None
    locks: Sequence[str] | None = None
    locked: bool | None = None
    topics: Sequence[str] | None = None
    brokers: Sequence[int] | None = None
    principal: str | None = None
    client: str | None = None
    result: str | None = None
    took_ms: int | None = None
    api: str | None = None
    partitions: int | None = None
    elected: int | None = None
    refused: int | None = None
    t_sent: int | None = None
    t_acknowledged: int | None = None
    table: str | None = None
    region: int | None = None
    server0: str | None = None
    incarnation0: int | None = None
    server: str | None = None
    incarnation: int | None = None
    token: int | None = None
    sequence: int | None = None
    start: str | None = None
    end: str | None = None
    regions: int | None = None
    batch: int | None = None
    operations: Sequence[str] | None = None
    pids: Sequence[int] | None = None
    outcome: str | None = None
    session_ms: int | None = None
    snapshot: str | None = None
    broker_count: int | None = None
    file_bytes: int | None = None
    seq_first: int | None = None
    seq_last: int | None = None

    def of_family(self, pid: int) -> bool:
        """Checks whether the row is of a procedure, or of a child or, where it was submitted, a descendant of it."""
        return pid in (self.pid, self.ppid, self.root) or pid in (self.pids or ())

    def about(self, topic: str) -> bool:
        """Checks whether the row is of a topic, or of a procedure that locks it or is about it."""
        if topic == self.topic or topic in (self.topics or ()):
            return True
        return any(lock.split(" ")[:2] == ["topic", topic] for lock in self.locks or ())

    def at_server(self, name: str, incarnation: int | None) -> bool:
        """Checks whether a process of a server is the subject, or has the region before or after; None: any process."""
        some = ((self.server, self.incarnation), (self.server0, self.incarnation0))
        return any(name == one and incarnation in (None, number) for one, number in some)

    def concerns(self, broker: int) -> bool:
        """Checks whether a broker leads before or after, enters or leaves the ISR, or is the subject of the row.

        Of a procedure: it locks the broker, or is about it.
        """
        if broker in (self.broker, self.leader0, self.leader1, *(self.brokers or ())):
            return True
        if f"server broker {broker}" in (self.locks or ()):
            return True
        return (broker in (self.isr0 or ())) != (broker in (self.isr1 or ()))


class RegionRow(Struct, omit_defaults=True, gc=False):
    """A row of a region as its JSON is, without the fields that such a row never has.

    Of a hundred thousand regions each has several of them, and a :class:`Row` takes eight times as long to make. The
    fields are those of :class:`Row`, in its order, so the JSON is the same.
    """

    v: int
    cluster: str
    ctl_id: int
    ctl_epoch: int
    seq: int
    ts_us: int
    mono_us: int
    kind: str
    from_state: str | None = None
    to_state: str | None = None
    why: str | None = None
    pid: int | None = None
    ppid: int | None = None
    root: int | None = None
    procedure: str | None = None
    table: str | None = None
    region: int | None = None
    server0: str | None = None
    incarnation0: int | None = None
    server: str | None = None
    incarnation: int | None = None
    token: int | None = None
    sequence: int | None = None
    start: str | None = None
    end: str | None = None
    regions: int | None = None

    def whole(self) -> Row:
        """Returns the row with all fields."""
        return Row(**asdict(self))
