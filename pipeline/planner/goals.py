"""Names the goals of a plan in their order. A later goal never makes an earlier one worse."""

from __future__ import annotations

from enum import IntEnum
from typing import Final


class Goal(IntEnum):
    """A goal; its number is its place in the order. The comment of each names its class in Cruise Control."""

    ALIVE = 0  # self-healing, brokers that are being removed
    RACKS = 1  # RackAwareGoal, RackAwareDistributionGoal
    SETS = 2  # BrokerSetAwareGoal
    REPLICAS_MAX = 3  # ReplicaCapacityGoal
    DISK_MAX = 4  # DiskCapacityGoal
    IN_MAX = 5  # NetworkInboundCapacityGoal
    OUT_MAX = 6  # NetworkOutboundCapacityGoal
    CPU_MAX = 7  # CpuCapacityGoal
    REPLICAS = 8  # ReplicaDistributionGoal
    POTENTIAL_OUT = 9  # PotentialNwOutGoal
    DISK = 10  # DiskUsageDistributionGoal
    IN = 11  # NetworkInboundUsageDistributionGoal
    OUT = 12  # NetworkOutboundUsageDistributionGoal
    CPU = 13  # CpuUsageDistributionGoal
    TOPICS = 14  # TopicReplicaDistributionGoal
    LEADERS = 15  # LeaderReplicaDistributionGoal
    LEADER_IN = 16  # LeaderBytesInDistributionGoal


HARD: Final = frozenset(Goal(number) for number in range(Goal.REPLICAS))
"""Goals that a plan has to reach; the others it reaches as far as these allow."""

WORDS: Final = {
    Goal.ALIVE: "no replica on dead or retiring brokers",
    Goal.RACKS: "replicas on distinct racks",
    Goal.SETS: "replicas on the brokers of their set",
    Goal.REPLICAS_MAX: "replicas per broker below the limit",
    Goal.DISK_MAX: "disk below its capacity",
    Goal.IN_MAX: "bytes in below their capacity",
    Goal.OUT_MAX: "bytes out below their capacity",
    Goal.CPU_MAX: "CPU below its capacity",
    Goal.REPLICAS: "even counts of replicas",
    Goal.POTENTIAL_OUT: "bytes out below their capacity if every replica led",
    Goal.DISK: "even disk use",
    Goal.IN: "even bytes in",
    Goal.OUT: "even bytes out",
    Goal.CPU: "even CPU",
    Goal.TOPICS: "replicas of a topic on many brokers",
    Goal.LEADERS: "even counts of leaders",
    Goal.LEADER_IN: "even bytes in of leaders",
}
"""What each goal asks for, as the reason of a move and in the summary."""

DISKS_FULL: Final = "log directories below their capacity"  # IntraBrokerDiskCapacityGoal
DISKS_EVEN: Final = "even log directories of a broker"  # IntraBrokerDiskUsageDistributionGoal
"""Goals within brokers, where log directories are given; the first one is hard. They come after all others."""
