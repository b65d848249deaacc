"""The sections of the settings: one frozen model each, every key with its meaning, unit, limits and default.

A key without a default must be given. What a key's value must be on its own stands here; what two keys must be to each
other stands in :mod:`configs.rules`. Descriptions become the comments of ``configs/example.toml``.
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
    key,
)

ADOPTED = "Without this key the brokers' value holds, the stricter one where they differ."


class Section(BaseModel):
    """One table of the settings file."""

    model_config = ConfigDict(frozen=True, extra="forbid", validate_default=True, str_strip_whitespace=True)


class ControllerSettings(Section):
    """The role and how it is held."""

    id: int = key(
        1_000_001,
        "The daemon's id beside the brokers' ids. Every daemon of a cluster needs its own; no broker may have it, now "
        "or later.",
        ge=10_000,
        le=2_000_000_000,
        remedy="stay far above every broker.id, and far below 2147483647, from which clients count down for "
        "connections to group coordinators",
    )
    on_absence: Literal["brokers", "hold"] = key(
        "brokers",
        "What happens while no daemon lives. brokers: Kafka's own controller is elected and the cluster goes on. hold: "
        "nobody is elected, no leader moves until a daemon is back; for two daemons or more.",
    )
    ibp: Ibp = key(
        "3.9-IV0",
        "inter.broker.protocol.version of the brokers. Raise it after the brokers, as with Kafka's own controller. "
        "Without this key a daemon that takes office adopts the lowest one of the brokers.",
        remedy="give the brokers' inter.broker.protocol.version, for example 2.7-IV1 or 3.9-IV0",
    )
    lease_fraction: float = key(
        0.8,
        "Part of the negotiated session timeout, counted from the sending of the last answered heartbeat, after which "
        "the daemon stops acting by itself.",
        ge=0.5,
        le=0.9,
    )
    loop_stall_ms_max: int = key(
        6_000,
        "A daemon whose event loop has not turned for this time ends its process, in milliseconds. Below half of "
        "zookeeper.session_timeout_ms.",
        ge=500,
        le=120_000,
    )
    drain_timeout_ms: int = key(
        10_000,
        "At a stop: longest wait for writes and requests under way, in milliseconds.",
        ge=0,
        le=120_000,
    )
    handback_timeout_ms: int = key(
        30_000,
        "At a hand-back: longest wait until a broker holds the role and every broker knows it, in milliseconds; after "
        "that the role is taken back.",
        ge=1_000,
        le=600_000,
    )
    conflict_rounds_max: int = key(
        3,
        "How many times a decision that met a foreign write is read and decided again before its writes go singly.",
        ge=1,
        le=20,
    )
    delete_topic_enable: bool = key(
        True,
        "delete.topic.enable: whether topics that are marked for deletion are deleted. false removes the markers "
        f"instead, as Kafka's controller does. {ADOPTED}",
    )
    unclean_leader_election_enable: bool = key(
        False,
        "Default of unclean.leader.election.enable where neither the topic nor the brokers' dynamic default sets it. "
        f"true may lose acknowledged records: where no replica in sync is live, one that lags leads. {ADOPTED}",
    )
    auto_leader_rebalance_enable: bool = key(
        True,
        "Leadership goes back to the preferred replicas by itself, as with auto.leader.rebalance.enable of Kafka's "
        f"controller. {ADOPTED}",
    )
    leader_imbalance_check_interval_seconds: int = key(
        300,
        "leader.imbalance.check.interval.seconds: how often that is looked for, in seconds. The first time is 5 s "
        f"after the daemon took the role. {ADOPTED}",
        ge=1,
        le=86_400,
    )
    leader_imbalance_per_broker_percentage: int = key(
        10,
        "leader.imbalance.per.broker.percentage: leadership goes back to a broker once more than this part of the "
        f"partitions that prefer it is led by others, in per cent. {ADOPTED}",
        ge=0,
        le=100,
    )
    leader_rebalance_moves_per_minute: int = key(
        10_000,
        "Most leaders that move by themselves in a minute, those of the worst broker first. What is left follows as "
        "soon as a minute has passed, whatever the interval.",
        ge=1,
        le=10_000_000,
    )
    num_partitions: int = key(
        1,
        "num.partitions of the brokers: partitions of a topic that an admin client creates without saying how many. "
        f"{ADOPTED}",
        ge=1,
        le=100_000,
    )
    default_replication_factor: int = key(
        1,
        "default.replication.factor of the brokers: replicas of a topic that an admin client creates without saying "
        f"how many. {ADOPTED}",
        ge=1,
        le=1_000,
    )
    quota_window_num: int = key(
        11,
        "controller.quota.window.num of the brokers. Who has a quota (controller_mutation_rate) may create or delete "
        f"so many partitions at once: rate x quota_window_num x quota_window_size_seconds. {ADOPTED}",
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
        "delegation.token.expiry.check.interval.ms: how often delegation tokens that have expired are deleted, in "
        f"milliseconds. The first time is 5 s after the daemon took the role. 0: never. {ADOPTED}",
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
        "Whether topics are created although brokers have a create.topic.policy.class.name. The daemon cannot run that "
        "class: with false it refuses what an admin client wants to create (POLICY_VIOLATION).",
    )
    super_users: str = key(
        "",
        "Who may change everything through the admin endpoint where clients authenticate, as in super.users of the "
        "brokers: User:alice;User:bob; as there, User:* names nobody but a user called *. Where clients "
        "do not authenticate and no authorizer was ever used, everybody may.",
    )
    acls: Literal["zookeeper", "none"] = key(
        "zookeeper",
        "What others may change. zookeeper: what the access control lists allow that kafka-acls writes, as with "
        "authorizer.class.name=kafka.security.authorizer.AclAuthorizer of the brokers. none: nothing; for brokers with "
        "another authorizer.",
    )
    allow_everyone_if_no_acl_found: bool = key(
        False, "allow.everyone.if.no.acl.found of the brokers: whether everybody may where no list matches a resource."
    )


class ListenerSettings(Section):
    """Where brokers reach the daemon: controlled shutdown, ISR changes, producer ids."""

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
        remedy="give the name or address of this machine as the brokers see it",
    )
    advertised_port: int = key(0, "Port under which brokers reach it; 0 is the port it listens on.", ge=0, le=65_535)
    only_brokers: bool = key(
        False,
        "With PLAINTEXT: whether calls are served only from addresses at which a registered broker was reached. Not "
        "where brokers connect from other addresses than they listen on.",
    )
    frame_bytes_max: int = key(
        16_777_216,
        "Largest request of a broker, in bytes; the connection of a larger one is closed.",
        ge=65_536,
        le=104_857_600,
    )
    connections_max: int = key(
        2_000,
        "Most connections at a time, TLS handshakes under way included. Where all are in use, the oldest that has not "
        "been served gives way to a new one; where all have been, the new one is closed. A broker needs three.",
        ge=10,
        le=100_000,
    )
    connections_per_address_max: int = key(
        500,
        "As listener.connections_max, for those of one address (of IPv6, one network of /64).",
        ge=10,
        le=100_000,
    )
    frame_timeout_ms: int = key(
        10_000,
        "A request that has begun to arrive must be complete, a TLS handshake done, and a connection authenticated or "
        "served with a call of a broker, within this time, in milliseconds.",
        ge=100,
        le=600_000,
    )
    idle_timeout_ms: int = key(
        600_000,
        "A connection without any request for this time is closed, in milliseconds.",
        ge=1_000,
        le=86_400_000,
    )


class BrokersSettings(Section):
    """How the daemon speaks to the brokers."""

    inter_broker_listener: ListenerName = key(
        "INTERNAL",
        "inter.broker.listener.name of the brokers. Clients must use another listener.",
        remedy="give inter.broker.listener.name of the brokers",
    )
    control_plane_listener: OptionalListenerName = key(
        "",
        "control.plane.listener.name of the brokers, where they have one; empty where they do not.",
        remedy="give control.plane.listener.name of the brokers, or leave it empty",
    )
    reserved_broker_max_id: int = key(
        1_000,
        "reserved.broker.max.id of the brokers: ids that brokers generate for themselves count up from the next one.",
        ge=0,
        le=1_900_000_000,
    )
    connect_timeout_ms: int = key(
        10_000, "Longest wait for a connection to a broker, in milliseconds.", ge=100, le=120_000
    )
    request_timeout_ms: int = key(
        30_000,
        "Longest wait for a broker's answer, in milliseconds; then the connection is made anew and the request sent "
        "again.",
        ge=1_000,
        le=300_000,
    )
    retry_backoff_ms: int = key(100, "First pause before a broker is tried again, in milliseconds.", ge=10, le=60_000)
    retry_backoff_ms_max: int = key(1_000, "Longest pause between two tries, in milliseconds.", ge=10, le=60_000)
    seal_interval_ms: int = key(
        20,
        "Requests to one broker start at least this far apart, so that changes of a burst travel together, in "
        "milliseconds. The first one after quiet goes at once.",
        ge=0,
        le=5_000,
    )
    snapshot_turn_partitions: int = key(
        20_000,
        "A full snapshot of the metadata is sent in turns of so many partitions.",
        ge=100,
        le=100_000,
    )


class LogSettings(Section):
    """Logs go to standard error."""

    format: Literal["auto", "console", "json"] = key("auto", "auto is console on a terminal and json otherwise.")
    level: Level = key("info", "Least severe level that is written.", live=True)
    state_change_level: Level = key(
        "info",
        "The same for the logger regent.state-change: what was decided about partitions, one line per decision.",
        live=True,
    )


class ShadowSettings(Section):
    """regent run --shadow: decides beside Kafka's own controller, writes nothing, sends nothing."""

    poll_s: float = key(5.0, "State znodes are read again at least this often, in seconds.", ge=0.1, le=3_600)


