"""Names the faults that are injected and counted, as totals list them.

They are counted where they take effect: a reply that was to be lost but was never sent does not count.
"""

from __future__ import annotations

from typing import Final

ZK_KEPT: Final = "zookeeper: connection lost, session kept"
ZK_EXPIRED: Final = "zookeeper: session expired"
ZK_WATCH_LOST: Final = "zookeeper: watch event lost"
ZK_WATCH_DELAYED: Final = "zookeeper: watch event delayed"
ZK_WATCH_TWICE: Final = "zookeeper: watch event duplicated"
ZK_WATCH_STALE: Final = "zookeeper: watch event and reads out of date"
ZK_REPLY_LOST: Final = "zookeeper: write applied, reply lost"
ZK_REQUEST_LOST: Final = "zookeeper: write lost"
ZK_RESTARTED: Final = "zookeeper: servers restarted"
ZK_READ_ONLY: Final = "zookeeper: read-only"
ZK_TROUBLE: Final = "zookeeper: an error of the server as the reply"
ZK_FROZEN: Final = "zookeeper: server frozen"
ZK_LEFT: Final = "zookeeper: frozen server left"
ZK_GRANTED: Final = "zookeeper: another session timeout granted"
ZK_LATE: Final = "zookeeper: sessions end late"
ZK_REFUSED: Final = "zookeeper: connection refused"
ZK_LEADERLESS: Final = "zookeeper: without a leader"
ZK_SLOW: Final = "zookeeper: slow fsync"

BROKER_CRASH: Final = "broker: crash"
BROKER_BOUNCE: Final = "broker: restart with a new epoch"
BROKER_STOP: Final = "broker: controlled shutdown"
BROKER_FLAP: Final = "broker: registration flapping"
BROKER_FROZEN: Final = "broker: frozen"
BROKER_SLOW: Final = "broker: slow"
BROKER_REFUSES: Final = "broker: refuses connections"
BROKER_CUT: Final = "broker: cut off from the daemons"
BROKER_HALF_OPEN: Final = "broker: half-open socket"
BROKER_REPLY_LOST: Final = "broker: reply lost"
BROKER_REQUEST_LOST: Final = "broker: request dropped"
BROKER_STALE_CONTROLLER: Final = "broker: STALE_CONTROLLER_EPOCH"
BROKER_STALE_BROKER: Final = "broker: STALE_BROKER_EPOCH"
BROKER_FOREIGN: Final = "broker: another cluster's controller epoch"
BROKER_STORAGE: Final = "broker: KAFKA_STORAGE_ERROR"

DAEMON_KILLED: Final = "controller: kill -9"
DAEMON_KILLED_AT_WRITE: Final = "controller: kill -9 at a store write"
DAEMON_STOPPED: Final = "controller: SIGTERM"
DAEMON_STOPPED_IN_BATCH: Final = "controller: SIGTERM during a batch"
DAEMON_FROZEN: Final = "controller: SIGSTOP longer than a session"
DAEMON_STALLED: Final = "controller: loop stall"
DAEMON_STOOD_STILL: Final = "controller: lease renewed after its end"
DAEMON_TWO: Final = "controller: two controllers"
DAEMON_ODD: Final = "controller: other credentials, or another on_absence"
DAEMON_CLOCK: Final = "controller: clock step"
DAEMON_HANDBACK: Final = "controller: hand-back"
OPERATOR_DELETED: Final = "operator: topic removed by hand"
OPERATOR_RECREATED: Final = "operator: topic recreated"
OPERATOR_REASSIGNED: Final = "operator: reassignment by call"
BROKER_SILENT: Final = "broker: silent at a request while topic ids are lost"
OPERATOR_CANCELLED: Final = "operator: reassignment cancelled"
OPERATOR_ZNODE: Final = "operator: reassignment by znode"
OPERATOR_MOVED: Final = "operator: reassignment finished"
OPERATOR_REFUSED: Final = "operator: marker of a topic removed, as brokers forbid its deletion"
OPERATOR_MARKED: Final = "operator: topic deleted by its marker"
OPERATOR_REWROTE: Final = "operator: topic rewritten without its id"
OPERATOR_SCRIBBLED: Final = "operator: state znode scribbled and restored"
OPERATOR_INTERPOSED: Final = "operator: write between two requests of a handler"
OPERATOR_LITTERED: Final = "operator: malformed notification or request"
OPERATOR_UNQUEUED: Final = "operator: position in the queue of daemons deleted"
OPERATOR_DROPPED: Final = "operator: parent znode deleted"
CALL_CREATED: Final = "call: topic created"
CALL_GREW: Final = "call: partitions added"
CALL_DELETED: Final = "call: topic deleted"
PLAN_APPLIED: Final = "plan: applied"
PLAN_ABORTED: Final = "plan: taken back"
PLAN_THROTTLE_FOREIGN: Final = "plan: another client sets a rate"
DRAIN_BEGUN: Final = "drain: begun"
DRAIN_ABORTED: Final = "drain: taken back"
DRAIN_REPLICAS: Final = "drain: replicas moved away"
DRAIN_REMOVED: Final = "drain: undone by an operator"
SHUTDOWN_COMMANDED: Final = "shutdown: by command"
SHUTDOWN_UNDONE: Final = "shutdown: undone by an operator"
SIZE_CHAIN: Final = "size: topic created in several multis"
SIZE_CUT: Final = "size: LeaderAndIsr cut"
SIZE_LOADED: Final = "size: failover in several turns"
SIZE_MULTIS: Final = "size: decision in several multis"
SIZE_PARTLY: Final = "size: some multis applied, some unknown"
SIZE_RENEWED: Final = "size: term ended for its vanished topics"
SIZE_TURNS: Final = "size: snapshot in several turns"

ELECTION_BY_ZNODE: Final = "election: requested by znode"
ELECTION_BY_REQUEST: Final = "election: requested by call"
ELECTION_UNCLEAN: Final = "election: unclean"

INTERIM: Final = "controller: interim term of a broker"

REQUIRED: Final = tuple(
    value
    for name, value in sorted(globals().items())
    if name.startswith(
        ("ZK_", "BROKER_", "DAEMON_", "OPERATOR_", "CALL_", "PLAN_", "DRAIN_", "SHUTDOWN_", "SIZE_", "ELECTION_")
    )
)
"""Faults that each must occur in at least one seed of a hundred."""
