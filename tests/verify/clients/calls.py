"""The table of admin calls, the same for every client: an operation of :mod:`tests.verify.clients.driver`, as JSON."""

from __future__ import annotations

from typing import Any, Final, NamedTuple

DAEMON: Final = 1_000_001
"""No broker on either cluster; on regent's it is a node."""
LAST: Final = "LAST"
"""The node with the highest id that the client sees: a broker, or the daemon."""


class Call(NamedTuple):
    """One call. ``until``: it is repeated until its result matches this regular expression.

    ``after``: the operation whose work it shows; it is left out where the client has none.
    """

    title: str
    operation: str
    arguments: dict[str, Any]
    until: str = ""
    after: str = ""


class Group(NamedTuple):
    """Holds calls in their order; each relies on the effects of those before it."""

    title: str
    calls: tuple[Call, ...]


def _call(title: str, operation: str, until: str = "", after: str = "", **arguments: Any) -> Call:
    return Call(title, operation, arguments, until, after)


GIVEN: Final = [[1, 2, 3], [2, 3, 1], [3, 1, 2]]
TOPICS: Final = Group(
    "Topics",
    (
        _call("replicas given", "create_topic", topic="given", assignment=GIVEN, configs={"retention.ms": "60000"}),
        _call("numbers given", "create_topic", topic="counted", partitions=4, factor=2),
        _call("the brokers' defaults", "create_topic", topic="defaults"),
        _call("validated only", "create_topic", topic="wish", partitions=1, factor=1, validate_only=True),
        _call("it exists", "create_topic", topic="given", partitions=1, factor=1),
        _call("more replicas than brokers", "create_topic", topic="wrong", partitions=1, factor=4),
        _call("a replica on no broker", "create_topic", topic="wish", assignment=[[1, 9]], validate_only=True),
        _call("a replica on the daemon", "create_topic", topic="wish", assignment=[[1, DAEMON]], validate_only=True),
        _call("the same replica twice", "create_topic", topic="wrong", assignment=[[1, 1]]),
        _call("a wrong name", "create_topic", topic="a wrong name", partitions=1, factor=1),
        _call("no partitions", "create_topic", topic="wrong", partitions=0, factor=1),
        _call(
            "a wrong configuration",
            "create_topic",
            topic="wrong",
            partitions=1,
            factor=1,
            configs={"retention.ms": "soon"},
        ),
        _call(
            "an unknown configuration", "create_topic", topic="wrong", partitions=1, factor=1, configs={"no.such": "1"}
        ),
        _call("listed", "list_topics", until="counted .*given"),
        _call("described", "describe_topic", until="3:3", topic="given"),
        _call("described, which there is not", "describe_topic", topic="missing"),
        _call("grown", "create_partitions", topic="counted", total=6),
        _call("grown, replicas given", "create_partitions", topic="given", total=4, assignment=[[1, 2, 3]]),
        _call("grown, validated only", "create_partitions", topic="counted", total=9, validate_only=True),
        _call("grown to as many", "create_partitions", topic="counted", total=6),
        _call("grown to fewer", "create_partitions", topic="counted", total=3),
        _call("grown, which there is not", "create_partitions", topic="missing", total=3),
        _call("grown, replicas on no broker", "create_partitions", topic="given", total=5, assignment=[[1, 2, 9]]),
        _call("counted", "count_partitions", until="^6", topic="counted"),
    ),
)
CONFIGURATIONS: Final = Group(
    "Configurations",
    (
        _call(
            "a topic's",
            "describe_configs",
            resources=[["topic", "given"]],
            keys=["retention.ms", "min.insync.replicas"],
        ),
        _call(
            "of a topic that is not there", "describe_configs", resources=[["topic", "missing"]], keys=["retention.ms"]
        ),
        _call("a broker's", "describe_configs", resources=[["broker", "1"]], keys=["log.retention.hours"]),
        _call(
            "of the last node and a topic in one call",
            "describe_configs",
            resources=[["broker", LAST], ["topic", "given"]],
            keys=["retention.ms"],
        ),
        _call("set", "incremental_alter", kind="topic", name="given", changes={"retention.ms": "120000"}),
        _call(
            "set, shown",
            "describe_configs",
            until="120000",
            after="incremental_alter",
            resources=[["topic", "given"]],
            keys=["retention.ms"],
        ),
        _call(
            "set, validated only",
            "incremental_alter",
            kind="topic",
            name="given",
            changes={"retention.ms": "1"},
            validate_only=True,
        ),
        _call(
            "set to a wrong value", "incremental_alter", kind="topic", name="given", changes={"retention.ms": "soon"}
        ),
        _call("set, which there is not", "incremental_alter", kind="topic", name="given", changes={"no.such": "1"}),
        _call(
            "set for a topic that is not there",
            "incremental_alter",
            kind="topic",
            name="missing",
            changes={"retention.ms": "1"},
        ),
        _call(
            "set for the last node", "incremental_alter", kind="broker", name=LAST, changes={"log.cleaner.threads": "1"}
        ),
        _call("taken back", "incremental_alter", kind="topic", name="given", changes={"retention.ms": None}),
        _call(
            "replaced (AlterConfigs)", "alter_configs", kind="topic", name="given", changes={"retention.ms": "180000"}
        ),
        _call(
            "replaced, shown",
            "describe_configs",
            until="180000",
            after="alter_configs",
            resources=[["topic", "given"]],
            keys=["retention.ms"],
        ),
    ),
)
ELECTIONS: Final = Group(
    "Elections and reassignments",
    (
        _call("preferred, not needed", "elect", kind="preferred", topic="given", partitions=[0, 1]),
        _call("preferred, of all", "elect", kind="preferred"),
        _call("preferred, of a topic that is not there", "elect", kind="preferred", topic="missing", partitions=[0]),
        _call("preferred, of a partition that is not there", "elect", kind="preferred", topic="given", partitions=[9]),
        _call("unclean, not needed", "elect", kind="unclean", topic="given", partitions=[0]),
        _call("reassigned", "reassign", topic="given", partition=0, replicas=[2, 3]),
        _call("reassignments come to their end", "list_reassignments", until="^none$"),
        _call("reassigned, shown", "describe_topic", until="0:2/2,3/2,3", after="reassign", topic="given"),
        _call("reassigned back", "reassign", topic="given", partition=0, replicas=[1, 2, 3]),
        _call("and to their end again", "list_reassignments", until="^none$"),
        _call("back, shown", "describe_topic", until="0:[123]/1,2,3/1,2,3", after="reassign", topic="given"),
        _call("reassigned to no broker", "reassign", topic="given", partition=0, replicas=[1, 9]),
        _call("reassigned to the daemon", "reassign", topic="given", partition=0, replicas=[1, DAEMON]),
        _call("reassigned to an empty list", "reassign", topic="given", partition=0, replicas=[]),
        _call("reassigned, which there is not", "reassign", topic="missing", partition=0, replicas=[1]),
        _call("cancelled, where nothing is under way", "reassign", topic="given", partition=0, replicas=None),
    ),
)
CLUSTER: Final = Group(
    "The cluster",
    (
        _call("described", "describe_cluster"),
        _call("its log directories", "log_dirs"),
        _call("its features", "features"),
        _call("a feature that is not there", "update_feature", feature="no.such", level=1),
    ),
)
USERS: Final = Group(
    "SCRAM credentials and ACLs",
    (
        _call("a credential made", "scram_set", user="alice", iterations=4096),
        _call("described", "scram_describe", until="4096", user="alice"),
        _call("changed", "scram_set", user="alice", iterations=8192),
        _call("described again", "scram_describe", until="8192", user="alice"),
        _call("with too few iterations", "scram_set", user="alice", iterations=1),
        _call("deleted", "scram_delete", user="alice"),
        _call("described, which is gone", "scram_describe", until="RESOURCE_NOT_FOUND|none", user="alice"),
        _call("deleted, which is gone", "scram_delete", user="alice"),
        _call("an ACL made", "acl_create", topic="given", user="User:alice"),
        _call("ACLs described", "acl_describe", until="READ", topic="given"),
        _call("ACLs deleted", "acl_delete", topic="given"),
        _call("ACLs described again", "acl_describe", until="none", topic="given"),
    ),
)
GROUPS_OF_CONSUMERS: Final = Group(
    "Groups and records",
    (
        _call("offsets set", "set_offsets", until="^done$", group="readers", topic="given", partition=1),
        _call("offsets listed", "list_offsets", after="set_offsets", group="readers"),
        _call("groups listed", "list_groups", until="readers", after="set_offsets"),
        _call("described", "describe_group", until="EMPTY", after="set_offsets", group="readers"),
        _call("deleted", "delete_group", group="readers"),
        _call("deleted, which is gone", "delete_group", group="readers"),
        _call("records deleted", "delete_records", topic="given", partition=1),
        _call("records deleted of a topic that is not there", "delete_records", topic="missing", partition=0),
    ),
)
DELETION: Final = Group(
    "Topics are deleted",
    (
        _call("one", "delete_topic", topic="given"),
        _call("another", "delete_topic", topic="counted"),
        _call("the third", "delete_topic", topic="defaults"),
        _call("one that is not there", "delete_topic", topic="missing"),
        _call("listed", "list_topics", until="^none$"),
    ),
)
GROUPS: Final = (TOPICS, CONFIGURATIONS, ELECTIONS, CLUSTER, USERS, GROUPS_OF_CONSUMERS, DELETION)
CALLS: Final = tuple(call for group in GROUPS for call in group.calls)
