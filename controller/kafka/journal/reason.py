"""Names the reasons of decisions, for the column ``reason`` of the journal's rows."""

from __future__ import annotations

from enum import StrEnum

from state_machines.journal.audit import BY_LEADER


class Reason(StrEnum):
    """The cause of a decision. Rows of changes that were only read have reasons of their own."""

    BROKER_FAILURE = "broker_failure"
    BROKER_RETURN = "broker_return"
    CONTROLLED_SHUTDOWN = "controlled_shutdown"
    NEW_TOPIC = "new_topic"
    ISR_BY_LEADER = BY_LEADER
    FAILOVER = "failover"
    TAKEN_UP = "taken_up"
    REASSIGNMENT = "reassignment"
    ELECTION = "election"
    UNCLEAN_ALLOWED = "unclean_allowed"
    LOG_DIRECTORY = "log_directory"
    DELETION = "deletion"
    DRAIN = "drain"
