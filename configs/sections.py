"""Declares the sections of the settings: one frozen model each, every key with its meaning, unit, limits and default.

A key without a default is required. This module limits each key by itself; :mod:`configs.rules` limits relations of
keys. Descriptions become the comments of ``configs/example.toml``.
"""

from __future__ import annotations

from pathlib import Path
from typing import Literal

from pydantic import BaseModel, ConfigDict

from configs.values import (
    REQUIRED,
    AbsolutePath,
    AdvertisedHost,
    Host,
    Ibp,
    Level,
    ListenerName,
    OptionalListenerName,
    PolicyHook,
    key,
)

ADOPTED = "Without this key the daemon adopts the brokers' value, the stricter one where they differ."


class Section(BaseModel):
    """Base of every section, which is one table of the settings file."""

    model_config = ConfigDict(frozen=True, extra="forbid", validate_default=True, str_strip_whitespace=True)


class ControllerSettings(Section):
    """The controller role: how a daemon holds it, and its decisions."""

    id: int = key(
        1_000_001,
        "Id of the daemon beside the brokers' ids. Every daemon of a cluster needs its own id, and no broker may ever "
        "use it.",
        ge=10_000,
        le=2_000_000_000,
        remedy="stay far above every broker.id, and far below 2147483647, from which clients count down for "
        "connections to group coordinators",
    )
    on_absence: Literal["brokers", "hold"] = key(
        "brokers",
        "Behaviour of the cluster while no daemon is alive. brokers: one of them is elected controller and the cluster "
        "goes on. hold: no broker is elected and no leader moves until a daemon is back; for two daemons or more.",
    )
    ibp: Ibp = key(
        "3.9-IV0",
        "inter.broker.protocol.version of the brokers. Raise it after the brokers, as with Kafka's own controller. "
        "Without this key a daemon that becomes the controller adopts the lowest one of the brokers.",
        remedy="give the brokers' inter.broker.protocol.version, for example 2.7-IV1 or 3.9-IV0",
    )
    lease_fraction: float = key(
        0.8,
        "Fraction of the negotiated session timeout after which the daemon stops acting by itself. The time counts "
        "from the sending of the last heartbeat that ZooKeeper acknowledged.",
        ge=0.5,
        le=0.9,
    )
    loop_stall_ms_max: int = key(
        6_000,
        "Longest stall of the event loop, in milliseconds, after which the daemon ends its process. It must be below "
        "half of zookeeper.session_timeout_ms.",
        ge=500,
        le=120_000,
    )
    drain_timeout_ms: int = key(
        10_000,
        "At a stop: longest wait for writes and requests in progress, in milliseconds.",
        ge=0,
        le=120_000,
    )
    handback_timeout_ms: int = key(
        30_000,
        "At a hand-back: longest wait until a broker holds the role and every broker knows it, in milliseconds. After "
        "that the daemon takes the role back.",
        ge=1_000,
        le=600_000,
    )
    conflict_rounds_max: int = key(
        3,
        "How many times the daemon reads and decides again after another client's write conflicted with a decision. "
        "After these rounds it writes each change of the decision by itself.",
        ge=1,
        le=20,
    )
    delete_topic_enable: bool = key(
        True,
        "delete.topic.enable: whether the daemon deletes topics that are marked for deletion. With false it removes "
        f"the markers instead, as Kafka's controller does. {ADOPTED}",
    )
    unclean_leader_election_enable: bool = key(
        False,
        "Default of unclean.leader.election.enable where neither the topic nor the brokers' dynamic default sets it. "
        "With true a lagging replica becomes the leader where no replica in sync is live, and acknowledged records may "
        f"be lost. {ADOPTED}",
    )
    auto_leader_rebalance_enable: bool = key(
        True,
        "auto.leader.rebalance.enable: whether the daemon moves leadership back to the preferred leaders by itself. "
        f"{ADOPTED}",
    )
    leader_imbalance_check_interval_seconds: int = key(
        300,
        "leader.imbalance.check.interval.seconds: interval of the checks for imbalanced leaders, in seconds. The first "
        f"check comes 5 s after the daemon became the controller. {ADOPTED}",
        ge=1,
        le=86_400,
    )
    leader_imbalance_per_broker_percentage: int = key(
        10,
        "leader.imbalance.per.broker.percentage: leadership moves back to a preferred leader once other brokers lead "
        f"more than this percentage of its partitions. {ADOPTED}",
        ge=0,
        le=100,
    )
    leader_rebalance_moves_per_minute: int = key(
        10_000,
        "Most leaders that the automatic balance moves in a minute, those of the most imbalanced broker first. The "
        "rest follows as soon as a minute has passed, whatever the interval.",
        ge=1,
        le=10_000_000,
    )
    num_partitions: int = key(
        1,
        "num.partitions of the brokers: partitions of a topic that an admin client creates without a partition count. "
        f"{ADOPTED}",
        ge=1,
        le=100_000,
    )
    default_replication_factor: int = key(
        1,
        "default.replication.factor of the brokers: replicas of a topic that an admin client creates without a "
        f"replication factor. {ADOPTED}",
        ge=1,
        le=1_000,
    )
    quota_window_num: int = key(
        11,
        "controller.quota.window.num of the brokers. A client with a quota (controller_mutation_rate) may create or "
        "delete rate x quota_window_num x quota_window_size_seconds partitions at once. "
        f"{ADOPTED}",
        ge=1,
        le=100_000,
    )
    quota_window_size_seconds: int = key(
        1,
        f"controller.quota.window.size.seconds of the brokers, in seconds. {ADOPTED}",
        ge=1,
        le=86_400,
    )
    delegation_token_expiry_check_interval_ms: int = key(
        3_600_000,
        "delegation.token.expiry.check.interval.ms: interval at which the daemon deletes expired delegation tokens, in "
        "milliseconds. The first check comes 5 s after the daemon became the controller. With 0 it deletes none. "
        f"{ADOPTED}",
        ge=0,
        le=86_400_000,
    )
    remote_log_storage_system_enable: bool = key(
        False,
        "remote.log.storage.system.enable of the brokers: whether a topic may be created with remote.storage.enable. "
        f"{ADOPTED}",
    )
    ignore_create_topic_policy: bool = key(
        False,
        "Whether the daemon creates topics although brokers have a create.topic.policy.class.name. It cannot run that "
        "class by itself: with false, and without create_topic_policy, it refuses the topics of admin clients "
        "(POLICY_VIOLATION).",
    )
    create_topic_policy: PolicyHook | None = key(
        None,
        "Policy that is asked before a topic of an admin client is created, in place of the brokers' class. A list "
        "with the absolute path of a program and its arguments, or with one http:// or https:// address, or with java, "
        "the class path of the brokers' jars and their policy class, and optionally a properties file that configures "
        "that class. In the environment it is a list in JSON. A JVM does not start under MemoryDenyWriteExecute=yes: "
        "the daemon's unit needs a drop-in with =no.",
        sample=["java", "/opt/kafka/libs/*"],
        remedy='give a list such as ["/usr/local/bin/topic-policy"], ["https://policies.example/topics"] or '
        '["java", "/opt/kafka/libs/*"]',
    )
    create_topic_policy_timeout_ms: int = key(
        5_000,
        "Longest wait for the policy's answer on one topic, in milliseconds. After it the topic is refused "
        "(POLICY_VIOLATION).",
        ge=100,
        le=60_000,
    )
    create_topic_policy_calls_max: int = key(
        4,
        "Topics for which the policy is asked at the same time; a JVM answers one at a time.",
        ge=1,
        le=64,
    )
    super_users: str = key(
        "",
        "Principals that may change everything through the admin endpoint, as in super.users of the brokers: "
        "User:alice;User:bob. As there, User:* means only a user called *. Every client may change everything where "
        "clients do not authenticate and the cluster has never used an authorizer.",
    )
    acls: Literal["zookeeper", "none"] = key(
        "zookeeper",
        "Source of the permissions of all other principals. zookeeper: the ACLs that kafka-acls writes, as with "
        "authorizer.class.name=kafka.security.authorizer.AclAuthorizer of the brokers. none: they may change nothing; "
        "for brokers with another authorizer.",
    )
    allow_everyone_if_no_acl_found: bool = key(
        False,
        "allow.everyone.if.no.acl.found of the brokers: whether requests are allowed where no ACL matches a resource.",
    )


