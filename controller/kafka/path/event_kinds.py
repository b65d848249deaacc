"""Declares the kinds of events that a term handles, one after the other.

:data:`controller.kafka.term.dispatch.EVENTS` has a row for each: its handler, its state in Kafka, the watch that
raises it.
"""

from __future__ import annotations

from enum import StrEnum


class EventKind(StrEnum):
    """Names the kinds; the values are labels of the metric ``regent_event_seconds``."""

    FAILOVER = "failover"
    RECONNECTED = "reconnected"
    BROKER_CHANGE = "broker_change"
    TOPIC_CHANGE = "topic_change"
    TOPIC_DELETION = "topic_deletion"
    ISR_NOTIFICATION = "isr_notification"
    REASSIGN_PARTITIONS = "reassign_partitions"
    REASSIGNED_STATES = "reassigned_states"
    LOG_DIR_EVENT = "log_dir_event"
    PREFERRED_ELECTION = "preferred_election"
    CONFIG_CHANGE = "config_change"
    ENDPOINT_CHANGE = "endpoint_change"
    CORDON_CHANGE = "cordon_change"
    PAUSE_CHANGE = "pause_change"
    ACL_CHANGE = "acl_change"
    PARTITION_MODIFICATIONS = "partition_modifications"
    REPAIRED_STATE = "mended_state"
    REASSIGNED_STATE = "reassigned_state"
    DELETION_PROGRESS = "deletion_progress"
    LATE_PARTITIONS = "late_partitions"
    LOST_IDS = "lost_ids"
    RESUME_REASSIGNMENTS = "resume_reassignments"
    ADVANCE_REASSIGNMENTS = "advance_reassignments"
    FINISH_REASSIGNMENTS = "finish_reassignments"
    DROPPED_REPLICAS = "dropped_replicas"
    STRAYS = "strays"
    GHOSTS = "ghosts"
    REPLACE_DAEMONS = "replace_daemons"
    REPLICAS_FAILED = "replicas_failed"
    AUTO_BALANCE = "auto_balance"
    BROKER_SETTINGS = "broker_settings"
    EXPIRED_TOKENS = "expired_tokens"
    PROCEDURES = "procedures"
    SETTLED = "settled"
    ALTER_PARTITION = "alter_partition"
    CONTROLLED_SHUTDOWN = "controlled_shutdown"
    UNDO_SHUTDOWN = "undo_shutdown"
    UNDRAIN = "undrain"
    REMOVE_STRAYS = "remove_strays"
    ALLOCATE_PRODUCER_IDS = "allocate_producer_ids"
    DELETE_TOPICS = "delete_topics"
    GIVE_UP = "give_up"
    ELECT_LEADERS = "elect_leaders"
    ALTER_REASSIGNMENTS = "alter_reassignments"
    LIST_REASSIGNMENTS = "list_reassignments"
    CREATE_TOPICS = "create_topics"
    CREATE_PARTITIONS = "create_partitions"
    ALTER_SCRAM_CREDENTIALS = "alter_user_scram_credentials"
    UPDATE_FEATURES = "update_features"