class StateSettings(Section):
    """What the daemon keeps on disk."""

    directory: AbsolutePath = key(
        Path("/var/lib/regent"),
        "Holds the roll-back files that a take-over saves and, in events/, the journal.",
        remedy="give an absolute path that the daemon may write to",
    )


class JournalSettings(Section):
    """The journal: every decision about a partition, with before and after, in files of JSON lines."""

    enabled: bool = key(True, "Whether the daemon keeps it, in state.directory/events.")
    fsync: Literal["group", "never"] = key(
        "group",
        "group: what was decided is flushed to the disk together once a burst of decisions pauses, within a second. "
        "never: when the system likes to.",
    )
    bytes_max: int = key(
        4_294_967_296,
        "Most room on disk, in bytes; the oldest files go first.",
        ge=2_097_152,
        le=1_099_511_627_776,
    )
    age_days_max: int = key(30, "Files older than this go, too, in days.", ge=1, le=3_650)
    segment_bytes: int = key(67_108_864, "A file of this size is complete, in bytes.", ge=1_048_576, le=1_073_741_824)
    segment_s_max: int = key(600, "A file this old is complete, in seconds.", ge=1, le=86_400)
    queue_rows_max: int = key(
        200_000,
        "Rows that wait to be written, about 250 bytes each; further ones are dropped, counted and marked as a gap.",
        ge=1_000,
        le=10_000_000,
    )