class ListenerSettings(Section):
    """The daemon's listener for requests of brokers: controlled shutdown, ISR changes, producer ids."""

    host: Host = key(
        "0.0.0.0",  # noqa: S104  # brokers are on other machines
        "Address to listen on.",
        remedy='give an address of this machine, or "0.0.0.0" for all of them',
    )
    port: int = key(9095, "Port to listen on; 0 takes a free one.", ge=0, le=65_535)
    advertised_host: AdvertisedHost = key(
        REQUIRED,
        "Name or address under which every broker reaches this daemon.",
        sample="regent1.example.com",
        remedy="give the name or address under which the brokers reach this machine",
    )
    advertised_port: int = key(0, "Port under which brokers reach it; 0 is the port it listens on.", ge=0, le=65_535)
    only_brokers: bool = key(
        False,
        "With PLAINTEXT: whether the daemon serves requests only from addresses at which it reached a registered "
        "broker. Leave it off where brokers connect from other addresses than they listen on.",
    )
    frame_bytes_max: int = key(
        16_777_216,
        "Largest request of a broker, in bytes. The daemon closes the connection of a larger one.",
        ge=65_536,
        le=104_857_600,
    )
    connections_max: int = key(
        2_000,
        "Most connections at a time, TLS handshakes in progress included. At the limit a new connection replaces the "
        "oldest one that was never served. Without such a one the daemon closes the new connection. A broker needs "
        "three.",
        ge=10,
        le=100_000,
    )
    connections_per_address_max: int = key(
        500,
        "As listener.connections_max, for the connections of one address (for IPv6, of one /64 network).",
        ge=10,
        le=100_000,
    )
    frame_timeout_ms: int = key(
        10_000,
        "Longest time, in milliseconds, for a partly received request to complete, and for a TLS handshake. The same "
        "limit holds until a new connection authenticates or sends its first request that is served.",
        ge=100,
        le=600_000,
    )
    idle_timeout_ms: int = key(
        600_000,
        "The daemon closes a connection without any request for this time, in milliseconds.",
        ge=1_000,
        le=86_400_000,
    )


