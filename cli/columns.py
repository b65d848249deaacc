"""Lists the columns of the tables by kind of item: header, key in the JSON, and a mark for ``-o wide`` alone."""

from __future__ import annotations

from typing import Any, Final, NamedTuple


class Column(NamedTuple):
    """One column."""

    header: str
    key: str
    wide: bool = False


COLUMNS: Final[dict[str, tuple[Column, ...]]] = {
    "Broker": (
        Column("ID", "id"),
        Column("STATE", "state"),
        Column("LEADS", "leads"),
        Column("HOSTS", "hosts"),
        Column("UNACKED", "unacknowledgedPartitions"),
        Column("AGE", "propagationAgeS"),
        Column("REFUSES", "refuses"),
        Column("RACK", "rack"),
        Column("CORDONED", "cordoned"),
        Column("DRAINED", "drained"),
        Column("IBP", "ibp", wide=True),
        Column("QUEUED", "queued", wide=True),
        Column("EPOCH", "epoch", wide=True),
        Column("LISTENERS", "listeners", wide=True),
        Column("AWAITED-BY", "awaitedBy", wide=True),
    ),
    "Topic": (
        Column("NAME", "name"),
        Column("PARTITIONS", "partitions"),
        Column("RF", "replicationFactor"),
        Column("OFFLINE", "offline"),
        Column("UNDER-REPLICATED", "underReplicated"),
        Column("UNDER-MIN-ISR", "underMinIsr"),
        Column("NOT-PREFERRED", "notPreferred"),
        Column("ID", "id", wide=True),
    ),
    "Partition": (
        Column("TOPIC", "topic"),
        Column("PARTITION", "partition"),
        Column("STATE", "state"),
        Column("LEADER", "leader"),
        Column("REPLICAS", "replicas"),
        Column("ISR", "isr"),
        Column("EPOCH", "leaderEpoch"),
        Column("PARTITION-EPOCH", "partitionEpoch", wide=True),
        Column("CONTROLLER-EPOCH", "controllerEpoch", wide=True),
        Column("OFFLINE", "offlineReplicas", wide=True),
        Column("ADDING", "adding", wide=True),
        Column("REMOVING", "removing", wide=True),
        Column("MIN-ISR", "minIsr", wide=True),
        Column("AT-MIN-ISR", "atMinIsr", wide=True),
        Column("UNDER-MIN-ISR", "underMinIsr", wide=True),
        Column("PREFERRED", "preferred", wide=True),
        Column("REFUSED-BY", "refusedBy", wide=True),
    ),
    "RoleChangeItem": (
        Column("AT", "at"),
        Column("HOLDER", "holder"),
        Column("BY", "principal"),
        Column("REASON", "reason"),
    ),
    "Difference": (
        Column("TOPIC", "topic"),
        Column("PARTITION", "partition"),
        Column("FIELD", "field"),
        Column("MEMORY", "expected"),
        Column("FOUND", "found"),
        Column("BROKER", "broker"),
    ),
    "Hindrance": (
        Column("CAUSE", "cause"),
        Column("COUNT", "count"),
        Column("EXAMPLES", "examples"),
        Column("WAITS-FOR", "waitsFor"),
        Column("MEANING", "meaning"),
        Column("REMEDY", "remedy", wide=True),
    ),
    "Procedure": (
        Column("PID", "pid"),
        Column("KIND", "kind"),
        Column("STATE", "state"),
        Column("FLAG", "flag"),
        Column("PROGRESS", "detail"),
        Column("SUBMITTED", "submitted"),
        Column("PRINCIPAL", "principal"),
        Column("ERROR", "error"),
        Column("STEP", "step", wide=True),
        Column("PARENT", "parent", wide=True),
        Column("UPDATED", "updated", wide=True),
        Column("ATTEMPTS", "attempts", wide=True),
        Column("REASON", "reason", wide=True),
        Column("RESULT", "result", wide=True),
        Column("UNUSABLE", "unusable", wide=True),
        Column("PARKED", "parked", wide=True),
    ),
    "ProcedureRecord": (
        Column("PID", "pid"),
        Column("PPID", "parent"),
        Column("KIND", "kind"),
        Column("STATE", "state"),
        Column("STEP", "step"),
        Column("SUBMITTED", "submitted"),
        Column("UPDATED", "updated"),
        Column("PRINCIPAL", "principal"),
        Column("REASON", "reason"),
        Column("ERROR", "error"),
        Column("FAULT", "fault"),
        Column("WHY", "why"),
        Column("DONE", "done", wide=True),
        Column("ATTEMPTS", "attempts", wide=True),
        Column("DEADLINE", "deadline", wide=True),
        Column("CLIENT", "client", wide=True),
        Column("RESULT", "result", wide=True),
        Column("PLACE", "place", wide=True),
        Column("BYTES", "bytes", wide=True),
    ),
    "Move": (
        Column("TOPIC", "topic"),
        Column("PARTITION", "partition"),
        Column("STATUS", "status"),
        Column("ORIGIN", "origin"),
        Column("TARGET", "target"),
        Column("COPIED", "copiedBytes"),
        Column("BYTES", "sizeBytes"),
        Column("BYTES/S", "rateBytesPerS"),
        Column("LEFT-S", "remainingS"),
        Column("WHY", "why"),
        Column("FOUND", "found"),
        Column("BY", "by"),
        Column("RECORDS-BEHIND", "recordsBehind", wide=True),
    ),
    "Reassignment": (
        Column("TOPIC", "topic"),
        Column("PARTITION", "partition"),
        Column("ADDING", "adding"),
        Column("REMOVING", "removing"),
        Column("TARGET", "target"),
        Column("PID", "pid"),
        Column("BY", "by"),
        Column("SINCE", "since"),
        Column("ORIGIN", "origin", wide=True),
    ),
    "BrokerLoad": (
        Column("BROKER", "broker"),
        Column("REPLICAS", "replicas"),
        Column("FIRST", "first"),
        Column("IN", "movesIn"),
        Column("OUT", "movesOut"),
        Column("BYTES-IN", "bytesIn"),
    ),
    "Throttle": (
        Column("PID", "pid"),
        Column("KIND", "kind"),
        Column("BYTES/S", "rateBytesPerS"),
        Column("BROKERS", "brokers"),
        Column("TOPICS", "topics"),
        Column("SINCE", "since"),
        Column("PRINCIPAL", "principal"),
        Column("REASON", "reason"),
        Column("RESULTS", "results", wide=True),
    ),
    "ThrottleSetting": (
        Column("OWNER", "owner"),
        Column("ENTITY", "entity"),
        Column("SETTING", "setting"),
        Column("VALUE", "value"),
        Column("REPLICAS", "replicas", wide=True),
        Column("WHY", "why", wide=True),
    ),
    "ThrottleRemoval": (
        Column("OUTCOME", "outcome"),
        Column("OWNER", "owner"),
        Column("ENTITY", "entity"),
        Column("SETTING", "setting"),
        Column("VALUE", "value"),
        Column("REPLICAS", "replicas", wide=True),
        Column("WHY", "why"),
    ),
    "CordonedBroker": (
        Column("BROKER", "broker"),
        Column("DRAINED", "drained"),
        Column("SINCE", "since"),
        Column("PRINCIPAL", "principal"),
        Column("REASON", "reason"),
        Column("DRAIN-REASON", "drainReason", wide=True),
        Column("DRAIN-PID", "drainPid", wide=True),
    ),
    "Deletion": (
        Column("TOPIC", "topic"),
        Column("PARTITIONS", "partitions"),
        Column("STATE", "state"),
        Column("SINCE", "since"),
        Column("WAITS-FOR", "waitsFor"),
        Column("WHY", "why"),
    ),
    "StrayLog": (
        Column("BROKER", "broker"),
        Column("TOPIC", "topic"),
        Column("PARTITION", "partition"),
        Column("BYTES", "sizeBytes"),
        Column("DIRECTORY", "directory"),
        Column("REASON", "reason"),
        Column("FUTURE", "isFuture", wide=True),
    ),
    "StrayOutcome": (
        Column("OUTCOME", "outcome"),
        Column("BROKER", "broker"),
        Column("TOPIC", "topic"),
        Column("PARTITION", "partition"),
        Column("BYTES", "sizeBytes"),
        Column("DIRECTORY", "directory"),
        Column("WHY", "why"),
    ),
    "Lock": (
        Column("PID", "pid"),
        Column("RESOURCE", "resource"),
        Column("EXCLUSIVE", "exclusive"),
        Column("PARTS", "parts"),
        Column("WAITS", "waiting"),
        Column("HELD-BY", "heldBy"),
    ),
    "Region": (
        Column("ID", "id"),
        Column("TABLE", "table"),
        Column("START", "start"),
        Column("END", "end"),
        Column("STATE", "state"),
        Column("SERVER", "server"),
        Column("PID", "pid"),
        Column("WAITS-FOR", "waitsFor"),
        Column("PINNED", "pinned", wide=True),
        Column("INCARNATION", "incarnation", wide=True),
        Column("ADDRESS", "address", wide=True),
        Column("TOKEN", "token", wide=True),
        Column("SEQUENCE", "sequence", wide=True),
        Column("STATE-AGE", "stateAgeS", wide=True),
    ),
    "RegionTransition": (
        Column("ID", "id"),
        Column("TABLE", "table"),
        Column("STATE", "state"),
        Column("AGE", "ageS"),
        Column("OVERDUE", "overdue"),
        Column("SERVER", "server"),
        Column("PID", "pid"),
        Column("WAITS-FOR", "waitsFor"),
        Column("CAUSE", "cause"),
        Column("REASON", "reason"),
        Column("KIND", "kind", wide=True),
        Column("STEP", "step", wide=True),
        Column("ATTEMPTS", "attempts", wide=True),
    ),
    "Table": (
        Column("NAME", "name"),
        Column("KIND", "kind"),
        Column("STATE", "state"),
        Column("REGIONS", "regions"),
        Column("OPEN", "openRegions"),
        Column("WAITING", "waitingRegions"),
        Column("IN-TRANSITION", "inTransition"),
        Column("FAILED", "failedRegions"),
        Column("STRANDED", "strandedRegions"),
        Column("GAPS", "gaps"),
        Column("DAMAGE", "damage", wide=True),
        Column("NAMESPACE", "namespace", wide=True),
        Column("OPTIONS", "options", wide=True),
    ),
    "Namespace": (Column("NAME", "name"), Column("TABLES", "tables")),
    "RegionServer": (
        Column("NAME", "name"),
        Column("INCARNATION", "incarnation"),
        Column("STATE", "state"),
        Column("ADDRESS", "address"),
        Column("REGIONS", "regions"),
        Column("OPENING", "opening"),
        Column("CLOSING", "closing"),
        Column("LEASE-LEFT", "leaseLeftS"),
        Column("SOFTWARE", "software"),
        Column("CORDONED", "cordoned"),
        Column("NOTE", "note"),
        Column("HELD-UNTIL", "heldUntil", wide=True),
        Column("LOAD", "load", wide=True),
    ),
    "RegionMark": (
        Column("KIND", "kind"),
        Column("SUBJECT", "subject"),
        Column("SERVER", "server"),
        Column("UNTIL", "until"),
        Column("PRINCIPAL", "principal"),
        Column("REASON", "reason"),
    ),
    "Check": (
        Column("RESULT", "result"),
        Column("CHECK", "name"),
        Column("FOUND", "found"),
        Column("REMEDY", "remedy"),
    ),
    "Event": (
        Column("TIME", "time"),
        Column("KIND", "kind"),
        Column("WHAT", "what"),
        Column("EVENT", "told"),
        Column("EPOCH", "ctl_epoch", wide=True),
        Column("SEQ", "seq", wide=True),
        Column("REASON", "reason", wide=True),
        Column("STRATEGY", "strategy", wide=True),
        Column("DAEMON", "ctl_id", wide=True),
    ),
    "Setting": (
        Column("KEY", "key"),
        Column("VALUE", "value"),
        Column("FROM", "origin"),
        Column("BROKERS", "brokerSetting", wide=True),
        Column("DIFFERS", "differs", wide=True),
    ),
}


def cell(value: Any) -> str:
    """Returns a value as a table shows it: lists with commas, no value as a dash, endpoints as ``NAME://host:port``."""
    if value is None or value == [] or value == "":
        return "-"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        return f"{value:.1f}"
    if isinstance(value, list):
        return ",".join(cell(item) for item in value)
    if isinstance(value, dict):
        endpoint = {"name", "host", "port"} <= value.keys()
        return f"{value['name']}://{value['host']}:{value['port']}" if endpoint else _pairs(value)
    return str(value)


def _pairs(value: dict[str, Any]) -> str:
    return " ".join(f"{name}={cell(item)}" for name, item in value.items())


def label(key: str) -> str:
    """Returns a JSON key as a heading: ``propagationAgeS`` becomes ``propagation age s``."""
    return "".join(f" {letter.lower()}" if letter.isupper() else letter for letter in key)
