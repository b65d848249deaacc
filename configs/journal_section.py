"""Declares the sections of the journal and of snapshots: the files in which a daemon keeps what it did, and had."""

from __future__ import annotations

from typing import Literal

from configs.sections import Section
from configs.values import OptionalConnectString, OptionalTopic, key


class JournalSettings(Section):
    """The journal: every decision about a partition, with before and after, in files of JSON lines."""

    enabled: bool = key(True, "Whether the daemon keeps a journal, in state.directory/events.")
    fsync: Literal["group", "never"] = key(
        "group",
        "group: the daemon flushes all rows of a burst of decisions to the disk together, within a second. never: the "
        "operating system flushes them at its own time.",
    )
    bytes_max: int = key(
        4_294_967_296,
        "Largest size of the journal on disk, in bytes. The daemon deletes the oldest files first.",
        ge=2_097_152,
        le=1_099_511_627_776,
    )
    age_days_max: int = key(30, "Age in days at which the daemon deletes a file.", ge=1, le=3_650)
    segment_bytes: int = key(
        67_108_864, "Size in bytes at which a file is complete and the next one begins.", ge=1_048_576, le=1_073_741_824
    )
    segment_s_max: int = key(600, "Age in seconds at which a file is complete.", ge=1, le=86_400)
    queue_rows_max: int = key(
        200_000,
        "Most rows that wait to be written, about 250 bytes each. The daemon drops and counts further rows and marks "
        "the gap.",
        ge=1_000,
        le=10_000_000,
    )
    topic: OptionalTopic = key(
        "",
        "Topic of Kafka that gets the journal's rows, too, a record for each; empty: none. It must exist: the daemon "
        "does not create it. It writes to partition 0 alone, with [security] as to the brokers.",
        remedy="give the name of a topic that exists, or leave it empty",
    )
    topic_bootstrap: OptionalConnectString = key(
        "",
        "Brokers of the topic's cluster, host:port,host:port. Empty: the brokers that the daemon controls.",
        remedy="give host:port of some brokers of the topic's cluster",
    )
    topic_bytes_max: int = key(
        33_554_432,
        "Most bytes of rows that wait for the topic's brokers. The daemon drops and counts further rows; the files "
        "have them.",
        ge=65_536,
        le=1_073_741_824,
    )


class SnapshotsSettings(Section):
    """Snapshots: files with all partitions and brokers at one moment, for reports and plans."""

    enabled: bool = key(
        True,
        "Whether the active daemon takes a snapshot by itself, into state.directory/snapshots: after each election, "
        "and at an interval. 'regent snapshot' takes one in any case.",
    )
    interval_h: int = key(24, "Hours after a snapshot until the next one.", ge=1, le=8_760)
    files_max: int = key(
        60, "Most snapshots that are kept. The daemon deletes the oldest ones first.", ge=1, le=100_000
    )
    bytes_max: int = key(
        1_073_741_824,
        "Largest size of all snapshots on disk, in bytes. The daemon deletes the oldest ones first, never the newest.",
        ge=1_048_576,
        le=1_099_511_627_776,
    )