class BrokersSettings(Section):
    """Connections and requests of the daemon to the brokers."""

    inter_broker_listener: ListenerName = key(
        "INTERNAL",
        "inter.broker.listener.name of the brokers. Where clients use it, too, admin.client_listener must name it as "
        "well.",
        remedy="give inter.broker.listener.name of the brokers",
    )
    control_plane_listener: OptionalListenerName = key(
        "",
        "control.plane.listener.name of the brokers; empty where they have none.",
        remedy="give control.plane.listener.name of the brokers, or leave it empty",
    )
    reserved_broker_max_id: int = key(
        1_000,
        "reserved.broker.max.id of the brokers: ids that brokers generate for themselves start above it.",
        ge=0,
        le=1_900_000_000,
    )
    connect_timeout_ms: int = key(
        10_000, "Longest wait for a connection to a broker, in milliseconds.", ge=100, le=120_000
    )
    request_timeout_ms: int = key(
        30_000,
        "Longest wait for a broker's response, in milliseconds. After that the daemon reconnects and sends the request "
        "again.",
        ge=1_000,
        le=300_000,
    )
    retry_backoff_ms: int = key(
        100, "First pause before the daemon retries a broker, in milliseconds.", ge=10, le=60_000
    )
    retry_backoff_ms_max: int = key(1_000, "Longest pause between two attempts, in milliseconds.", ge=10, le=60_000)
    seal_interval_ms: int = key(
        20,
        "Shortest time between the starts of two requests to one broker, in milliseconds, so that one request carries "
        "the changes of a burst. The first request after a pause starts at once.",
        ge=0,
        le=5_000,
    )
    snapshot_turn_partitions: int = key(
        20_000,
        "Most partitions in one turn of a full snapshot of the metadata; each turn has its own requests.",
        ge=100,
        le=100_000,
    )


class LogSettings(Section):
    """The log, which goes to standard error."""

    format: Literal["auto", "console", "json"] = key("auto", "auto is console on a terminal and json otherwise.")
    level: Level = key("info", "Least severe level that is written.", live=True)
    state_change_level: Level = key(
        "info",
        "The same for the logger regent.state-change, which writes one line per decision about a partition.",
        live=True,
    )


class ShadowSettings(Section):
    """regent run --shadow: decides beside Kafka's own controller, without writing or sending anything."""

    poll_s: float = key(5.0, "Longest time between two reads of the state znodes, in seconds.", ge=0.1, le=3_600)


class StateSettings(Section):
    """The files that the daemon keeps on disk."""

    directory: AbsolutePath = key(
        Path("/var/lib/regent"),
        "Directory of the roll-back files that a take-over saves, of the journal in events/, and of snapshots/.",
        remedy="give an absolute path that the daemon may write to",
    )
